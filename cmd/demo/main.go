// Program demo shows the main job in one process: a dev identity provider, two
// dev MCP servers, a dev Vault and the broker, all on loopback.
//
//	go run ./cmd/demo                    the story, then it keeps serving
//	go run ./cmd/demo -once              the story; status 0 only if it went as it should
//	go run ./cmd/demo -vault ADDR        over a real Vault in dev mode, with its root token in VAULT_TOKEN
//
// It is not a way to run a broker: everything in it is for show.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"onbehalf.internal/broker/brokertest"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the dev provider's engine writes there
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is the whole program; main only binds it to this process.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	once := flags.Bool("once", false, "stop after the story; fail unless all of it went as it should")
	vault := flags.String("vault", "", "address of a real Vault in dev mode; its root token in VAULT_TOKEN")
	api := flags.String("api", "", "where the broker listens (default 127.0.0.1:8471, with -once a free port)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *api == "" && !*once {
		*api = "127.0.0.1:8471"
	}
	rig, err := brokertest.Start(ctx, brokertest.Options{Vault: *vault, API: *api})
	if err != nil {
		return err
	}
	defer rig.Close()
	s := &story{ctx: ctx, rig: rig, out: out}
	s.tell(*vault)
	if *once {
		return s.verdict()
	}
	if err := invite(out, rig); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// invite shows what to try by hand while the demo serves.
func invite(out io.Writer, rig *brokertest.Rig) error {
	bearer, admin := filepath.Join(rig.Dir, "bearer"), filepath.Join(rig.Dir, "admin-bearer")
	for path, text := range map[string]string{bearer: rig.Bearer, admin: rig.AdminBearer()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, `Serving until Ctrl-C. Try:

  curl -s %[1]s/v1/operations \
    -H "Authorization: Bearer $(cat %[2]s)" -H "Broker-Actor: user:7" -H "Content-Type: application/json" \
    -d '{"server":"records","tool":"whoami","arguments":{},"request_key":"my-first-key"}'

  the same line again (the same job), with user:8 (refused), with "tool":"slow","arguments":{"seconds":9} (cut off at 5 s);
  what became of a key:

  curl -s "%[1]s/v1/operations?request_key=my-first-key" -H "Authorization: Bearer $(cat %[2]s)" -H "Broker-Actor: user:7"

  go run ./cmd/broker call --api %[1]s --bearer-file %[2]s --actor user:7 --server archive --tool whoami
  go run ./cmd/broker grants explain --config %[3]s --caller gateway --actor user:8 --server records --tool whoami
  go run ./cmd/broker doctor --api %[1]s --bearer-file %[2]s --actor user:7 --admin-bearer-file %[4]s

  and the page for reviewers, in a browser: %[1]s/ui/
  (sign in at the provider as 9, who may see and decide)
`, rig.URL, bearer, rig.ConfigPath, admin)
	return nil
}
