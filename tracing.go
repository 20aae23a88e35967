package broker

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/ownfile"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/trace/otlp"
)

// traceBudget bounds the sending of the last traces. It is beside the end of the epochs,
// and so costs a stop nothing.
const traceBudget = time.Second

const _ = uint64(leaveBudget - traceBudget)

// newTraces makes what sends traces, as far as the configuration asks for it.
func newTraces(t *policy.Traces) (*otlp.Exporter, error) {
	if t == nil {
		return nil, nil
	}
	c := otlp.Config{Collector: t.Collector, Version: Version,
		HTTP: egress.NewClient(egress.Host{URL: t.Collector, AnyAddress: true, CA: t.CA}, 1)}
	if t.Bearer != "" {
		c.Bearer = func() (secret.Text, error) { return bearerOf(t.Bearer) }
		if _, err := c.Bearer(); err != nil {
			return nil, fmt.Errorf("traces.bearer: %w", err)
		}
	}
	return otlp.New(c), nil
}

func bearerOf(path string) (secret.Text, error) {
	text, err := ownfile.Read(path, ownfile.Ours)
	text = bytes.TrimSpace(text)
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%q is empty", path)
	}
	return secret.New(string(text)), err
}

// closeTraces sends the last traces.
func (b *Broker) closeTraces() {
	if b.traces == nil {
		return
	}
	within(traceBudget, func(ctx context.Context) {
		if left := b.traces.Close(ctx); left > 0 {
			b.log.Warn("traces dropped", "spans", left)
		}
	})
}
