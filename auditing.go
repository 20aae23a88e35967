package broker

import (
	"context"
	"fmt"
	"sync"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/ownfile"
)

// guardAudit makes what signs, copies and prunes the audit, as far as the configuration
// asks for it.
func (b *Broker) guardAudit(ctx context.Context, c Config) (err error) {
	if b.keeper, err = b.newKeeper(ctx, c); err != nil {
		return err
	}
	at := c.Snapshot.Audit
	if at.Sink != "" {
		if b.sink, err = auditlog.NewSink(ctx, auditlog.SinkConfig{Store: b.store, Path: at.Sink, Log: c.Log}); err != nil {
			return err
		}
	}
	if at.Keep > 0 {
		b.pruner = &auditlog.Pruner{Store: b.store, Keep: at.Keep, Now: c.Now, Log: c.Log}
	}
	return nil
}

// newKeeper makes what signs heads of the audit; without a key there is none.
func (b *Broker) newKeeper(ctx context.Context, c Config) (*auditlog.Keeper, error) {
	path, at := c.Snapshot.Keys.Audit, c.Snapshot.Audit
	if path == "" {
		return nil, nil
	}
	text, err := ownfile.Read(path, ownfile.Ours)
	if err != nil {
		return nil, fmt.Errorf("keys.audit: %w", err)
	}
	key, err := audit.ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("keys.audit: %q: %w", path, err)
	}
	var second func([]byte) error
	switch {
	case at.Stdout:
		second = auditlog.Writer(c.Stdout)
	case at.Heads != "":
		second = auditlog.File(at.Heads)
	}
	return auditlog.NewKeeper(ctx, auditlog.Config{Store: b.store, Key: key, Second: second, Now: c.Now, Log: c.Log})
}

// prune takes what is old from the audit, if the configuration says so, until ctx ends.
func (b *Broker) prune(ctx context.Context) {
	if b.pruner != nil {
		b.pruner.Run(ctx)
	}
}

// keepAudit signs and copies the audit until the function that it returns is
// called: that signs and copies the last of all that was written. It waits no longer
// than its context: a place may be one that does not answer.
func (b *Broker) keepAudit(ctx context.Context) (last func(context.Context)) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	if b.keeper != nil {
		all.Go(func() { b.keeper.Run(ctx) })
	}
	if b.sink != nil {
		all.Go(func() { b.sink.Run(ctx) })
	}
	done := make(chan struct{})
	return func(ctx context.Context) {
		stop()
		go func() { all.Wait(); close(done) }()
		select {
		case <-done:
		case <-ctx.Done():
			b.log.Error("last of the audit not signed or copied in time")
		}
	}
}
