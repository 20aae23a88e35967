package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

// A broken is one way to break the path, and what must be left of it.
type broken struct {
	name string
	brk  func(*bench)
	call brokertest.Call // default: user:7 calls whoami on records
	conf func(string) string

	status int    // of the HTTP answer
	state  string // of the operation in the answer; "" where nothing was begun
	cause  string // the operation's cause, or the problem's reason
	retry  string
	hold   string // "": none was made
	ledger string // the state on disk after a restart; "": the ledger never heard of it

	exchanges int // tokens that the provider issued
	ran       int // times the tool really ran
	calls     int // tools/call requests that reached the server
}

// A bench is a rig that can be broken.
type bench struct {
	*brokertest.Rig
	t       *testing.T
	tamper  atomic.Pointer[func(store.Moment, []audit.Record) error]
	trapped atomic.Int64 // requests at an address that nobody may be sent to
	stopped atomic.Int64 // tools/call requests that the server itself never saw
}

func disableGrant(yaml string) string {
	return strings.Replace(yaml, "enabled: true\n        credential", "enabled: false\n        credential", 1)
}

// commit breaks the commit that carries a record of this kind, at this moment.
func (b *bench) commit(kind audit.Kind, at store.Moment) {
	f := func(now store.Moment, records []audit.Record) error {
		for _, r := range records {
			if r.Kind == kind && now == at {
				return errors.New("the disk is gone")
			}
		}
		return nil
	}
	b.tamper.Store(&f)
}

// edit replaces a text of the configuration and has the broker read it again.
func (b *bench) edit(old, new string) {
	b.t.Helper()
	b.must(b.Edit(func(yaml string) string {
		if !strings.Contains(yaml, old) {
			b.t.Fatalf("%q is not in the configuration", old)
		}
		return strings.Replace(yaml, old, new, 1)
	}))
}

// at answers requests of one JSON-RPC method with f, in the server's place or
// around it.
func (b *bench) at(method string, f func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	b.Records.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if devmcp.MethodOf(r) != method {
				next.ServeHTTP(w, r)
				return
			}
			passed := false
			defer func() {
				if !passed && method == "tools/call" {
					b.stopped.Add(1)
				}
			}()
			f(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed = true; next.ServeHTTP(w, r) }))
		})
	})
}

