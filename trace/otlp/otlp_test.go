package otlp_test

import (
	"context"
	"net/http"
	"net/url"
	"runtime"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/internal/devotlp"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/trace"
	"onbehalf.internal/broker/trace/otlp"
)

func rig(t testing.TB) (*otlp.Exporter, *devotlp.Collector) {
	t.Helper()
	c, err := devotlp.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	u, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	e := otlp.New(otlp.Config{Collector: u, Version: "test", HTTP: egress.NewClient(egress.Host{URL: u, AnyAddress: true}, 1)})
	t.Cleanup(func() { e.Close(t.Context()) })
	return e, c
}

// over is an operation of ten spans.
func over() operation.Traced {
	now := time.Now()
	legs := make([]audit.Leg, 9)
	for i := range legs {
		legs[i] = audit.Leg{Name: "tools/call", Began: now, Took: time.Millisecond}
	}
	return operation.Traced{Kind: "call", ID: "abc", Legs: legs, At: trace.Context{}.Child(), Began: now, Ended: now.Add(time.Second)}
}

// most is how many spans wait at most.
const most = 4096

// TestBounds: whatever becomes of the collector, nobody waits for it, every span is
// sent or counted, and operations are taken whole or not at all.
func TestBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		status        int
		sent, dropped uint64 // in the end, of 1000 operations
	}{
		"answers":  {http.StatusOK, most - most%10, 10_000 - (most - most%10)},
		"refuses":  {http.StatusTooManyRequests, 0, 10_000},
		"is wrong": {http.StatusAccepted, 0, 10_000},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			e, c := rig(t)
			c.Break(func(w http.ResponseWriter, _ *http.Request) { <-release; w.WriteHeader(tc.status) })
			for range 1000 {
				e.Operation(over())
			}
			if e.Sent() != 0 || e.Dropped() != 10_000-(most-most%10) {
				t.Errorf("sent %d, dropped %d while the collector waits", e.Sent(), e.Dropped())
			}
			close(release)
			if left := e.Close(t.Context()); left != 0 || e.Sent() != tc.sent || e.Dropped() != tc.dropped {
				t.Errorf("sent %d, dropped %d, left %d; want %d, %d, 0", e.Sent(), e.Dropped(), left, tc.sent, tc.dropped)
			}
			e.Operation(over())
			if e.Dropped() != tc.dropped+10 {
				t.Errorf("%d dropped: an operation after the end is not counted", e.Dropped())
			}
		})
	}
}

// TestCloseIsBounded: a collector that does not answer costs a stop what it allows, and
// the request is broken off.
func TestCloseIsBounded(t *testing.T) {
	e, c := rig(t)
	gone := make(chan struct{})
	c.Break(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(gone) })
	e.Operation(over())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if left := e.Close(ctx); left != 10 {
		t.Errorf("%d spans were left, want 10", left)
	}
	select {
	case <-gone:
	case <-time.After(2 * time.Second): // a batch by itself may take 5 s
		t.Error("the request goes on")
	}
}

// TestRoomComesBack: what has been sent makes room again.
func TestRoomComesBack(t *testing.T) {
	e, c := rig(t)
	for range 2 {
		before := len(c.Spans())
		for range most / 10 {
			e.Operation(over())
		}
		if err := c.Await(t.Context(), func() bool { return len(c.Spans()) == before+most-most%10 }); err != nil {
			t.Fatal(err)
		}
		for e.Sent() != uint64(len(c.Spans())) { // the answer to the last batch is on its way
			runtime.Gosched()
		}
	}
	if e.Dropped() != 0 {
		t.Errorf("%d dropped", e.Dropped())
	}
}

// BenchmarkOperation is what an operation of ten spans costs its own goroutine.
func BenchmarkOperation(b *testing.B) {
	e, _ := rig(b)
	o := over()
	for b.Loop() {
		e.Operation(o)
	}
	b.ReportMetric(float64(e.Dropped())/float64(b.N), "dropped/op")
}
