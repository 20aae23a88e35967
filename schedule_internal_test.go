package broker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSchedule: what is said to be done every minute is done about every minute, in
// the first tenth of one for the first time, never twice at once, less and less often
// while it fails, and not any more when nobody says so.
func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		began, ok, every, running := time.Now(), true, time.Minute, 0
		s := &schedule{
			jobs: func() map[job]time.Duration {
				if every == 0 {
					return nil
				}
				return map[job]time.Duration{{"probe", "records"}: every, {"import", "records"}: 24 * time.Hour, {"import", "archive"}: 24 * time.Hour}
			},
			do: func(ctx context.Context, j job) bool {
				if j.server == "archive" {
					<-ctx.Done() // it takes its time, and others do not wait for it
					return true
				}
				mu.Lock()
				if j.kind == "probe" {
					at = append(at, time.Since(began))
				}
				running++
				if running > 1 {
					t.Errorf("%+v, %d at once", j, running)
				}
				mu.Unlock()
				time.Sleep(5 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
				return ok
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		counted := func(d time.Duration) int {
			mu.Lock()
			before := len(at)
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			return len(at) - before
		}
		if n := counted(10 * time.Minute); n < 8 || n > 11 || at[0] > 7*time.Second {
			t.Errorf("%d times in ten minutes, first after %v", n, at[0])
		}
		mu.Lock()
		ok = false
		mu.Unlock()
		counted(30 * time.Minute) // it gets slower
		if n := counted(90 * time.Minute); n < 9 || n > 14 {
			t.Errorf("%d times in ninety minutes while it fails, want one in eight minutes", n)
		}
		mu.Lock()
		ok = true
		mu.Unlock()
		counted(10 * time.Minute)
		if n := counted(10 * time.Minute); n < 8 || n > 11 {
			t.Errorf("%d times in ten minutes when it is well again", n)
		}
		s.mu.Lock()
		every = 0
		s.mu.Unlock()
		counted(2 * time.Minute)
		if n := counted(time.Hour); n != 0 {
			t.Errorf("%d times when nobody says so", n)
		}
		cancel()
		<-done
	})
}
