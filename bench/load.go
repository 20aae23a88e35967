package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A load is an era and a number of callers.
type load struct {
	Era     string `json:"era"`
	Callers int    `json:"callers"`
}

func (l load) name() string { return fmt.Sprintf("%s/%d", l.Era, l.Callers) }

// A bound ends a round by whichever comes first.
type bound struct {
	time  time.Duration
	count int
}

// A round is one stretch of load.
type round struct {
	took      time.Duration
	latencies []time.Duration // of what was answered rightly
	wrong     int
	why       error // of the first wrong one
	cpu       time.Duration
}

func (r round) perSecond() float64 { return float64(len(r.latencies)) / r.took.Seconds() }

func (r round) p50() float64 {
	return milliseconds(percentile(slices.Sorted(slices.Values(r.latencies)), 50))
}

// drive has callers run operation, each one after the other, until b is reached.
// The garbage of what went before is nobody's time.
func drive(ctx context.Context, callers int, b bound, operation func(context.Context) error) round {
	runtime.GC()
	var r round
	var mu sync.Mutex // guards r
	var begun atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			var latencies []time.Duration
			for ctx.Err() == nil && time.Since(start) < b.time && begun.Add(1) <= int64(b.count) {
				at := time.Now()
				err := operation(ctx)
				if err == nil {
					latencies = append(latencies, time.Since(at))
					continue
				}
				mu.Lock()
				if r.wrong++; r.why == nil {
					r.why = err
				}
				mu.Unlock()
			}
			mu.Lock()
			r.latencies = append(r.latencies, latencies...)
			mu.Unlock()
		})
	}
	wg.Wait()
	r.took = time.Since(start)
	return r
}
