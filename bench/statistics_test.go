package main

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, row := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{7}, 50, 7},
		{[]time.Duration{7}, 99, 7},
		{[]time.Duration{1, 2}, 50, 1},
		{[]time.Duration{1, 2}, 51, 2},
		{[]time.Duration{1, 2, 3}, 50, 2},
		{hundred, 0, 1},
		{hundred, 50, 50},
		{hundred, 95, 95},
		{hundred, 99, 99},
		{hundred, 99.1, 100},
		{hundred, 100, 100},
	} {
		if got := percentile(row.sorted, row.p); got != row.want {
			t.Errorf("percentile %v of %d values is %d, want %d", row.p, len(row.sorted), got, row.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, row := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := median(row.values); got != row.want {
			t.Errorf("median of %v is %v, want %v", row.values, got, row.want)
		}
	}
}

// A slow round weighs as much as it lasted, and as many operations as it had.
func TestSummaryPoolsRounds(t *testing.T) {
	got := summary([]round{
		{took: time.Second, latencies: []time.Duration{2 * time.Millisecond, time.Millisecond}},
		{took: 3 * time.Second, latencies: []time.Duration{4 * time.Millisecond, 3 * time.Millisecond}},
	})
	if want := (side{Operations: 4, PerSecond: 1, P50: 2, P95: 4, P99: 4}); got != want {
		t.Errorf("summary is %+v, want %+v", got, want)
	}
}
