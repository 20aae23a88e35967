package operation

import (
	"context"
	"sync"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// said is what a server has said about a call while it works on it.
type said struct {
	mu      sync.Mutex
	last    mcpclient.Progress
	count   int
	changed chan struct{} // closed, and made anew, with each progress
}

func (s *said) note(p mcpclient.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = p
	s.count++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// after returns the last progress, if there was one since the count-th, else
// what is closed with the next one.
func (s *said) after(count int) (p mcpclient.Progress, now int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count > count {
		return s.last, s.count, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return mcpclient.Progress{}, count, s.changed
}

// A Watch follows an attempt while it is carried. It is for one goroutine.
type Watch struct {
	r     *Runner
	w     *work
	asks  policy.Question
	count int
}

// Watch follows an operation that caller may see; nil if it is not being carried.
func (r *Runner) Watch(caller identity.Caller, actor identity.Actor, a Answer) *Watch {
	w := r.carried(a.ID)
	if w == nil {
		return nil
	}
	select {
	case <-w.ended: // what it still does is not the caller's
		return nil
	default:
	}
	return &Watch{r: r, w: w, asks: policy.Question{Caller: caller, Actor: actor, Server: a.Server, Tool: a.Tool}}
}

// Leave says that the request which follows is gone; see [Runner.Run].
func (v *Watch) Leave() { v.r.left(v.w) }

// Next waits for the next progress; of several it returns the last. It is false
// when the attempt has ended, or ctx has. What a server says is handed out only
// while the actor's grant stands.
func (v *Watch) Next(ctx context.Context) (mcpclient.Progress, bool) {
	for {
		p, count, changed := v.w.said.after(v.count)
		v.count = count
		if changed == nil {
			if v.r.policy.Current().Withholds(v.asks, v.r.now()) != fault.None {
				p.Message = ""
			}
			return p, true
		}
		select {
		case <-changed:
		case <-v.w.ended:
			return mcpclient.Progress{}, false
		case <-ctx.Done():
			return mcpclient.Progress{}, false
		}
	}
}
