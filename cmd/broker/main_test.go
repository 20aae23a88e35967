package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devmcp"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"broker": main, "broker-stopped": stopped, "broker-unsynced": unsynced})
}

// stopped is the program whose first signal came before anything else.
func stopped() {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	os.Exit(run(ctx, os.Args[1:], world{os.Getenv, os.Stdout, os.Stderr, nil}))
}

// TestScripts runs the real program. A script that asks for a broker with
// `rig` gets one, over the dev servers, at $BROKER_API, with its bearer in the
// file bearer, an admin's in admin-bearer, an auditor's in auditor-bearer, and its configuration in $CONFIG; `rig unix` has it on a socket.
// `rig signed` has its audit signed, with the verifier key in $VERIFIER and the heads in $HEADS; `rig pruning` has it
// copied to $SINK and pruned after a day, too. `restart` ends it and starts it again, `halt` ends it, `later` moves its clock.
// `edit old new` changes the first such text of that and has it read again; `lists server
// tool…` has a dev server list these tools from then on, each the JSON of one.
// `rig approving` has calls wait for a person: people-bearer brings one, whose assertions are in the
// files user8, again8 and user7.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("SAMPLE", sample(t))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"rig": startRig, "edit": edit, "lists": lists, "restart": restart, "halt": halt, "later": later},
	})
}

var rigs sync.Map // :: script → its rig

func edit(ts *testscript.TestScript, _ bool, args []string) {
	rig, ok := rigs.Load(ts)
	if !ok || len(args) != 2 {
		ts.Fatalf("usage: edit old new, after rig")
	}
	lines := strings.NewReplacer(`\n`, "\n")
	old, fresh := lines.Replace(args[0]), lines.Replace(args[1])
	ts.Check(rig.(*brokertest.Rig).Edit(func(yaml string) string {
		if !strings.Contains(yaml, old) {
			ts.Fatalf("%q is not in the configuration", old)
		}
		return strings.Replace(yaml, old, fresh, 1)
	}))
}

func lists(ts *testscript.TestScript, _ bool, args []string) {
	rig, ok := rigs.Load(ts)
	if !ok || len(args) == 0 {
		ts.Fatalf("usage: lists server tool..., after rig")
	}
	server := map[string]*devmcp.Server{"records": rig.(*brokertest.Rig).Records, "archive": rig.(*brokertest.Rig).Archive}[args[0]]
	server.List(args[1:]...)
}

func startRig(ts *testscript.TestScript, neg bool, args []string) {
	var o brokertest.Options
	if len(args) == 1 && args[0] == "unix" {
		o.API = "unix:" + ts.MkAbs("api.sock")
	}
	if len(args) == 1 && args[0] == "approving" {
		o.Config = brokertest.Approving
	}
	o.SignedAudit = len(args) == 1 && (args[0] == "signed" || args[0] == "pruning")
	if len(args) == 1 && args[0] == "pruning" {
		clock := new(atomic.Int64)
		clocks.Store(ts, clock)
		o.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Load())) }
		o.Config = func(yaml string) string {
			return strings.Replace(yaml, `/heads"}`, `/heads", sink: "file:audit.jsonl", keep: 24h}`, 1)
		}
	}
	rig, err := brokertest.Start(context.Background(), o)
	ts.Check(err)
	rigs.Store(ts, rig)
	ts.Defer(func() { ts.Check(rig.Close()) })
	ts.Setenv("BROKER_API", rig.URL)
	ts.Setenv("BROKER_BEARER_FILE", ts.MkAbs("bearer"))
	ts.Setenv("CONFIG", rig.ConfigPath)
	ts.Check(os.WriteFile(ts.MkAbs("bearer"), []byte(rig.Bearer+"\n"), 0o600))
	for name, text := range map[string]string{"people-bearer": rig.PeopleBearer(), "user7": rig.AssertApprover("user:7", nil),
		"user8": rig.AssertApprover("user:8", nil), "again8": rig.AssertApprover("user:8", nil)} {
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text+"\n"), 0o600))
	}
	ts.Setenv("VERIFIER", rig.AuditKey)
	ts.Setenv("HEADS", rig.HeadsPath())
	ts.Setenv("SINK", filepath.Join(rig.Dir, "audit.jsonl"))
	ts.Check(os.WriteFile(ts.MkAbs("auditor-bearer"), []byte(rig.AuditorBearer()+"\n"), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("admin-bearer"), []byte(rig.AdminBearer()+"\n"), 0o600))
}

var clocks sync.Map // :: script → how far the clock of its rig is ahead

func later(ts *testscript.TestScript, _ bool, args []string) {
	clock, ok := clocks.Load(ts)
	if !ok || len(args) != 1 {
		ts.Fatalf("usage: later duration, after rig pruning")
	}
	some, err := time.ParseDuration(args[0])
	ts.Check(err)
	clock.(*atomic.Int64).Add(int64(some))
}

func restart(ts *testscript.TestScript, _ bool, _ []string) {
	rig, _ := rigs.Load(ts)
	halt(ts, false, nil)
	ts.Check(rig.(*brokertest.Rig).Restart(context.Background()))
	ts.Setenv("BROKER_API", rig.(*brokertest.Rig).URL)
}

func halt(ts *testscript.TestScript, _ bool, _ []string) {
	rig, _ := rigs.Load(ts)
	ts.Check(rig.(*brokertest.Rig).Stop())
}

// sample is the sample configuration of the repository.
func sample(t *testing.T) string {
	path, err := filepath.Abs("../../configs/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return path
}
