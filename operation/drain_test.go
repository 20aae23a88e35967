package operation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/store"
)

// A busy server works on tools/call until it may answer, and sees who hangs up.
type busy struct {
	arrived chan struct{} // one for each call
	finish  chan struct{}
	gone    chan struct{} // one for each caller that hung up before
}

func keepBusy(server *devmcp.Server) *busy {
	h := &busy{make(chan struct{}, 16), make(chan struct{}), make(chan struct{}, 16)}
	server.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if devmcp.MethodOf(r) == "tools/call" {
				h.arrived <- struct{}{}
				select {
				case <-h.finish:
				case <-r.Context().Done():
					h.gone <- struct{}{}
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	})
	return h
}

// becomes asks for the operation with key until it is as wanted.
func becomes(t *testing.T, rig *brokertest.Rig, key string, wanted func(brokertest.Answer) bool) brokertest.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		a, err := rig.Look(ctx, "/v1/operations?request_key="+key, brokertest.Call{})
		if err != nil {
			t.Fatalf("it never came: %v", err)
		}
		if wanted(a) {
			return a
		}
	}
}

func isLate(a brokertest.Answer) bool { return a.Late }

// kinds are the kinds of the audit's records about the operation, in order.
func kinds(t *testing.T, rig *brokertest.Rig, id string) (all string) {
	t.Helper()
	for line := range strings.Lines(rig.Audit(t)) {
		var r struct {
			Kind      audit.Kind
			Operation string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Operation == id {
			all += string(r.Kind) + " "
		}
	}
	return all
}

// TestLateAnswer: the caller hears at its deadline that the call is in doubt, with
// the hold dropped, and until when the answer may still come. It lands in the
// ledger, and whoever asks again gets it, also after a restart. The tool ran once.
func TestLateAnswer(t *testing.T) {
	for _, name := range []string{"records", "archive"} {
		t.Run(name, func(t *testing.T) {
			canary.Run(t, func(c *canary.Cage) {
				rig := brokertest.New(t, nil)
				server := eras(rig)[name]
				c.Plant(append(rig.Secrets(), rig.Provider.Issued()...)...)
				busy := keepBusy(server)
				call := brokertest.Call{Server: name, Tool: "slow", Arguments: map[string]int{"seconds": 0}, Key: "k", Timeout: "700ms"}
				a := begin(t, rig, call)
				if want := "200 unknown, ran unknown by none, never_without_looking, wall_clock; look with nothing"; told(a) != want || a.Late || a.Hold != "dropped" {
					t.Fatalf("%s", a.Body)
				}
				if d := a.DrainsUntil.Sub(a.Updated); d < 4*time.Minute || d > 6*time.Minute {
					t.Errorf("the answer may come for %v, want 5m", d)
				}
				if meanwhile := rig.Get(t, "/v1/operations/"+a.ID, brokertest.Call{}); told(meanwhile) != told(a) || meanwhile.DrainsUntil.IsZero() {
					t.Errorf("meanwhile: %s", meanwhile.Body)
				}
				ran, said := rig.Admin(t, "POST", "/v1/operations/"+a.ID+"/resolve", fmt.Sprintf(`{"attempt":%d,"ran":"no","reason":"x"}`, a.Attempt), nil), fault.NotInDoubt
				if ran.Reason != said || !strings.Contains(ran.Detail, "may still come") {
					t.Errorf("resolve: %+v", ran)
				}
				close(busy.finish)
				got := becomes(t, rig, "k", isLate)
				if got.State != fault.Succeeded || got.Retry != fault.RetryNever || !got.DrainsUntil.IsZero() || got.Result == nil || !got.Updated.After(a.Updated) || got.Hold != "dropped" {
					t.Errorf("%s", got.Body)
				}
				var all struct{ Servers []httpapi.Server }
				rig.Admin(t, "GET", "/v1/servers", "", &all)
				if s := all.Servers[slices.IndexFunc(all.Servers, func(s httpapi.Server) bool { return s.ID == name })]; s.Health.Contact.IsZero() || s.Health.Latency < 100 {
					t.Errorf("the answer is no contact: %+v", s.Health)
				}
				if !strings.Contains(got.LegNames(), "tools/call drop drain") && !strings.Contains(got.LegNames(), "tools/call drain drop") {
					t.Errorf("legs %s", got.LegNames())
				}
				if repeat := rig.Call(t, call); string(repeat.Result) != string(got.Result) || repeat.ID != a.ID || server.Calls("slow") != 1 {
					t.Errorf("the repeat: %s", repeat.Body)
				}
				if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
					t.Fatal(err)
				}
				after := rig.Get(t, "/v1/operations/"+a.ID, brokertest.Call{})
				if string(after.Result) != string(got.Result) || !after.Late {
					t.Errorf("after a restart: %s", after.Body)
				}
				if err := rig.Stop(); err != nil {
					t.Fatal(err)
				}
				if got := kinds(t, rig, a.ID); got != strings.Repeat("decision outcome ", a.Attempt-1)+"decision sending outcome drop late " {
					t.Errorf("the audit has %s", got)
				}
				c.Bytes("answers", append(append(a.Body, got.Body...), after.Body...))
				c.Bytes("log", []byte(rig.Log()))
			})
		})
	}
}

