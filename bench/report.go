package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A result is one case.
type result struct {
	load
	Floor         side    `json:"floor"`
	Broker        side    `json:"broker"`
	LatencyRatio  float64 `json:"p50_over_floor"`        // median over the rounds
	RateRatio     float64 `json:"throughput_over_floor"` // median over the rounds
	CPU           float64 `json:"broker_cpu_ms_per_operation"`
	LateDrops     int     `json:"late_drops"` // answers that did not wait for the drop
	WrongAnswers  int     `json:"wrong_answers"`
	FirstWrong    string  `json:"first_wrong,omitempty"`
	floors, asked []round
}

// A report is all that was measured.
type report struct {
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	At       time.Time `json:"at"`
	Cases    []*result `json:"cases"`
	Wires    []wires   `json:"requests_per_operation"`
	Idle     float64   `json:"rss_idle_mb"`
	Thousand float64   `json:"rss_with_1000_operations_mb"`
	Start    float64   `json:"start_to_ready_ms"`
	Hole     float64   `json:"black_hole_ms"` // the slowest operation of 2 s with a server that falls silent
	Binary   float64   `json:"binary_mb"`
	Targets  []target  `json:"targets"`
}

func newReport() *report {
	return &report{Go: runtime.Version(), CPUs: runtime.NumCPU(), At: time.Now().UTC().Truncate(time.Second)}
}

// measure measures everything and says each thing when it is known.
func (r *report) measure(ctx context.Context, s *site, o options, out io.Writer) error {
	var wrong error
	for _, l := range o.cases {
		res, err := s.compare(ctx, l, o)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name(), err)
		}
		r.Cases = append(r.Cases, res)
		fmt.Fprintln(out, res.line())
		if res.WrongAnswers > 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d wrong answers, the first: %s", l.name(), res.WrongAnswers, res.FirstWrong))
		}
	}
	if err := r.count(ctx, s, out); err != nil {
		return errors.Join(wrong, err)
	}
	if err := r.weigh(ctx, s, out); err != nil {
		return errors.Join(wrong, err)
	}
	r.Targets = targets(r)
	for _, t := range r.Targets {
		fmt.Fprintln(out, t)
	}
	return wrong
}

// compare runs the rounds of one case: floor, broker, floor, broker …
func (s *site) compare(ctx context.Context, l load, o options) (_ *result, err error) {
	rig, p, err := s.open(ctx, s.vault.address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(rig, l.name())) }()
	f, err := newFloor(ctx, s.vault, rig, l.Era)
	if err != nil {
		return nil, err
	}
	defer f.close()
	g := newGateway(rig, l.Era)
	defer g.close()
	res := &result{load: l}
	warm := bound{time: o.bound.time, count: 2 * max(l.Callers, 16)} // era, mounts, keys, connections
	if err := errors.Join(drive(ctx, l.Callers, warm, f.operation).why, drive(ctx, l.Callers, warm, g.operation).why); err != nil {
		return nil, err
	}
	for range o.rounds {
		if err := f.renew(ctx, s.vault); err != nil {
			return nil, err
		}
		floor := drive(ctx, l.Callers, o.bound, f.operation)
		broker, err := metered(p, func() round { return drive(ctx, l.Callers, o.bound, g.operation) })
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		late, err := g.settle(ctx)
		if err != nil {
			return nil, err
		}
		res.LateDrops += late
		res.add(floor, broker)
	}
	res.conclude()
	return res, nil
}

// metered notes the CPU time that p spends meanwhile.
func metered(p process, run func() round) (round, error) {
	before, err1 := p.cpu()
	r := run()
	after, err2 := p.cpu()
	r.cpu = after - before
	return r, errors.Join(err1, err2)
}

func (res *result) add(floor, broker round) {
	res.floors, res.asked = append(res.floors, floor), append(res.asked, broker)
	for _, r := range []round{floor, broker} {
		res.WrongAnswers += r.wrong
		if r.why != nil && res.FirstWrong == "" {
			res.FirstWrong = r.why.Error()
		}
	}
}

func (res *result) conclude() {
	res.Floor, res.Broker = summary(res.floors), summary(res.asked)
	var latency, rate []float64
	var cpu time.Duration
	for i, broker := range res.asked {
		latency = append(latency, broker.p50()/res.floors[i].p50())
		rate = append(rate, broker.perSecond()/res.floors[i].perSecond())
		cpu += broker.cpu
	}
	res.LatencyRatio, res.RateRatio = median(latency), median(rate)
	res.CPU = milliseconds(cpu) / float64(res.Broker.Operations)
}

func (res *result) line() string {
	return fmt.Sprintf("%-9s  floor %v  broker %v  p50 ×%.2f  throughput ×%.2f  own CPU %.2f ms/op  late drops %d  wrong %d",
		res.name(), res.Floor, res.Broker, res.LatencyRatio, res.RateRatio, res.CPU, res.LateDrops, res.WrongAnswers)
}

func (s side) String() string {
	return fmt.Sprintf("%.2f/%.2f/%.2f ms %.0f/s", s.P50, s.P95, s.P99, s.PerSecond)
}

// count counts what one operation puts on the wire.
func (r *report) count(ctx context.Context, s *site, out io.Writer) (err error) {
	c, err := startCounter(s.vault.address)
	if err != nil {
		return err
	}
	defer c.close()
	rig, _, err := s.open(ctx, c.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(rig, "count")) }()
	for _, era := range []string{"modern", "legacy"} {
		behind := *s.vault
		behind.address = c.address
		f, err := newFloor(ctx, &behind, rig, era)
		if err != nil {
			return err
		}
		defer f.close()
		w, err := wire{c, rig}.countWires(ctx, f, era)
		if err != nil {
			return err
		}
		r.Wires = append(r.Wires, w)
		fmt.Fprintf(out, "%s: one operation makes %v; the first one also %v\n", era, w.Broker, w.First.without(w.Broker))
	}
	return nil
}

// weigh looks at memory, at the start and at the binary.
func (r *report) weigh(ctx context.Context, s *site, out io.Writer) (err error) {
	st, err := os.Stat(s.binary)
	if err != nil {
		return err
	}
	r.Binary = float64(st.Size()) / 1e6
	rig, p, err := s.open(ctx, s.vault.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close(rig, "weigh")) }()
	if r.Idle, err = p.resident(); err != nil {
		return err
	}
	if r.Hole, err = blackHoles(ctx, rig, out); err != nil {
		return err
	}
	if r.Thousand, err = crowd(ctx, rig, p); err != nil {
		return err
	}
	if r.Start, err = starts(ctx, rig); err != nil {
		return err
	}
	fmt.Fprintf(out, "memory %.1f MB idle, %.1f MB with 1,000 operations in flight; start to ready %.0f ms; binary %.1f MB\n",
		r.Idle, r.Thousand, r.Start, r.Binary)
	return nil
}

func (r *report) write(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o600)
}

// without is what c has more of.
func (c counts) without(other counts) counts {
	more := counts{}
	for kind, n := range c {
		if n > other[kind] {
			more[kind] = n - other[kind]
		}
	}
	return more
}

func (c counts) String() string {
	var parts []string
	for kind, n := range c {
		parts = append(parts, fmt.Sprintf("%d × %s", n, kind))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
