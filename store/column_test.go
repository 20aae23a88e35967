package store_test

import (
	"testing"
	"time"

	"onbehalf.internal/broker/store"
)

func TestTimesInColumns(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 1, time.UTC)
	for _, tc := range []struct {
		time time.Time
		ns   int64
		back time.Time
	}{
		{time.Time{}, 0, time.Time{}},
		{at, 1796040000000000001, at},
		{at.In(time.FixedZone("", 3600)), 1796040000000000001, at},
		{at.AddDate(-100, 0, 0), -1359720000000000000 + 1, at.AddDate(-100, 0, 0)},
	} {
		if ns := store.Nanoseconds(tc.time); ns != tc.ns || store.TimeOf(ns) != tc.back {
			t.Errorf("%v is %d, and back %v", tc.time, ns, store.TimeOf(ns))
		}
	}
}
