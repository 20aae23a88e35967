package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/testhttp"
)

const (
	crowdSize = 1000
	crowdStep = 32 // how many are on their way at a time: a check may be one second old
)

// crowd returns the broker's memory while a thousand of its operations wait for
// a tool, and fails unless all of them succeed after that.
func crowd(ctx context.Context, rig *brokertest.Rig, p process) (resident float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second) // less than an operation may take
	defer cancel()
	release := rig.Records.Hold("tools/call")
	defer release()
	g := newGateway(rig, "modern")
	defer g.close()
	ended := make(chan error, crowdSize)
	arrived := func(n int) error {
		err := rig.Records.Await(ctx, func() bool { return rig.Records.Arrived("tools/call") >= n })
		if err != nil && len(ended) > 0 {
			err = errors.Join(err, <-ended) // nobody should have ended by now, and this is why the others never gather
		}
		return err
	}
	for i := range crowdSize {
		go func() { ended <- g.operation(ctx) }()
		if err := arrived(i + 1 - crowdStep); err != nil {
			return 0, err
		}
	}
	if err := arrived(crowdSize); err != nil {
		return 0, err
	}
	resident, err = p.resident()
	release()
	for range crowdSize {
		err = errors.Join(err, <-ended)
	}
	_, late := g.settle(ctx)
	return resident, errors.Join(err, late)
}

// starts returns the median time from start to ready, in milliseconds. A login
// of the broker at Vault is made within it, by the rig.
func starts(ctx context.Context, rig *brokertest.Rig) (float64, error) {
	var took []float64
	for range 5 {
		if err := rig.Stop(); err != nil {
			return 0, err
		}
		begun := time.Now()
		started := make(chan error, 1)
		go func() { started <- rig.Restart(ctx) }()
		ready, err := awaitReady(ctx, rig.URL)
		if err := errors.Join(err, <-started); err != nil {
			return 0, err
		}
		took = append(took, milliseconds(ready.Sub(begun)))
	}
	return median(took), nil
}

// awaitReady asks more often than the rig does: the time is to the millisecond.
func awaitReady(ctx context.Context, address string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, "GET", address+"/readyz", nil)
		if err != nil {
			return time.Time{}, err
		}
		if status, _, err := send(testhttp.Client, req); err == nil && status == http.StatusOK {
			return time.Now(), nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
