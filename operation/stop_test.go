package operation_test

import (
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// TestCutAtTheDisk: an operation that is about to send when the broker stops, and
// the disk is busy. Whether "sending" was withdrawn or is on disk by then,
// nothing has left, and the next process need not wonder.
func TestCutAtTheDisk(t *testing.T) {
	for _, busyWith := range []audit.Kind{audit.Sending, audit.Denial} {
		t.Run(string(busyWith), func(t *testing.T) {
			busy, free := make(chan struct{}), make(chan struct{})
			rig := brokertest.New(t, &brokertest.Options{Tamper: func(at store.Moment, records []audit.Record) error {
				if at == store.Applying && len(records) == 1 && records[0].Kind == busyWith {
					close(busy)
					<-free
				}
				return nil
			}})
			release := rig.Records.Hold("server/discover")
			call := start(t, rig, brokertest.Call{})
			until(t, func() bool { return rig.Records.Arrived("server/discover") == 1 })
			var denied <-chan brokertest.Answer
			if busyWith == audit.Denial {
				denied = start(t, rig, brokertest.Call{Actor: "user:8"})
				<-busy
			}
			release()
			if busyWith == audit.Sending {
				<-busy
			} else { // it has been checked for tools/call, and comes to the disk next
				until(t, func() bool { return rig.Vault.Count("GET", holds) == 2 })
			}
			stopped := make(chan error, 1)
			go func() { stopped <- rig.Stop() }()
			rig.Broker.Hasten()
			until(t, func() bool { return strings.Contains(rig.Log(), "drain budget spent") })
			close(free)
			if a := <-call; a.State != fault.NotSent || a.Cause != fault.BrokerStopping || a.Hold != "dropped" || a.Durability != "durable" {
				t.Errorf("%s", a.Body)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if denied != nil {
				<-denied
			}
			if n := rig.Records.Arrived("tools/call"); n != 0 {
				t.Errorf("%d calls left", n)
			}
		})
	}
}

// start makes a call that is waited for.
func start(t *testing.T, rig *brokertest.Rig, c brokertest.Call) <-chan brokertest.Answer {
	got := make(chan brokertest.Answer, 1)
	go func() {
		a, err := rig.Do(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	return got
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it did not come to that")
		}
	}
}
