package operation

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	callerRate  = 2000 // requests a second
	callerBurst = 4000
)

// Rates is how much each caller may ask at a door of the broker, before anything is
// decided. The zero Rates is ready. It is safe for concurrent use.
type Rates struct {
	mu     sync.Mutex
	limits map[string]*rate.Limiter // :: caller id → its budget of requests
}

// Allow takes a request off the caller's budget; false if there is none left. Callers come
// from the configuration, so the map is bounded.
func (r *Rates) Allow(caller string, at time.Time) bool {
	r.mu.Lock()
	l := r.limits[caller]
	if l == nil {
		if r.limits == nil {
			r.limits = map[string]*rate.Limiter{}
		}
		l = rate.NewLimiter(callerRate, callerBurst)
		r.limits[caller] = l
	}
	r.mu.Unlock()
	return l.AllowN(at, 1)
}