func cutBefore(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

func cutAfter(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

func status(code int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(code) }
}

func hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

const (
	subjects = "kv/data/broker/subjects"
	holds    = "cubbyhole/op/"
)

func brokenRows() []broken {
	short := brokertest.Call{Timeout: "300ms"}
	return []broken{
		{name: "nothing", brk: func(*bench) {},
			status: 200, state: "succeeded", retry: "never", hold: "dropped", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},

		// 1 ledger: known request key
		{name: "1 the key belongs to another request", call: brokertest.Call{Key: "k"},
			brk: func(b *bench) {
				b.Call(b.t, brokertest.Call{Key: "k", Tool: "fail"})
			}, status: 422, cause: "request_key_conflict", ledger: "tool_error"},

		// 2 policy
		{name: "2 policy says no", call: brokertest.Call{Actor: "user:8"}, brk: func(*bench) {}, status: 403, cause: "no_grant"},
		{name: "2 the audience is outside the grant's bounds", brk: func(b *bench) {
			b.edit("allowed_audiences: [mcp-records, mcp-archive]\n        allowed_scopes", "allowed_audiences: [mcp-archive]\n        allowed_scopes")
		}, status: 403, cause: "audience_not_allowed"},
		{name: "2 the scope is outside the grant's bounds", brk: func(b *bench) {
			b.edit("audience: mcp-records, scopes: [records.read]", "audience: mcp-records, scopes: [records.read, records.write]")
		}, status: 403, cause: "scope_not_allowed"},
		{name: "2 the server needs an approval", brk: func(b *bench) { b.edit("requires_approval: false", "requires_approval: true") },
			status: 202, state: "awaiting_approval", retry: "wait", ledger: "awaiting_approval"},
		{name: "2 the request trusts less than its caller", call: brokertest.Call{Zone: "externalGlobal"}, brk: func(*bench) {}, status: 403, cause: "zone_exceeded"},
		{name: "2 the arguments do not fit", call: brokertest.Call{Arguments: map[string]int{"x": 1}}, brk: func(b *bench) { imports(b.t, b.Rig, "records") },
			status: 400, cause: "arguments_invalid"},
		{name: "2 the run has had its calls", call: brokertest.Call{Run: "r"}, brk: func(b *bench) {
			b.edit("operation: {timeout: 5s}", "operation: {timeout: 5s, calls_per_run: 1}")
			b.Call(b.t, brokertest.Call{Run: "r", Key: "k"})
		}, status: 403, cause: "run_budget_spent", ledger: "succeeded", exchanges: 0},
		{name: "2 the hour has had its calls", brk: func(b *bench) {
			b.edit("operation: {timeout: 5s}", "operation: {timeout: 5s, calls_per_hour: 1}")
			b.Call(b.t, brokertest.Call{Key: "k"})
		}, status: 429, cause: "hour_budget_spent", ledger: "succeeded"},
		{name: "2 policy says no, and the denial cannot be written", call: brokertest.Call{Actor: "user:8"},
			brk: func(b *bench) { b.commit(audit.Denial, store.Committing) }, status: 503, cause: "store_failed"},

		// 3 ledger: Begin
		{name: "3 begin fails before", brk: func(b *bench) { b.commit(audit.Decision, store.Committing) }, status: 503, cause: "store_failed"},
		{name: "3 begin fails after it is on disk", brk: func(b *bench) { b.commit(audit.Decision, store.Committed) },
			status: 503, cause: "store_failed", ledger: "not_sent"},

		// 4 session: the budget
		{name: "4 the budget is spent before the first leg", call: brokertest.Call{Timeout: "1us"}, brk: func(*bench) {},
			status: 200, state: "not_sent", cause: "budget_spent", retry: "safe", ledger: "not_sent"},

		// 4 session: subject credential
		{name: "4 subject credential: Vault fails", brk: func(b *bench) { b.Vault.Fail("GET", subjects, -1, devvault.Failure{}) },
			status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", ledger: "not_sent"},
		{name: "4 subject credential: Vault is sealed", brk: func(b *bench) { b.Vault.Seal(true) },
			status: 200, state: "not_sent", cause: "vault_sealed", retry: "safe", ledger: "not_sent"},
		{name: "4 subject credential: Vault redirects", brk: func(b *bench) {
			b.Vault.Fail("GET", subjects, -1, devvault.Failure{Status: 307, Location: b.trap() + "/v1/x"})
		}, status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", ledger: "not_sent"},
		{name: "4 subject credential: the answer is lost", brk: func(b *bench) { b.Vault.Fail("GET", subjects, -1, devvault.Failure{After: true, Cut: true}) },
			status: 200, state: "not_sent", cause: "vault_unreachable", retry: "safe", ledger: "not_sent"},
		{name: "4 subject credential is no token", brk: func(b *bench) { b.must(b.SetCredential(b.t.Context(), "broker/subjects/7", "two words")) },
			status: 200, state: "not_sent", cause: "credential_rejected", retry: "safe", ledger: "not_sent"},

		// 4 session: exchange
		{name: "4 exchange: cut before", brk: func(b *bench) { b.Provider.Break(devidp.CutBefore) },
			status: 200, state: "not_sent", cause: "provider_unreachable", retry: "safe", ledger: "not_sent"},
		{name: "4 exchange: cut after it was issued", brk: func(b *bench) { b.Provider.Break(devidp.CutAfter) },
			status: 200, state: "not_sent", cause: "provider_unreachable", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: redirected", brk: func(b *bench) { b.Provider.Break(devidp.Redirect(b.trap())) },
			status: 200, state: "not_sent", cause: "provider_redirect", retry: "safe", ledger: "not_sent"},
		{name: "4 exchange: refused", brk: func(b *bench) { b.Provider.Break(devidp.Fail(1, 400, "invalid_target")) },
			status: 200, state: "not_sent", cause: "target_rejected", retry: "safe", ledger: "not_sent"},
		{name: "4 exchange: a token for another subject", brk: func(b *bench) { b.Provider.Alter(func(g *devidp.Grant) { g.Subject = "user:8" }) },
			status: 200, state: "not_sent", cause: "wrong_subject", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: a token for another audience", brk: func(b *bench) { b.Provider.Alter(func(g *devidp.Grant) { g.Audience = []string{"mcp-archive"} }) },
			status: 200, state: "not_sent", cause: "wrong_audience", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: a token for one audience more", brk: func(b *bench) {
			b.Provider.Alter(func(g *devidp.Grant) { g.Audience = append(g.Audience, "mcp-archive") })
		}, status: 200, state: "not_sent", cause: "wrong_audience", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: a wider scope", brk: func(b *bench) {
			b.Provider.Alter(func(g *devidp.Grant) { g.Scopes = append(g.Scopes, "records.write") })
		}, status: 200, state: "not_sent", cause: "scope_widened", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: a narrower scope", brk: func(b *bench) {
			b.must(b.Edit(func(y string) string {
				return strings.ReplaceAll(y, "scopes: [records.read]", "scopes: [records.read, records.write]")
			}))
			b.Provider.Alter(func(g *devidp.Grant) { g.Scopes = []string{"records.read"} })
		},
			status: 200, state: "not_sent", cause: "scope_narrowed", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: nobody stands for the actor", brk: func(b *bench) { b.Provider.Alter(func(g *devidp.Grant) { g.Actor = "someone" }) },
			status: 200, state: "not_sent", cause: "wrong_actor", retry: "safe", ledger: "not_sent", exchanges: 1},
		{name: "4 exchange: hangs", call: short, brk: func(b *bench) { b.Provider.Break(devidp.Hang) },
			status: 200, state: "not_sent", cause: "wall_clock", retry: "safe", ledger: "not_sent"},

		// 4 session: hold
		{name: "4 hold: fails before", brk: func(b *bench) { b.Vault.Fail("POST", holds, 1, devvault.Failure{}) },
			status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", hold: "pending", ledger: "not_sent", exchanges: 1},
		{name: "4 hold: fails after it is there", brk: func(b *bench) { b.Vault.Fail("POST", holds, 1, devvault.Failure{After: true}) },
			status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", hold: "pending", ledger: "not_sent", exchanges: 1},
		{name: "4 hold: the answer is lost", brk: func(b *bench) { b.Vault.Fail("POST", holds, 1, devvault.Failure{After: true, Cut: true}) },
			status: 200, state: "not_sent", cause: "vault_unreachable", retry: "safe", hold: "pending", ledger: "not_sent", exchanges: 1},

		// 5 mcpclient: the check before a leg
		{name: "5 check: Vault fails", brk: func(b *bench) { b.Vault.Fail("GET", holds, -1, devvault.Failure{}) },
			status: 200, state: "not_sent", cause: "vault_unexpected", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 check: the hold is gone", brk: func(b *bench) {
			b.Vault.Fail("GET", holds, -1, devvault.Failure{Status: 404, Body: `{"errors":[]}`})
		}, status: 200, state: "not_sent", cause: "hold_gone", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 check: another token is there", brk: func(b *bench) {
			b.Vault.Fail("GET", holds, -1, devvault.Failure{Status: 200, Body: `{"data":{"token":"someone-elses"}}`})
		}, status: 200, state: "not_sent", cause: "hold_changed", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 check: the answer is lost", brk: func(b *bench) { b.Vault.Fail("GET", holds, -1, devvault.Failure{After: true, Cut: true}) },
			status: 200, state: "not_sent", cause: "vault_unreachable", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 check: the grant is gone between the legs", brk: func(b *bench) {
			b.at("server/discover", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if err := b.Edit(disableGrant); err != nil {
					b.t.Error(err)
				}
				next.ServeHTTP(w, r)
			})
		}, status: 200, state: "not_sent", cause: "grant_revoked", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},

		// 5 mcpclient: a leg before the call
		{name: "5 discover: no server", brk: func(b *bench) { b.Records.Close() },
			status: 200, state: "not_sent", cause: "connect_failed", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 discover: refused", brk: func(b *bench) { b.at("server/discover", status(401)) },
			status: 200, state: "not_sent", cause: "unauthorized", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 discover: cut", brk: func(b *bench) { b.at("server/discover", cutAfter) },
			status: 200, state: "not_sent", cause: "connection_lost", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 discover: hangs", call: short, brk: func(b *bench) { b.at("server/discover", hang) },
			status: 200, state: "not_sent", cause: "wall_clock", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},

		// 5 mcpclient: Sending
		{name: "5 sending: refused by the ledger", brk: func(b *bench) { b.commit(audit.Sending, store.Applying) },
			status: 200, state: "not_sent", cause: "store_failed", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 sending: fails before", brk: func(b *bench) { b.commit(audit.Sending, store.Committing) },
			status: 200, state: "not_sent", cause: "store_failed", retry: "safe", hold: "dropped", ledger: "not_sent", exchanges: 1},
		{name: "5 sending: fails after it is on disk", brk: func(b *bench) { b.commit(audit.Sending, store.Committed) },
			status: 200, state: "not_sent", cause: "store_failed", retry: "safe", hold: "dropped", ledger: "unknown", exchanges: 1},

		// 5 mcpclient: the call
		{name: "5 call: refused", brk: func(b *bench) { b.at("tools/call", status(401)) },
			status: 200, state: "refused", cause: "unauthorized", retry: "safe", hold: "dropped", ledger: "refused", exchanges: 1, calls: 1},
		{name: "5 call: redirected", brk: func(b *bench) {
			b.at("tools/call", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				http.Redirect(w, r, b.trap(), http.StatusTemporaryRedirect)
			})
		}, status: 200, state: "refused", cause: "redirected", retry: "safe", hold: "dropped", ledger: "refused", exchanges: 1, calls: 1},
		{name: "5 call: cut before it ran", brk: func(b *bench) { b.at("tools/call", cutBefore) },
			status: 200, state: "unknown", cause: "connection_lost", retry: "never_without_looking", hold: "dropped", ledger: "unknown", exchanges: 1, calls: 1},
		{name: "5 call: cut after it ran", brk: func(b *bench) { b.at("tools/call", cutAfter) },
			status: 200, state: "unknown", cause: "connection_lost", retry: "never_without_looking", hold: "dropped", ledger: "unknown", exchanges: 1, ran: 1, calls: 1},
		{name: "5 call: 502 after it ran", brk: func(b *bench) {
			b.at("tools/call", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				next.ServeHTTP(httptest.NewRecorder(), r)
				w.WriteHeader(502)
			})
		}, status: 200, state: "unknown", cause: "intermediary", retry: "never_without_looking", hold: "dropped", ledger: "unknown", exchanges: 1, ran: 1, calls: 1},
		{name: "5 call: hangs", call: short, brk: func(b *bench) { b.at("tools/call", hang) },
			status: 200, state: "unknown", cause: "wall_clock", retry: "never_without_looking", hold: "dropped", ledger: "unknown", exchanges: 1, calls: 1},
		{name: "5 call: the tool fails", call: brokertest.Call{Tool: "fail"}, brk: func(*bench) {},
			status: 200, state: "tool_error", cause: "tool_failed", retry: "read_the_error", hold: "dropped", ledger: "tool_error", exchanges: 1, calls: 1},
		{name: "5 call: the answer holds the token", brk: func(b *bench) {
			b.at("tools/call", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				rec := httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
				w.Write(bytes.Replace(rec.Body.Bytes(), []byte("user:7"), []byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")), 1))
			})
		}, status: 200, state: "succeeded", cause: "secret_echoed", retry: "never", hold: "dropped", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},

		// 6 ledger: Finish
		{name: "6 finish fails before", brk: func(b *bench) { b.commit(audit.Outcome, store.Committing) },
			status: 200, state: "succeeded", retry: "never", hold: "dropped", ledger: "unknown", exchanges: 1, ran: 1, calls: 1},
		{name: "6 finish fails after it is on disk", brk: func(b *bench) { b.commit(audit.Outcome, store.Committed) },
			status: 200, state: "succeeded", retry: "never", hold: "dropped", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},

		// 7 session: Close
		{name: "7 drop fails before", brk: func(b *bench) { b.Vault.Fail("DELETE", holds, -1, devvault.Failure{}) },
			status: 200, state: "succeeded", retry: "never", hold: "pending", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},
		{name: "7 drop: the answer is lost", brk: func(b *bench) { b.Vault.Fail("DELETE", holds, -1, devvault.Failure{After: true, Cut: true}) },
			status: 200, state: "succeeded", retry: "never", hold: "pending", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},
		{name: "7 drop hangs", brk: func(b *bench) { b.Vault.Fail("DELETE", holds, 1, devvault.Failure{Hang: true}) },
			status: 200, state: "succeeded", retry: "never", hold: "pending", ledger: "succeeded", exchanges: 1, ran: 1, calls: 1},
	}
}

