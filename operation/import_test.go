package operation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/store"
)

// newBench is a rig that can be broken.
func newBench(t *testing.T) *bench {
	b := &bench{t: t}
	b.Rig = brokertest.New(t, &brokertest.Options{Tamper: b.interfere})
	return b
}

// listing is the JSON of a tool that takes nothing but a q.
func listing(name, description string) string {
	return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{"q":{"type":"string"}},"additionalProperties":false}}`, name, description)
}

func imports(t *testing.T, rig *brokertest.Rig, server string) (got httpapi.ImportAnswer) {
	t.Helper()
	if a := rig.Admin(t, "POST", "/v1/servers/"+server+"/import", "", &got); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return got
}

func pinOf(t *testing.T, rig *brokertest.Rig, server, name string) string {
	t.Helper()
	var got struct{ Tools []httpapi.KeptTool }
	rig.Admin(t, "GET", "/v1/servers/"+server+"/tools", "", &got)
	for _, k := range got.Tools {
		if k.Name == name {
			return k.Pin
		}
	}
	t.Fatalf("%s has no %s: %+v", server, name, got)
	return ""
}

// TestImport: by the discovery credential alone, in both eras, twice in a row without
// a change; each import is decided before it is done, and told in the audit.
func TestImport(t *testing.T) {
	for _, name := range []string{"records", "archive"} {
		t.Run(name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				rig := brokertest.New(t, nil)
				c.Plant(rig.Secrets()...)
				server := eras(rig)[name]
				all := []string{"drop", "fail", "job", "slow", "whoami"}
				got := imports(t, rig, name)
				slices.Sort(got.New)
				if got.Imported != 5 || got.Refused != "" || !slices.Equal(got.New, all) || len(got.Skipped)+got.Orphaned != 0 {
					t.Errorf("%+v", got)
				}
				if again := imports(t, rig, name); again.Imported != 5 || len(again.New)+len(again.Changed)+len(again.Vanished)+len(again.Returned) != 0 {
					t.Errorf("again: %+v", again)
				}
				for _, r := range server.Requests() {
					if r.Subject != brokertest.Discovery || r.Method == "tools/call" {
						t.Errorf("%s as %q", r.Method, r.Subject)
					}
				}
				if rig.Provider.Exchanges() != 0 || rig.Vault.Count("POST", holds) != 0 {
					t.Error("a token was exchanged, or held")
				}
				if a := rig.Call(t, brokertest.Call{Server: name}); a.State != fault.Succeeded {
					t.Errorf("%s", a.Body)
				}
				if err := rig.Stop(); err != nil {
					t.Fatal(err)
				}
				var kinds []string
				for line := range strings.Lines(rig.Audit(t)) {
					var rec struct{ Kind, Server, Operation, Caller string }
					json.Unmarshal([]byte(line), &rec)
					if rec.Server == name && rec.Operation == "" {
						kinds = append(kinds, rec.Kind+" by "+rec.Caller)
					}
				}
				if want := []string{"decision by admin", "import by admin", "decision by admin", "import by admin"}; !slices.Equal(kinds, want) {
					t.Errorf("the audit has %q", kinds)
				}
				c.Bytes("log", []byte(rig.Log()))
			})
		})
	}
}

// TestImportBroken: each step of an import failing. Nothing is half taken, a server
// that gives no list keeps its tools, and what is told is what was written.
func TestImportBroken(t *testing.T) {
	for _, tc := range []struct {
		name    string
		brk     func(*bench)
		status  int
		reason  fault.Reason // of the problem, or why the import was refused
		restart bool         // the store has failed
	}{
		{"the discovery credential is not there", func(b *bench) { b.edit("vault:kv/broker/discovery/records#value", "vault:kv/broker/nothing#value") }, 200, fault.CredentialMissing, false},
		{"the discovery credential is not good", func(b *bench) {
			b.must(b.SetCredential(b.t.Context(), "broker/discovery/records", "another"))
			b.Records.Break(nil) // it lists by itself, to whom it knows
		}, 200, fault.Unauthorized, false},
		{"Vault fails", func(b *bench) { b.Vault.Fail("GET", "kv/data/broker/discovery", -1, devvault.Failure{}) }, 200, fault.VaultUnexpected, false},
		{"the server is disabled", func(b *bench) { b.edit("enabled: true\n    data_class", "enabled: false\n    data_class") }, 403, fault.ServerDisabled, false},
		{"the server has no data class", func(b *bench) { b.edit("    data_class: internalConfiguration\n", "") }, 403, fault.ServerInert, false},
		{"the server has no discovery credential", func(b *bench) { b.edit(`, discovery_credential: "vault:kv/broker/discovery/records#value"`, "") }, 403, fault.DiscoveryMissing, false},
		{"the admin has no such server", func(b *bench) { b.edit("servers: [records, archive]\n  people", "servers: [archive]\n  people") }, 403, fault.ServerNotAllowed, false},
		{"the server is suspended", func(b *bench) {
			b.Admin(b.t, "POST", "/v1/suspensions", `{"server":"records","reason":"x"}`, nil)
		}, 403, fault.Suspended, false},
		{"the list is 503", func(b *bench) { b.at("tools/list", status(503)) }, 200, fault.Intermediary, false},
		{"the list is cut", func(b *bench) { b.at("tools/list", cutBefore) }, 200, fault.ConnectionLost, false},
		{"the list does not come", func(b *bench) {
			b.edit("url: ", "timeout: 300ms\n    url: ")
			b.at("tools/list", hang)
		}, 200, fault.WallClock, false},
		{"the decision cannot be written", func(b *bench) { b.commit(audit.Decision, store.Committing) }, 503, fault.StoreFailed, true},
		{"what was found cannot be written", func(b *bench) { b.commit(audit.Import, store.Committing) }, 503, fault.StoreFailed, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.Records.List(listing("whoami", "before"), listing("slow", "before"))
			imports(t, b.Rig, "records")
			before := pinOf(t, b.Rig, "records", "whoami")
			heard := len(b.Records.Requests())
			b.Records.List(listing("whoami", "after"))
			tc.brk(b)
			var got httpapi.ImportAnswer
			a := b.Admin(t, "POST", "/v1/servers/records/import", "", &got)
			if a.Status != tc.status || a.Reason != tc.reason && got.Refused != tc.reason {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if a.Status != 200 && a.Reason != fault.StoreFailed && len(b.Records.Requests()) != heard {
				t.Error("the server was asked all the same")
			}
			if tc.restart {
				b.tamper.Store(nil)
				b.must(b.Stop())
				b.must(b.Restart(t.Context()))
			}
			if got := pinOf(t, b.Rig, "records", "whoami"); got != before {
				t.Error("the tool was taken over")
			}
			var all struct{ Servers []httpapi.Server }
			b.Admin(t, "GET", "/v1/servers", "", &all)
			records := all.Servers[slices.IndexFunc(all.Servers, func(s httpapi.Server) bool { return s.ID == "records" })]
			if want := map[bool]string{true: "error", false: "ok"}[tc.status == 200]; string(records.Import.Status) != want || records.Import.Tools != 2 {
				t.Errorf("%+v, want %s with 2 tools", records.Import, want)
			}
		})
	}
}

// TestGate: what the last import found decides about the next call, and about what is
// offered, by one decision; the hashes of a tool that has changed are in the audit.
func TestGate(t *testing.T) {
	pin := func(pin string) func(*bench) {
		return func(b *bench) {
			b.edit("whoami: {enabled: true, effect: read}", `whoami: {enabled: true, effect: read, pin: "`+pin+`"}`)
		}
	}
	whoami := listing("whoami", "Says who.")
	for _, tc := range []struct {
		name   string
		before []string // listed by a first import; nil: there was none
		pinned bool     // to what the first import found
		after  []string // listed by a second; nil: there is none
		args   string
		reason fault.Reason
	}{
		{"never imported", nil, false, nil, `{"any":1}`, ""},
		{"imported", []string{whoami}, false, nil, `{}`, ""},
		{"pinned", []string{whoami}, true, []string{whoami}, `{}`, ""},
		{"pinned, and a zero-width character more", []string{whoami}, true, []string{listing("whoami", "Says\u200b who.")}, `{}`, fault.ToolChanged},
		{"not pinned, and another description", []string{whoami}, false, []string{listing("whoami", "Says more.")}, `{}`, ""},
		{"it vanished", []string{whoami}, false, []string{listing("slow", "")}, `{}`, fault.ToolNotOffered},
		{"arguments that do not fit", []string{whoami}, false, nil, `{"q":1}`, fault.ArgumentsInvalid},
		{"arguments too many", []string{whoami}, false, nil, `{"x":1}`, fault.ArgumentsInvalid},
		{"arguments that fit", []string{whoami}, false, nil, `{"q":"a"}`, ""},
		{"a schema that was refused", []string{`{"name":"whoami","inputSchema":{"type":"string"}}`}, false, nil, `{}`, fault.ToolNotOffered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			if tc.before != nil {
				b.Records.List(tc.before...)
				imports(t, b.Rig, "records")
			}
			if tc.pinned {
				pin(pinOf(t, b.Rig, "records", "whoami"))(b)
			}
			if tc.after != nil {
				b.Records.List(tc.after...)
				imports(t, b.Rig, "records")
			}
			calls := b.Records.Arrived("tools/call")
			a := b.Call(t, brokertest.Call{Arguments: json.RawMessage(tc.args)})
			if tc.reason == "" && a.State != fault.Succeeded || tc.reason != "" && (a.Reason != tc.reason || b.Records.Arrived("tools/call") != calls || b.Provider.Exchanges() != 0) {
				t.Errorf("want %q: %s", tc.reason, a.Body)
			}
			var offer struct{ Tools []httpapi.Tool }
			got := b.Get(t, "/v1/tools", brokertest.Call{})
			if err := json.Unmarshal(got.Body, &offer); err != nil || got.Status != 200 {
				t.Fatalf("%d %s", got.Status, got.Body)
			}
			offered := slices.ContainsFunc(offer.Tools, func(o httpapi.Tool) bool { return o.Server == "records" && o.Tool == "whoami" })
			if offered != (tc.reason == "" || tc.reason == fault.ArgumentsInvalid) {
				t.Errorf("offered %v, and a call is %q", offered, tc.reason)
			}
			b.must(b.Stop())
			if log := b.Rig.Audit(t); tc.reason == fault.ToolChanged && strings.Count(log, `"redefined":{"tool":"whoami","old":"sha256:`) != 1 {
				t.Errorf("no hashes in the audit:\n%s", log)
			}
		})
	}
}

