package mcpclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// afterHead begins a stream at once and ends it with message when d has gone by.
func afterHead(d time.Duration, message string) answer {
	return func(w http.ResponseWriter, q question) {
		raw("text/event-stream", ": at it\n\n")(w, q)
		w.(http.Flusher).Flush()
		select {
		case <-time.After(d):
			io.WriteString(w, "data: "+strings.ReplaceAll(message, "$ID", q.id)+"\n\n")
		case <-q.gone:
		}
	}
}

// TestLate: a call of 2 s, whose answer is read for 10 s more. The caller hears at
// its deadline, or when the idle window of 1 s is over, and the answer counts when
// it says what became of the call.
func TestLate(t *testing.T) {
	const s = time.Second
	reply := `{"jsonrpc":"2.0","id":"$ID","result":` + good + `}`
	peer := func(state fault.State, ran fault.Ran, cause fault.Reason) *fault.Outcome {
		return &fault.Outcome{State: state, Ran: ran, Evidence: fault.EvidencePeer, Cause: cause}
	}
	late := peer(fault.Succeeded, fault.RanYes, fault.None)
	for _, r := range []struct {
		name   string
		call   answer
		idle   time.Duration
		cut    fault.Reason   // "": it is answered in time
		late   *fault.Outcome // nil: nothing came of it
		result string
		ends   time.Duration // of the drain, from the beginning
	}{
		{"in time", after(s, result(good)), 0, "", nil, "", 0},
		{"late", after(5*s, result(good)), 0, fault.WallClock, late, good, 5 * s},
		{"late, after a head in time", afterHead(5*s, reply), 0, fault.WallClock, late, good, 5 * s},
		{"idle, and an answer before the deadline", after(3*s/2, result(good)), s, fault.Idle, late, good, 3 * s / 2},
		{"idle, and an answer after the deadline", after(5*s, result(good)), s, fault.Idle, late, good, 5 * s},
		{"idle within a stream", afterHead(5*s, reply), s, fault.Idle, late, good, 5 * s},
		{"the last moment", after(12*s-1, result(good)), 0, fault.WallClock, late, good, 12*s - 1},
		{"too late", after(12*s+1, result(good)), 0, fault.WallClock, nil, "", 12 * s},
		{"the tool has failed", after(5*s, result(`{"content":[],"isError":true}`)), 0, fault.WallClock, peer(fault.ToolError, fault.RanYes, fault.ToolFailed), `{"content":[],"isError":true}`, 5 * s},
		{"a JSON-RPC error", after(5*s, rpcError(`{"code":-32603,"message":"no"}`)), 0, fault.WallClock, peer(fault.RPCError, fault.RanUnknown, fault.ServerError), `{"code":-32603,"message":"no"}`, 5 * s},
		{"our token", after(5*s, result(`{"content":[{"type":"text","text":"`+token+`"}]}`)), 0, fault.WallClock, peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed), "", 5 * s},
		{"401", after(5*s, status(401, "")), 0, fault.WallClock, nil, "", 5 * s},
		{"502", after(5*s, status(502, "")), 0, fault.WallClock, nil, "", 5 * s},
		{"another id", after(5*s, raw("application/json", strings.ReplaceAll(reply, "$ID", "other"))), 0, fault.WallClock, nil, "", 5 * s},
		{"the connection is cut", after(5*s, cut("HTTP/1.1 200")), 0, fault.WallClock, nil, "", 5 * s},
	} {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := modern(r.call)
				talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, server).Dial}).Open(declare(t, "http://mcp.test/mcp", policy.EraModern))
				defer talk.Close()
				patient := search
				patient.Idle, patient.Drain = r.idle, 10*s
				began := time.Now()
				rep := talk.CallTool(within(t, 2*s), patient, open())
				if rep.Draining != (r.cut != "") || r.cut != "" && rep.Outcome != fault.Doubt(r.cut) || rep.Result != nil && r.cut != "" {
					t.Fatalf("the caller hears %+v, draining %v, want %q", rep.Outcome, rep.Draining, r.cut)
				}
				if told, want := time.Since(began), map[fault.Reason]time.Duration{"": s, fault.Idle: s, fault.WallClock: 2 * s}[r.cut]; told != want {
					t.Errorf("the caller hears after %v, want %v", told, want)
				}
				got, answered := talk.Late(context.Background())
				switch {
				case answered != (r.late != nil):
					t.Fatalf("answered %v: %+v", answered, got)
				case answered && (got.Outcome != *r.late || string(got.Result) != r.result || len(got.Legs) != 1 || got.Legs[0].Name != "drain"):
					t.Errorf("%+v, %s, legs %+v\nwant %+v, %s", got.Outcome, got.Result, got.Legs, *r.late, r.result)
				}
				if took := time.Since(began); r.cut != "" && took != r.ends {
					t.Errorf("the drain ended after %v, want %v", took, r.ends)
				}
				if _, again := talk.Late(context.Background()); again || server.count(toolsCall) != 1 {
					t.Errorf("answered again: %v, %d calls", again, server.count(toolsCall))
				}
			})
		})
	}
}

