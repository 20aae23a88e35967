// Command hostile serves the hostile MCP server, to try a client against it.
// README.md in the folder above says how.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"onbehalf.internal/broker/test/hostile/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

// run serves until ctx is over. The first line of out is the server's URL.
func run(ctx context.Context, args []string, out, complaints io.Writer) error {
	flags := flag.NewFlagSet("hostile", flag.ContinueOnError)
	flags.SetOutput(complaints)
	listen := flags.String("listen", "127.0.0.1:8473", "host and port; port 0 takes a free one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := server.Start(*listen)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(out, "%s\n%d behaviours at /b/<behaviour>/mcp; who follows a redirect comes to %s\n", s.URL, len(server.All()), s.Elsewhere)
	<-ctx.Done()
	return nil
}
