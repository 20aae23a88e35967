package exchange

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"onbehalf.internal/broker/cache"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

const (
	retryPause = 100 * time.Millisecond // before a request leaves a second time, where no Retry-After says more
	longPause  = 2 * time.Second        // what a Retry-After may say for that; with more there is no second time
	leastCool  = time.Second            // a cool-down after 429
	mostCool   = time.Minute            // whatever the provider says
)

// ask makes the request of one step, and once more if it may and that helps.
func (c *Client) ask(ctx context.Context, p *policy.Profile, k Key, form url.Values, again bool) (reply, error) {
	if left := c.cool.left(p.TokenEndpoint, c.now()); left > 0 {
		return reply{}, cooling(left)
	}
	timed, stop := bounded(ctx, p.Timeout)
	defer stop()
	for {
		l, err := c.login(timed, p, k) // an assertion is for one request
		if err != nil {
			return reply{}, err
		}
		began := time.Now()
		re, err := c.send(timed, p, l, form)
		c.cool.note(p.TokenEndpoint, re, c.now)
		if !again || !re.passing(err) || !pause(timed, re.after, time.Since(began)) {
			return re, unanswered(ctx, err)
		}
		again = false
	}
}

// bounded is ctx with less time, if limit says so.
func bounded(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// passing reports whether the same request may get another answer at once: it
// did not leave, or somebody before the provider had no use for it.
func (re reply) passing(err error) bool {
	return re.unsent || err == nil && unreachable(re.status)
}

func unreachable(status int) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// pause waits before the second time, if the budget has room for the wait and
// for as much as the first time took.
func pause(ctx context.Context, asked, took time.Duration) bool {
	if asked > longPause {
		return false
	}
	wait := max(retryPause, asked)
	if deadline, limited := ctx.Deadline(); limited && time.Until(deadline) < wait+took {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads the header (RFC 9110 §10.2.3); what is no moment of the
// future reads as nothing.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.ParseUint(v, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// cooldowns are the endpoints that want to be left alone, and until when. The
// zero value has none.
type cooldowns struct {
	until atomic.Pointer[cache.Cache[time.Time]] // :: token endpoint → end; nil before the first
}

// left is how long there must be no request to an endpoint.
func (c *cooldowns) left(endpoint *url.URL, now time.Time) time.Duration {
	ends := c.until.Load()
	if ends == nil {
		return 0
	}
	end, _ := ends.Get(endpoint.String())
	return end.Sub(now)
}

// note begins a cool-down where the answer asks for one.
func (c *cooldowns) note(endpoint *url.URL, re reply, now func() time.Time) {
	if re.status != http.StatusTooManyRequests && (re.status != http.StatusServiceUnavailable || re.after == 0) {
		return
	}
	if c.until.Load() == nil {
		c.until.CompareAndSwap(nil, cache.New[time.Time](1024, now))
	}
	wait := re.cool()
	c.until.Load().Set(endpoint.String(), now().Add(wait), wait)
}

// cool is how long the provider is left alone.
func (re reply) cool() time.Duration { return min(max(re.after, leastCool), mostCool) }

// cooling refuses a request that would come too early.
func cooling(left time.Duration) error {
	e := fault.New("exchange.Exchange", fault.ProviderRateLimited, fmt.Sprintf("the provider asked to be left alone; %.0fs of that are left", left.Seconds()))
	e.After = left
	return e
}