// TestLateIsWithheld: who has no grant any more hears how it ended, and not what.
func TestLateIsWithheld(t *testing.T) {
	rig := brokertest.New(t, nil)
	busy := keepBusy(rig.Records)
	begin(t, rig, brokertest.Call{Tool: "slow", Key: "k", Timeout: "700ms"})
	if err := rig.Edit(disableGrant); err != nil {
		t.Fatal(err)
	}
	close(busy.finish)
	if got := becomes(t, rig, "k", isLate); got.State != fault.Succeeded || got.Result != nil || got.Withheld != fault.GrantRevoked {
		t.Errorf("%s", got.Body)
	}
}

// TestDrainEndsWithoutAnswer: by the caller's wish, by the stop of the broker, by
// the end of the window. The server sees that nobody listens, and the doubt stays.
func TestDrainEndsWithoutAnswer(t *testing.T) {
	windows := func(window string) func(string) string {
		return func(yaml string) string {
			return strings.ReplaceAll(yaml, "slow: {enabled: true}", "slow: {enabled: true, drain_window: "+window+"}") + "stop: {drain: 100ms}\n"
		}
	}
	for name, tc := range map[string]struct {
		window string
		end    func(t *testing.T, rig *brokertest.Rig, a brokertest.Answer)
	}{
		"cancel": {"5m", func(t *testing.T, rig *brokertest.Rig, a brokertest.Answer) {
			if b := rig.Cancel(t, a.ID, brokertest.Call{}); told(b) != told(a) {
				t.Errorf("%s", b.Body)
			}
		}},
		"the broker stops": {"5m", func(t *testing.T, rig *brokertest.Rig, _ brokertest.Answer) {
			if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
		}},
		"the window": {"200ms", func(*testing.T, *brokertest.Rig, brokertest.Answer) {}},
	} {
		t.Run(name, func(t *testing.T) {
			rig := brokertest.New(t, &brokertest.Options{Config: windows(tc.window)})
			busy := keepBusy(rig.Records)
			a := begin(t, rig, brokertest.Call{Tool: "slow", Key: "k", Timeout: "700ms"})
			tc.end(t, rig, a)
			<-busy.gone
			over := becomes(t, rig, "k", func(a brokertest.Answer) bool { return a.DrainsUntil.IsZero() })
			if over.State != fault.InDoubt || over.Cause != fault.WallClock || over.Late {
				t.Errorf("%s", over.Body)
			}
			ran := rig.Admin(t, "POST", "/v1/operations/"+a.ID+"/resolve", fmt.Sprintf(`{"attempt":%d,"ran":"no","reason":"x"}`, a.Attempt), nil)
			if ran.Status != 200 {
				t.Errorf("resolve: %+v", ran)
			}
		})
	}
}

// TestLateAnswerCannotBeWritten: it is told all the same, and says that it is not
// on disk.
func TestLateAnswerCannotBeWritten(t *testing.T) {
	var broken atomic.Bool
	rig := brokertest.New(t, &brokertest.Options{Tamper: func(at store.Moment, records []audit.Record) error {
		for _, r := range records {
			if r.Kind == audit.Late && at == store.Committing && broken.CompareAndSwap(false, true) {
				return errors.New("the disk is gone")
			}
		}
		return nil
	}})
	busy := keepBusy(rig.Records)
	call := brokertest.Call{Tool: "slow", Key: "k", Timeout: "700ms"}
	begin(t, rig, call)
	close(busy.finish)
	a := becomes(t, rig, "k", isLate)
	if a.State != fault.Succeeded || a.Durability != "volatile" || a.Result == nil {
		t.Errorf("%s", a.Body)
	}
	if b := rig.Call(t, call); b.Durability != "volatile" || rig.Records.Calls("slow") != 1 {
		t.Errorf("%s", b.Body)
	}
}

