package broker

import (
	"context"
	"net/http"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// What follows the drain, each part within its own bound.
const (
	// Operations that were cut write their outcomes and drop their holds, which may
	// take package session 5 s; refreshed credentials are stored.
	settleBudget = 5500 * time.Millisecond
	answerBudget = time.Second     // callers get their answers, connections are closed
	leaveBudget  = 2 * time.Second // epochs: package vault keeps to it, see [vault.Client.Run]
	recordBudget = time.Second     // denials that were counted, holds that ended with their epochs, the last record and head

	// A configuration was checked against this sum: a larger one does not compile.
	_ = uint64(policy.CleanUp - settleBudget - answerBudget - leaveBudget - recordBudget)
)

// Hasten ends the waiting of a stop, now or when it comes: what is open is cut
// at once. The clean-up is what it is. It may be called at any time.
func (b *Broker) Hasten() { b.hasten() }

// drain lets what has begun end, and cuts what does not.
// Nothing is ready any more from its first lines on. Handlers that wait for an
// operation get its answer: the servers are shut down after the operations have
// ended.
func (b *Broker) drain(servers []*http.Server) audit.Stopped {
	limits := b.policy.Current().Stop
	if limits.Delay == 0 { // who sees that it is not ready is refused already
		b.runner.Refuse()
	}
	b.draining.Store(true)
	b.log.Info("draining", "open", b.runner.Running())
	delay, cancel := context.WithTimeout(b.patience, limits.Delay)
	<-delay.Done()
	cancel()

	b.runner.Refuse()
	for _, s := range servers {
		s.SetKeepAlivesEnabled(false) // an idle connection is closed; a busy one after its answer
	}
	drain, cancel := context.WithTimeout(b.patience, limits.Drain)
	if b.settled(drain) != nil {
		b.runner.Cut()
		b.log.Warn("drain budget spent", "open", b.runner.Running())
	}
	cancel()
	return b.cleanUp(servers)
}

// settled waits until operations and refreshes of credentials have ended.
func (b *Broker) settled(ctx context.Context) error {
	if err := b.runner.Drain(ctx); err != nil {
		return err
	}
	return b.sessions.Drain(ctx)
}

func (b *Broker) cleanUp(servers []*http.Server) (counts audit.Stopped) {
	within(settleBudget, func(ctx context.Context) {
		if b.settled(ctx) != nil {
			b.log.Warn("clean-up budget spent", "open", b.runner.Running())
		}
	})
	within(answerBudget, func(ctx context.Context) {
		for _, s := range servers {
			if s.Shutdown(ctx) != nil {
				s.Close()
			}
		}
	})
	return b.runner.Stopped()
}

// closeLedger writes what is left to say, after the epochs have gone and with them
// what was pending. The last record of this process is the last, the last head speaks
// of it, and the sink has it.
func (b *Broker) closeLedger(counts *audit.Stopped, lastOfAudit func(context.Context)) {
	within(recordBudget, func(ctx context.Context) {
		if b.runner.Close(ctx) != nil {
			b.log.Warn("clean-up budget spent", "holds", true)
		}
		counts.Holds = b.vault.Pending()
		b.recordStop(ctx, *counts)
		lastOfAudit(ctx)
	})
}

func (b *Broker) recordStop(ctx context.Context, counts audit.Stopped) {
	err := b.ledger.Flush(ctx)
	if err == nil {
		err = b.store.Commit(ctx, nil, audit.Record{Kind: audit.Stop, Time: b.now(), Snapshot: b.policy.Current().Hash, Stopped: &counts})
	}
	if err != nil {
		b.log.Error("stop not written", "reason", string(fault.ReasonOf(err)))
	}
}

func within(budget time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	do(ctx)
}
