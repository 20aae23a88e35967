package operation

import (
	"testing"

	"onbehalf.internal/broker/fault"
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