// TestChangedUnderWay: an import that finds another definition stops what is under way
// before its next leg.
func TestChangedUnderWay(t *testing.T) {
	b := newBench(t)
	b.Archive.List(listing("whoami", "Says who."))
	imports(t, b.Rig, "archive")
	b.must(b.Edit(func(yaml string) string {
		return strings.ReplaceAll(yaml, "whoami: {enabled: true, effect: read}", `whoami: {enabled: true, effect: read, pin: "`+pinOf(t, b.Rig, "archive", "whoami")+`"}`)
	}))
	release, answer := held(t, b.Rig, b.Archive, "notifications/initialized", brokertest.Call{Server: "archive"})
	b.Archive.List(listing("whoami", "Says more."))
	done := make(chan httpapi.ImportAnswer, 1)
	go func() {
		var got httpapi.ImportAnswer
		b.Admin(t, "POST", "/v1/servers/archive/import", "", &got)
		done <- got
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b.must(b.Archive.Await(ctx, func() bool { return b.Archive.Arrived("notifications/initialized") == 3 }))
	release()
	<-done
	if a := <-answer; a.State != fault.NotSent && a.State != fault.Succeeded {
		t.Errorf("%s", a.Body)
	}
	if a := b.Call(t, brokertest.Call{Server: "archive"}); a.Reason != fault.ToolChanged {
		t.Errorf("%s", a.Body)
	}
}

// TestPinVerify: with `pin: verify` a tool that has changed since the import is
// refused at once, before anything of the call leaves, with both hashes in the audit.
func TestPinVerify(t *testing.T) {
	for _, name := range []string{"records", "archive"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			server := eras(b.Rig)[name]
			server.List(listing("whoami", "Says who."))
			imports(t, b.Rig, name)
			b.must(b.Edit(func(yaml string) string {
				yaml = strings.ReplaceAll(yaml, "requires_approval: false", "requires_approval: false\n    pin: verify")
				return strings.ReplaceAll(yaml, "whoami: {enabled: true, effect: read}", `whoami: {enabled: true, effect: read, pin: "`+pinOf(t, b.Rig, name, "whoami")+`"}`)
			}))
			if a := b.Call(t, brokertest.Call{Server: name}); a.State != fault.Succeeded || !strings.Contains(a.LegNames(), "tools/list tools/call") {
				t.Errorf("%s", a.Body)
			}
			calls := server.Arrived("tools/call")
			for _, listed := range [][]string{{listing("whoami", "Says\u200b who.")}, {listing("slow", "")}} {
				server.List(listed...)
				a := b.Call(t, brokertest.Call{Server: name})
				want := map[bool]fault.Reason{true: fault.ToolChanged, false: fault.ToolNotOffered}[strings.Contains(listed[0], "whoami")]
				if a.State != fault.NotSent || a.Cause != want || a.Hold != "dropped" || server.Arrived("tools/call") != calls {
					t.Errorf("%s", a.Body)
				}
			}
			b.must(b.Stop())
			if log := b.Audit(t); strings.Count(log, `"redefined":{"tool":"whoami","old":"sha256:`) != 1 {
				t.Errorf("no hashes in the audit:\n%s", log)
			}
		})
	}
}