// TestEveryStepBroken breaks the path at every step, before and after it took
// effect, and looks at what the caller got, what the ledger says after a
// restart, what provider, Vault and server saw, and for secrets everywhere.
func TestEveryStepBroken(t *testing.T) {
	for _, row := range brokenRows() {
		t.Run(row.name, func(t *testing.T) {
			row.run(t)
		})
	}
}

func (row broken) run(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		b := &bench{t: t}
		b.Rig = brokertest.New(t, &brokertest.Options{Log: c.Writer(), Tamper: b.interfere, Config: row.conf})
		row.brk(b)
		before := b.counts()
		a := b.Call(t, row.call)
		c.Bytes("answer", a.Body)
		row.compare(b, a)
		b.Vault.Mend()
		b.must(b.Stop())
		if n := b.Vault.Residue(); n != 0 {
			t.Errorf("%d holds are left in Vault after the broker stopped", n)
		}
		row.counterparts(b, before)
		row.restart(b, c, a)
		c.Plant(b.Secrets()...)
	})
}

// compare looks at what the caller got.
func (row broken) compare(b *bench, a brokertest.Answer) {
	cause := a.Cause
	if row.state == "" {
		cause = a.Reason
	}
	got := fmt.Sprintf("%d %s %s %s %s", a.Status, a.State, cause, a.Retry, a.Hold)
	if want := fmt.Sprintf("%d %s %s %s %s", row.status, row.state, row.cause, row.retry, row.hold); got != want {
		b.t.Errorf("the caller got %q, want %q\n%s", got, want, a.Body)
	}
	if row.cause == "secret_echoed" && a.Result != nil {
		b.t.Error("a result that holds the token was handed out")
	}
	volatile := strings.HasPrefix(row.name, "6 ") || strings.HasPrefix(row.name, "5 sending: fails")
	if row.state != "" && volatile != (a.Durability == "volatile") {
		b.t.Errorf("durability: %q", a.Durability)
	}
	if row.hold == "dropped" && b.Vault.Residue() != 0 {
		b.t.Error("the answer says that the hold is dropped; it is there")
	}
}

