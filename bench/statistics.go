package main

import (
	"math"
	"slices"
	"time"
)

// A side is what the rounds of one side of a case came to.
type side struct {
	Operations int     `json:"operations"`
	PerSecond  float64 `json:"per_second"`
	P50        float64 `json:"p50_ms"`
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
}

// summary pools all rounds.
func summary(rounds []round) side {
	var all []time.Duration
	var took time.Duration
	for _, r := range rounds {
		all = append(all, r.latencies...)
		took += r.took
	}
	slices.Sort(all)
	return side{len(all), float64(len(all)) / took.Seconds(),
		milliseconds(percentile(all, 50)), milliseconds(percentile(all, 95)), milliseconds(percentile(all, 99))}
}

// percentile is the smallest of sorted that p percent are not above; of
// nothing it is 0.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// median is the middle of values, of an even number the mean of the middle two.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
