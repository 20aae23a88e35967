// Program broker is a sidecar that calls MCP tools on behalf of the people and
// services that an agent gateway works for.
//
//	broker init                write a first configuration
//	broker serve               run the sidecar
//	broker health              ask whether a broker is alive, or ready
//	broker check               report every problem of the configuration and stop
//	broker call                run one tool call, as a gateway would
//	broker operations get      what became of a call, by id or by your own key
//	broker operations list     what was done for an actor, is open, or is in doubt
//	broker operations resolve  say whether a call in doubt ran
//	broker doctor              say what is wrong around a running broker, and what to type
//	broker import              ask servers for their tools
//	broker probe               look whether a server is there
//	broker servers             how the servers are
//	broker catalogue           what servers offer: list, diff, pin
//	broker tools               what an actor may call
//	broker grants              who may do what as whom: list, who-can, can, explain,
//	                           diff, expiring, orphaned
//	broker suspend             stop an actor, a server or a profile at once
//	broker suspensions         what is stopped, and how to lift it
//	broker approvals           what waits for a person, and the person's decision
//	broker audit export        the record of what was decided, from a running broker
//	broker audit head          its newest head, to keep elsewhere
//	broker audit verify        whether an export is whole, from the file alone
//	broker audit keygen        make the key that signs heads
//	broker completion          what a shell completes commands and flags with
//	broker version
//
// Secrets come from files, or from the environment variables that the help of a command
// names; never from flags, which others can see.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker"
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	again := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		close(again)
	}()
	os.Exit(run(ctx, os.Args[1:], world{os.Getenv, os.Stdout, os.Stderr, again}))
}

// world is what the program sees of its surroundings; tests give their own.
type world struct {
	getenv         func(string) string
	stdout, stderr io.Writer
	again          <-chan struct{} // closed by the second signal to end; the first ends the context
}

// exit is an error that has been told already and carries a status.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// run is the whole program; main only binds it to this process.
func run(ctx context.Context, args []string, w world) int {
	root := program(w)
	root.SetArgs(args)
	root.SetOut(w.stdout)
	root.SetErr(w.stderr)
	err := root.ExecuteContext(ctx)
	var status exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintln(w.stderr, "broker:", err)
	return 1
}

func program(w world) *cobra.Command {
	root := &cobra.Command{Use: "broker", Short: "A delegated-auth token broker for MCP servers", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(initCommand(w), serveCommand(w), healthCommand(w), checkCommand(w), callCommand(w), operationsCommand(w), doctorCommand(w), grantsCommand(w),
		suspendCommand(w), suspensionsCommand(w), approvalsCommand(w), importCommand(w), probeCommand(w), serversCommand(w), catalogueCommand(w), toolsCommand(w), auditCommand(w), versionCommand(w))
	return root
}

func versionCommand(w world) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) { fmt.Fprintln(w.stdout, "broker", broker.Version) }}
}