// seen is what the counterparts saw.
type seen struct{ exchanges, ran, calls int }

func (b *bench) counts() seen {
	return seen{b.Provider.Exchanges(), b.Records.Calls("whoami"), b.Records.Arrived("tools/call") + int(b.stopped.Load())}
}

func (row broken) counterparts(b *bench, before seen) {
	now := b.counts()
	got := seen{now.exchanges - before.exchanges, now.ran - before.ran, now.calls - before.calls}
	if want := (seen{row.exchanges, row.ran, row.calls}); got != want {
		b.t.Errorf("provider and server saw %+v, want %+v", got, want)
	}
	if n := b.trapped.Load(); n != 0 {
		b.t.Errorf("a redirect was followed %d times", n)
	}
}

// restart opens what is on disk, as the next process does: the ledger's word,
// and the audit chain.
func (row broken) restart(b *bench, c *canary.Cage, a brokertest.Answer) {
	ctx := context.Background()
	s, err := store.Open(ctx, store.Config{Path: b.DatabasePath()})
	b.must(err)
	defer s.Close()
	l := ledger.New(s, ledger.Config{})
	_, _, err = l.Recover(ctx)
	b.must(err)
	jobs, err := l.List(ctx, "gateway", "user:7", time.Now().Add(-time.Hour), 10)
	b.must(err)
	state := ""
	if len(jobs) > 0 {
		state = string(jobs[0].Outcome.State)
	}
	if state != row.ledger || len(jobs) > 1 {
		b.t.Errorf("the ledger says %q (%d rows), want %q", state, len(jobs), row.ledger)
	}
	c.Bytes("audit", []byte(storetest.Audit(b.t, s)))
}

func (b *bench) interfere(at store.Moment, records []audit.Record) error {
	if f := b.tamper.Load(); f != nil {
		return (*f)(at, records)
	}
	return nil
}

// trap is an address that nobody may be sent to.
func (b *bench) trap() string {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { b.trapped.Add(1) }))
	b.t.Cleanup(s.Close)
	return s.URL
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}
