package main

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devvault"
)

// stand starts a rig over the dev Vault, behind a counter.
func stand(t *testing.T) (wire, *vault) {
	t.Helper()
	dev := devvault.New(devvault.Options{})
	address, err := dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	c, err := startCounter(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	rig := brokertest.New(t, &brokertest.Options{Vault: c.address, VaultToken: dev.RootToken()})
	return wire{c, rig}, &vault{address: c.address, root: dev.RootToken()}
}

// TestFloorMakesWhatTheBrokerMakes holds what the ratios rest on, and the
// numbers of the design with it.
func TestFloorMakesWhatTheBrokerMakes(t *testing.T) {
	w, v := stand(t)
	for _, row := range []struct {
		era  string
		want counts
	}{
		{"modern", counts{"provider POST /oauth/token": 1, "vault GET kv/data/broker/subjects/7": 1, "vault POST cubbyhole/op/…": 1,
			"vault GET cubbyhole/op/…": 1, "vault DELETE cubbyhole/op/…": 1, "records POST tools/call": 1}},
		{"legacy", counts{"provider POST /oauth/token": 1, "vault GET kv/data/broker/subjects/7": 1, "vault POST cubbyhole/op/…": 1,
			"vault GET cubbyhole/op/…": 4, "vault DELETE cubbyhole/op/…": 1,
			"archive POST initialize": 1, "archive POST notifications/initialized": 1, "archive POST tools/call": 1,
			"archive DELETE": 1}},
	} {
		f, err := newFloor(t.Context(), v, w.rig, row.era)
		if err != nil {
			t.Fatal(err)
		}
		defer f.close()
		got, err := w.countWires(t.Context(), f, row.era)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Broker, row.want) {
			t.Errorf("%s: one operation makes %v, want %v", row.era, got.Broker, row.want)
		}
	}
}

// TestDriveStops: by count, and a wrong answer is counted and not timed.
func TestDriveStops(t *testing.T) {
	wrong := errors.New("wrong")
	for _, callers := range []int{1, 16} {
		r := drive(t.Context(), callers, bound{time.Minute, 100}, func(context.Context) error { return nil })
		if len(r.latencies) != 100 || r.wrong != 0 || r.why != nil {
			t.Errorf("%d callers: %d right, %d wrong, %v", callers, len(r.latencies), r.wrong, r.why)
		}
		r = drive(t.Context(), callers, bound{time.Minute, 100}, func(context.Context) error { return wrong })
		if len(r.latencies) != 0 || r.wrong != 100 || r.why != wrong {
			t.Errorf("%d callers: %d right, %d wrong, %v", callers, len(r.latencies), r.wrong, r.why)
		}
	}
}

// TestFloorFails: an answer that is not the right one is an error.
func TestFloorFails(t *testing.T) {
	w, v := stand(t)
	f, err := newFloor(t.Context(), v, w.rig, "modern")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	f.epoch += "x"
	if err := f.operation(t.Context()); err == nil {
		t.Error("an epoch that there is not held a token")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-cases", "modern"}, {"-cases", "modern/0"}, {"-cases", "future/1"}, {"-cases", ""}, {"-cases", "modern/1,"},
		{"-rounds", "0"}, {"-time", "31s"}, {"-time", "0s"}, {"-operations", "0"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	o, err := parse([]string{"-cases", "modern/1,legacy/64"})
	if err != nil || len(o.cases) != 2 || o.cases[1] != (load{"legacy", 64}) {
		t.Errorf("%+v, %v", o, err)
	}
}