// TestLateAfterAnotherAttempt: where the server honours keys, a doubtful call may be
// made again while its answer may still come. The later attempt is what is told.
func TestLateAfterAnotherAttempt(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return strings.ReplaceAll(keyed(yaml), "drop: {enabled: true, ", "drop: {enabled: true, effect: write, ")
	}})
	if err := rig.Edit(func(yaml string) string { return strings.ReplaceAll(yaml, "drain_window: 0s", "drain_window: 1m") }); err != nil {
		t.Fatal(err)
	}
	busy := keepBusy(rig.Records)
	call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"then": "invalid"}, Key: "k", Timeout: "700ms"}
	first := begin(t, rig, call)
	if first.Retry != fault.RetrySafe || first.DrainsUntil.IsZero() {
		t.Fatalf("%s", first.Body)
	}
	call.Timeout = ""
	again := start(t, rig, call)
	for range first.Attempt + 1 {
		<-busy.arrived
	}
	close(busy.finish)
	if b := <-again; b.ID != first.ID || b.Attempt != first.Attempt+1 || b.State != fault.RPCError || b.Late {
		t.Errorf("%s", b.Body)
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := kinds(t, rig, first.ID); strings.Contains(got, "late") {
		t.Errorf("the audit has %s", got)
	}
}

// TestCallerDisconnects: what becomes of an operation whose callers have hung up is
// the operator's to say. It ends when the last of them has gone; one that was told
// to come back has not, and a broker that stops hangs up itself.
func TestCallerDisconnects(t *testing.T) {
	const cancels = "slow: {enabled: true, on_caller_disconnect: cancel}"
	call := brokertest.Call{Tool: "slow", Key: "k"}
	async := call
	async.Wait = "0s"
	for _, tc := range []struct {
		name   string
		config string
		during string // what is held up: "exchange" or "tools/call"
		also   func(t *testing.T, rig *brokertest.Rig, hangUp func())
		want   string
	}{
		{"it is detached", "slow: {enabled: true}", "tools/call", nil, "succeeded "},
		{"it ends after it was sent", cancels, "tools/call", nil, "unknown caller_disconnected"},
		{"it ends before it was sent", cancels, "exchange", nil, "not_sent caller_disconnected"},
		{"another follows", cancels, "tools/call", func(t *testing.T, rig *brokertest.Rig, hangUp func()) { follow(t, rig, call); hangUp() }, "succeeded "},
		{"another was told to come back", cancels, "tools/call", func(t *testing.T, rig *brokertest.Rig, hangUp func()) { rig.Call(t, async); hangUp() }, "succeeded "},
		{"both have gone", cancels, "tools/call", func(t *testing.T, rig *brokertest.Rig, hangUp func()) {
			other := follow(t, rig, call)
			hangUp()
			other()
		}, "unknown caller_disconnected"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
				return strings.ReplaceAll(yaml, "slow: {enabled: true}", tc.config)
			}})
			busy := keepBusy(rig.Records)
			arrived := make(chan struct{}, 1)
			rig.Provider.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tc.during == "exchange" {
						arrived <- struct{}{}
						<-r.Context().Done()
					}
					next.ServeHTTP(w, r)
				})
			})
			ctx, hangUp := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { _, err := rig.Do(ctx, call); left <- err }()
			if tc.during == "exchange" {
				<-arrived
			} else {
				<-busy.arrived
			}
			if tc.also == nil {
				hangUp()
			} else {
				tc.also(t, rig, hangUp)
			}
			if err := <-left; err == nil {
				t.Fatal("it was answered")
			}
			if strings.HasPrefix(tc.want, "succeeded") {
				close(busy.finish)
			}
			got := becomes(t, rig, "k", func(a brokertest.Answer) bool { return !a.State.Open() })
			if string(got.State)+" "+string(got.Cause) != tc.want || !got.DrainsUntil.IsZero() {
				t.Errorf("want %s: %s", tc.want, got.Body)
			}
			if tc.want == "unknown caller_disconnected" {
				<-busy.gone
			}
		})
	}
}
