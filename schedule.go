package broker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/operation"
)

// A job is something that is done to a server every so often.
type job struct{ kind, server string }

// A schedule does jobs, for one server one at a time. What fails is tried less and
// less often.
type schedule struct {
	jobs func() map[job]time.Duration               // :: what is to be done → how often; asked anew each time
	do   func(ctx context.Context, j job) (ok bool) // must not outlast ctx for long

	mu     sync.Mutex
	states map[job]*state
	busy   map[string]bool // servers
	all    sync.WaitGroup
}

// A state is how a job goes.
type state struct {
	next   time.Time
	failed int // times in a row
}

const (
	look       = time.Second // how soon a changed configuration is noticed
	mostBehind = 8           // how many times longer than said the wait after failures gets
)

// run does jobs until ctx ends, and returns when the last of them has ended.
func (s *schedule) run(ctx context.Context) {
	defer s.all.Wait()
	s.states, s.busy = map[job]*state{}, map[string]bool{}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		s.begin(ctx, time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// begin begins what is due. The first time of everything is within a tenth of its
// interval, so that brokers that start together do not all ask at once.
func (s *schedule) begin(ctx context.Context, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := s.jobs()
	for j := range s.states {
		if _, wanted := jobs[j]; !wanted {
			delete(s.states, j)
		}
	}
	for j, every := range jobs {
		st, known := s.states[j]
		if !known {
			st = &state{next: now.Add(rand.N(every/10 + 1))}
			s.states[j] = st
		}
		if s.busy[j.server] || now.Before(st.next) {
			continue
		}
		s.busy[j.server] = true
		s.all.Go(func() {
			ok := s.do(ctx, j)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.busy, j.server)
			st.ended(ok, every, time.Now())
		})
	}
}

// ended says when the job is due again: after its interval, give or take a tenth,
// and twice, four, eight times that after failures.
func (st *state) ended(ok bool, every time.Duration, now time.Time) {
	if st.failed++; ok {
		st.failed = 0
	}
	wait := every * time.Duration(min(1<<min(st.failed, 10), mostBehind))
	st.next = now.Add(wait - wait/10 + rand.N(wait/5+1))
}

// watch imports and probes servers as often as the configuration says.
func (b *Broker) watch(ctx context.Context) {
	s := &schedule{jobs: b.watched, do: func(ctx context.Context, j job) bool {
		ask := b.runner.Probe
		if j.kind == "import" {
			ask = func(ctx context.Context, by operation.Asker, server string) (operation.Discovery, error) {
				return b.runner.Import(ctx, by, server, nil)
			}
		}
		found, err := ask(ctx, operation.Asker{Schedule: true}, j.server)
		reason := found.Outcome.Cause
		if err != nil {
			reason = fault.ReasonOf(err)
		}
		if reason != fault.None && reason != fault.ServerBusy {
			b.log.Warn("server not as it should be", "what", j.kind, "server", j.server, "reason", string(reason))
		}
		return reason == fault.None || reason == fault.ServerBusy // somebody else asks
	}}
	s.run(ctx)
}

// watched are the jobs of the newest configuration.
func (b *Broker) watched() map[job]time.Duration {
	jobs := map[job]time.Duration{}
	for _, v := range b.policy.Current().Servers() {
		for kind, every := range map[string]time.Duration{"import": v.ImportEvery, "probe": v.ProbeEvery} {
			if v.Enabled && every > 0 {
				jobs[job{kind, v.ID}] = every
			}
		}
	}
	return jobs
}

const flushEvery = time.Minute

// flush writes when servers were last in contact, which is not worth a commit each.
func (b *Broker) flush(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		within(recordBudget, func(ctx context.Context) {
			if err := b.catalogue.Flush(ctx); err != nil {
				b.log.Error("contacts not written", "reason", string(fault.ReasonOf(err)))
			}
		})
	}
}
