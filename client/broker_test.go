package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/client"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
)

// of is a client of the rig's gateway, at address.
func of(t *testing.T, rig *brokertest.Rig, address string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Address: address, Bearer: func(context.Context) (string, error) { return rig.Bearer, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// between stands before the broker and passes requests on; the first POST it treats
// otherwise: passed says whether the broker gets it, and then how it is answered.
func between(t *testing.T, rig *brokertest.Rig, passed bool, then func(http.ResponseWriter)) (address string) {
	var posts atomic.Int32
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := r.Method == "POST" && posts.Add(1) == 1
		if first && !passed {
			then(w)
			return
		}
		req, _ := http.NewRequestWithContext(r.Context(), r.Method, rig.URL+r.URL.String(), r.Body)
		req.Header = r.Header
		res, err := testhttp.Client.Do(req)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer res.Body.Close()
		if first {
			then(w)
			return
		}
		for name := range res.Header {
			w.Header().Set(name, res.Header.Get(name))
		}
		w.WriteHeader(res.StatusCode)
		io.Copy(w, res.Body)
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	t.Cleanup(func() { s.Close() })
	return "http://" + ln.Addr().String()
}

// TestOnce: whatever stands between cuts, drops or answers, the tool runs once, and its answer
// comes.
func TestOnce(t *testing.T) {
	rig := brokertest.New(t, nil)
	hangUp := func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	status := func(code int) func(http.ResponseWriter) { return func(w http.ResponseWriter) { w.WriteHeader(code) } }
	for name, tc := range map[string]struct {
		passed bool
		then   func(http.ResponseWriter)
	}{
		"dropped after accepting":  {true, hangUp},
		"dropped before accepting": {false, hangUp},
		"502 after accepting":      {true, status(502)},
		"503 before accepting":     {false, status(503)},
		"429 before accepting":     {false, status(429)},
	} {
		t.Run(name, func(t *testing.T) {
			before := rig.Records.Calls("whoami")
			res, err := of(t, rig, between(t, rig, tc.passed, tc.then)).Run(t.Context(), client.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
			if err != nil || !strings.Contains(res.Text, "user:7") || res.Attempt != 1 {
				t.Errorf("%+v, %v", res, err)
			}
			if ran := rig.Records.Calls("whoami") - before; ran != 1 {
				t.Errorf("the tool ran %d times", ran)
			}
		})
	}
}

// TestDoubtIsTold: the server does its work and drops the connection. Nothing is repeated,
// neither by Run nor when it is called again with the same key.
func TestDoubtIsTold(t *testing.T) {
	rig := brokertest.New(t, nil)
	c := of(t, rig, rig.URL)
	call := client.Call{Actor: "user:7", Server: "records", Tool: "drop", Arguments: map[string]string{"job": "j"}}
	for range 2 {
		op, err := c.Run(t.Context(), call)
		e, _ := errors.AsType[*client.Error](err)
		if e == nil || op == nil || op.State != fault.InDoubt || op.Retry != fault.RetryLookFirst || e.Kind() != fault.Unknown || e.Open {
			t.Fatalf("%+v, %v", op, err)
		}
		call.Key, call.FirstSent = e.Key, e.FirstSent
	}
	if n := rig.Records.Done("j"); n != 1 {
		t.Errorf("the job was done %d times", n)
	}
}

// TestPasses: the server is not there for a moment; the same key runs when it is back.
func TestPasses(t *testing.T) {
	rig := brokertest.New(t, nil)
	var refused atomic.Int32
	rig.Records.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refused.Add(1) == 1 { // before a byte of the call: the handshake is cut
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	})
	op, err := of(t, rig, rig.URL).Run(t.Context(), client.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	if err != nil || op.Attempt != 2 || rig.Records.Calls("whoami") != 1 {
		t.Errorf("attempt %+v, %v, after %d calls", op, err, rig.Records.Calls("whoami"))
	}
}

// TestLook: retrieval by id, by key and in lists, a cancel, and what is not there.
func TestLook(t *testing.T) {
	rig := brokertest.New(t, nil)
	c := of(t, rig, rig.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := c.Run(ctx, client.Call{Actor: "user:7", Server: "records", Tool: "slow", Arguments: map[string]int{"seconds": 4}})
	e, _ := errors.AsType[*client.Error](err)
	if e == nil || !e.Open || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	op, err := c.ByKey(t.Context(), "user:7", e.Key, e.FirstSent)
	if err != nil || !op.State.Open() {
		t.Fatalf("%+v, %v", op, err)
	}
	if open, err := c.Open(t.Context()); err != nil || len(open) != 1 || open[0].ID != op.ID {
		t.Errorf("open: %+v, %v", open, err)
	}
	if _, err := c.Cancel(t.Context(), "user:7", op.ID); err != nil {
		t.Error(err)
	}
	if op, err = c.Wait(t.Context(), "user:7", op.ID); err != nil || op.State != fault.InDoubt || op.Cause != fault.CallerCancelled {
		t.Errorf("%+v, %v", op, err)
	}
	if got, err := c.Get(t.Context(), "user:7", op.ID); err != nil || got.State != op.State {
		t.Errorf("%+v, %v", got, err)
	}
	if list, err := c.List(t.Context(), "user:7"); err != nil || len(list) != 1 || list[0].RequestKey != e.Key {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = c.ByKey(t.Context(), "user:7", "another", time.Now())
	if e, _ := errors.AsType[*client.Error](err); e == nil || e.Reason != fault.OperationNotFound || !e.NeverSent {
		t.Errorf("%v", err)
	}
	_, err = c.ByKey(t.Context(), "user:7", "another", time.Time{})
	if e, _ := errors.AsType[*client.Error](err); e == nil || e.Kind() != fault.NotFound || e.NeverSent {
		t.Errorf("%v", err)
	}
}

// TestSigned: the actor by an assertion, a new one for each request, and a bearer that is
// asked for each time.
func TestSigned(t *testing.T) {
	rig := brokertest.New(t, nil)
	signed := 0
	c, err := client.New(client.Config{Address: rig.URL, Bearer: func(context.Context) (string, error) { return rig.PortalBearer(), nil },
		Assertion: func(_ context.Context, actor string) (string, error) { signed++; return rig.Assert(actor), nil }})
	if err != nil {
		t.Fatal(err)
	}
	op, err := c.Run(t.Context(), client.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = c.Get(t.Context(), "user:7", op.ID); err != nil || signed != 2 {
		t.Errorf("%v after %d assertions", err, signed)
	}
}

// TestApproval: a person says yes, and the same key makes the call.
func TestApproval(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: brokertest.Approving})
	c := of(t, rig, rig.URL)
	call := client.Call{Actor: "user:7", Server: "records", Tool: "whoami"}
	op, err := c.Run(t.Context(), call)
	if err == nil || op == nil || op.State != fault.AwaitingApproval {
		t.Fatalf("%+v, %v", op, err)
	}
	rig.Decide(t, rig.Get(t, "/v1/operations/"+op.ID, brokertest.Call{}), "approve")
	if op, err = c.Wait(t.Context(), "user:7", op.ID); err != nil || op.Approval.Decision != "approved" {
		t.Fatalf("%+v, %v", op, err)
	}
	call.Key, call.FirstSent = op.RequestKey, op.FirstSent
	if op, err = c.Run(t.Context(), call); err != nil || rig.Records.Calls("whoami") != 1 {
		t.Errorf("%+v, %v", op, err)
	}
}
