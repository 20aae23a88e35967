package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"onbehalf.internal/broker/brokertest"
)

const (
	holeBudget = 2 * time.Second
	holeLimit  = 2050 // ms, until the answer is there, the close included
)

// holes are the legs at which a server falls silent.
var holes = []struct{ server, leg string }{
	{"records", "server/discover"}, {"records", "tools/call"},
	{"archive", "initialize"}, {"archive", "notifications/initialized"}, {"archive", "tools/call"},
}

// blackHoles returns how long the slowest operation took, in milliseconds, of
// those with a server that takes a leg and never answers it.
func blackHoles(ctx context.Context, rig *brokertest.Rig, out io.Writer) (slowest float64, err error) {
	for _, h := range holes {
		mcp := rig.Records
		if h.server == "archive" {
			mcp = rig.Archive
		}
		release := mcp.Hold(h.leg)
		begun := time.Now()
		a, err := rig.Do(ctx, brokertest.Call{Server: h.server, Timeout: holeBudget.String()})
		took := milliseconds(time.Since(begun))
		release()
		if err != nil {
			return 0, err
		}
		if a.Cause != "wall_clock" {
			return 0, fmt.Errorf("a black hole at %s: %s", h.leg, a.Body)
		}
		fmt.Fprintf(out, "black hole at %s of %s: a 2 s operation ended after %.1f ms as %s, hold %s\n", h.leg, h.server, took, a.State, a.Hold)
		slowest = max(slowest, took)
	}
	return slowest, nil
}
