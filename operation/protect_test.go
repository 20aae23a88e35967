package operation

import (
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/strictjson"
)

// TestPanicIsAnOutcome: a defect of ours ends an operation like any other
// fault, and never as "safe" once the call may have left.
func TestPanicIsAnOutcome(t *testing.T) {
	for _, tc := range []struct {
		sent bool
		want fault.Outcome
	}{
		{false, fault.NotSentBecause(fault.InternalError)},
		{true, fault.Doubt(fault.InternalError)},
	} {
		w := &work{}
		got, result := w.protect(func() (fault.Outcome, strictjson.Raw) {
			w.sent = tc.sent
			panic("a defect")
		})
		if got != tc.want || result != nil {
			t.Errorf("sent %t: %+v, want %+v", tc.sent, got, tc.want)
		}
	}
	good := fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
	if got, result := new(work).protect(func() (fault.Outcome, strictjson.Raw) { return good, strictjson.Raw("{}") }); got != good || result == nil {
		t.Errorf("nothing broke: %+v", got)
	}
}

// TestDrainsAreBounded: what there is no room to wait for is not said to be waited
// for, and one that could not be written is not waited for either.
func TestDrainsAreBounded(t *testing.T) {
	r := New(Config{Now: time.Now})
	draining := func(a Answer) *work {
		w := &work{draining: true, call: mcpclient.Call{Drain: time.Minute}, ended: make(chan struct{})}
		r.end(w, a, "")
		return w
	}
	if w := draining(Answer{Volatile: true}); w.draining || !w.answer.DrainsUntil.IsZero() {
		t.Error("an answer that is not on disk")
	}
	for range maxDrains {
		if w := draining(Answer{}); !w.draining || w.answer.DrainsUntil.IsZero() {
			t.Fatal("there is room")
		}
	}
	if w := draining(Answer{}); w.draining || !w.answer.DrainsUntil.IsZero() {
		t.Error("there is no room")
	}
}

// TestPanicBesideTheLegs: nor does one take the process down, and the other
// operations with it, where no leg is run.
func TestPanicBesideTheLegs(t *testing.T) {
	w := &work{ctx: t.Context()} // dialling with no conversation is one
	dialled := make(chan struct{})
	go func() {
		defer close(dialled)
		w.dial()
	}()
	<-dialled
}