// TestNothingIsDrained: who gives the call up, or has said that nothing is drained,
// or closes, has hung up.
func TestNothingIsDrained(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, talk *mcpclient.Conversation, server *script){
		"no window": func(t *testing.T, talk *mcpclient.Conversation, _ *script) {
			if rep := talk.CallTool(within(t, time.Second), search, open()); rep.Draining || rep.Outcome != fault.Doubt(fault.WallClock) {
				t.Errorf("%+v", rep)
			}
		},
		"given up": func(t *testing.T, talk *mcpclient.Conversation, _ *script) {
			ctx, cancel := context.WithCancelCause(within(t, time.Hour))
			time.AfterFunc(time.Second, func() { cancel(fault.New("test", fault.BrokerStopping, "")) })
			if rep := talk.CallTool(ctx, patient(), open()); rep.Draining || rep.Outcome != fault.Doubt(fault.BrokerStopping) {
				t.Errorf("%+v", rep)
			}
		},
		"closed": func(t *testing.T, talk *mcpclient.Conversation, _ *script) {
			talk.CallTool(within(t, time.Second), patient(), open())
			talk.Close()
		},
		"the drain is given up": func(t *testing.T, talk *mcpclient.Conversation, _ *script) {
			talk.CallTool(within(t, time.Second), patient(), open())
			ctx, cancel := context.WithCancelCause(context.Background())
			time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
			if rep, answered := talk.Late(ctx); answered {
				t.Errorf("%+v", rep)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan time.Time, 1)
				server := modern(func(_ http.ResponseWriter, q question) { <-q.gone; gone <- time.Now() })
				talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, server).Dial}).Open(declare(t, "http://mcp.test/mcp", policy.EraModern))
				defer talk.Close()
				began := time.Now()
				end(t, talk, server)
				if took := (<-gone).Sub(began); took > 2*time.Second {
					t.Errorf("the server sees it after %v", took)
				}
			})
		})
	}
}

func patient() mcpclient.Call {
	call := search
	call.Drain = time.Minute
	return call
}

// TestDrainOnlyReads: while an answer may still come, a legacy server is told
// neither that the call is off nor that the session is over, and its ping is not
// answered: no credential is asked for after the deadline.
func TestDrainOnlyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := withFarewell(func(w http.ResponseWriter, q question) {
			raw("text/event-stream", ": at it\n\n")(w, q)
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Second)
			io.WriteString(w, "data: "+`{"jsonrpc":"2.0","id":7,"method":"ping"}`+"\n\n")
			w.(http.Flusher).Flush()
			time.Sleep(5 * time.Second)
			io.WriteString(w, "data: "+`{"jsonrpc":"2.0","id":"`+q.id+`","result":`+good+"}\n\n")
		})
		talk := mcpclient.New(mcpclient.Config{Dial: testhttp.OnPipes(t, server).Dial}).Open(declare(t, "http://mcp.test/mcp", policy.EraLegacy))
		defer talk.Close()
		deadline := time.Now().Add(2 * time.Second)
		gate := open()
		credential := gate.Credential
		gate.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
			if !time.Now().Before(deadline) {
				t.Errorf("a credential is asked for after the deadline, for %s", leg)
			}
			return credential(ctx, leg)
		}
		rep := talk.CallTool(within(t, 2*time.Second), patient(), gate)
		legs := talk.Farewell(context.Background(), gate)()
		if !rep.Draining || legs != nil {
			t.Fatalf("%+v, farewell %v", rep, legs)
		}
		if got, answered := talk.Late(context.Background()); !answered || got.Outcome.State != fault.Succeeded {
			t.Errorf("%+v", got)
		}
		if n := server.count(cancelled) + server.count(deletion) + server.count("POST"); n != 0 {
			t.Errorf("the server was told something: %q", server.methods())
		}
	})
}