// TestScheduled: where the operator has it so, the broker imports and probes by itself,
// with nobody's name on it, and offers what it found.
func TestScheduled(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return strings.Replace(yaml, "requires_approval: false", "requires_approval: false\n    import: {every: 10s}\n    probe: {every: 10s}", 1)
	}})
	var records, archive httpapi.Server
	until(t, func() bool {
		var all struct{ Servers []httpapi.Server }
		rig.Admin(t, "GET", "/v1/servers", "", &all)
		archive, records = all.Servers[0], all.Servers[1]
		return records.Import.Status == "ok" && records.Health.Is == "up"
	})
	if archive.Import.Status != "never_imported" || archive.Health != (httpapi.Health{}) {
		t.Errorf("%+v", archive)
	}
	if a := rig.Call(t, brokertest.Call{Arguments: map[string]int{"x": 1}}); a.Reason != fault.ArgumentsInvalid {
		t.Errorf("what was found is not offered: %s", a.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if log := rig.Audit(t); !strings.Contains(log, `"kind":"import","server":"records"`) || !strings.Contains(log, `"kind":"probe","server":"records"`) {
		t.Errorf("the audit has\n%s", log)
	}
}

// TestImportSkips: what cannot be taken is skipped with its reason, wherever it was
// found out, and the rest is taken.
func TestImportSkips(t *testing.T) {
	b := newBench(t)
	b.Records.List(listing("whoami", ""), `null`, `{"description":"x"}`, listing("whoami", "again"), listing("a.b", ""), `{"name":"deep","inputSchema":{"type":"string"}}`,
		`{"name":"header","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"a b"}}}}`)
	got := imports(t, b.Rig, "records")
	var why []string
	for _, s := range got.Skipped {
		why = append(why, s.Why)
	}
	if got.Imported != 1 || len(got.Skipped) != 6 || !strings.Contains(strings.Join(why, "|"), "x-mcp-header") {
		t.Errorf("%d taken, skipped %q", got.Imported, why)
	}
	var all struct{ Servers []httpapi.Server }
	b.Admin(t, "GET", "/v1/servers", "", &all)
	if s := all.Servers[1].Import; s.Status != "partial" || s.Tools != 1 || !strings.Contains(s.Problem, "x-mcp-header") {
		t.Errorf("%+v", s)
	}
}

// TestOneThingAtATime: a server that is being asked is not asked for something else,
// others are, and a stop cuts it like what is open.
func TestOneThingAtATime(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string { return yaml + "stop: {drain: 100ms}\n" }})
	release := rig.Records.Hold("tools/list")
	defer release()
	first := make(chan httpapi.ImportAnswer, 1)
	go func() {
		var got httpapi.ImportAnswer
		rig.Admin(t, "POST", "/v1/servers/records/import", "", &got)
		first <- got
	}()
	until(t, func() bool { return rig.Records.Arrived("server/discover") > 0 && len(rig.Records.Requests()) > 1 })
	for _, what := range []string{"import", "probe"} {
		if a := rig.Admin(t, "POST", "/v1/servers/records/"+what, "", nil); a.Status != 429 || a.Reason != fault.ServerBusy {
			t.Errorf("%s: %d %s", what, a.Status, a.Body)
		}
	}
	if got := imports(t, rig, "archive"); got.Imported != 5 {
		t.Errorf("another server: %+v", got)
	}
	if a := rig.Call(t, brokertest.Call{}); a.State != fault.Succeeded {
		t.Errorf("a call meanwhile: %s", a.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := <-first; got.Refused != fault.BrokerStopping {
		t.Errorf("%+v", got)
	}
	if log := rig.Audit(t); !strings.Contains(log, `"kind":"import","server":"records"`) && !strings.Contains(log, `"reason":"broker_stopping"`) {
		t.Errorf("the audit has\n%s", log)
	}
}
