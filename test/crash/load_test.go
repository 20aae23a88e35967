//go:build real

package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
)

const (
	callers = 16
	// A process lives up to so long under load before it is killed; one in four of
	// those that follow is killed while it starts.
	longest = 800 * time.Millisecond
	starts  = 150 * time.Millisecond
)

// mix is what the callers call.
var mix = []brokertest.Call{
	{Server: "records", Tool: "slow"}, {Server: "archive", Tool: "slow"},
	{Server: "records", Tool: "whoami"}, {Server: "archive", Tool: "whoami"},
	{Server: "records", Tool: "fail"}, {Server: "archive", Tool: "drop"},
}

// TestKilledUnderLoad kills the broker FAULTS_KILLS times (default 40) at moments that
// FAULTS_SEED decides, under callers that do what they are told.
func TestKilledUnderLoad(t *testing.T) {
	s := start(t)
	s.load(t, number(t, "FAULTS_KILLS", 40), uint64(number(t, "FAULTS_SEED", int(time.Now().Unix()))), mix)
	s.judgeAudit(t.Context())
	s.judgeLeaks(t)
	s.judgeHolds(t)
	s.report(t)
}

func number(t *testing.T, name string, otherwise int) int {
	text, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// load has callers call what is in the mix while the broker is killed and started
// again, and judges every operation when the last of them has ended.
func (s *site) load(t *testing.T, kills int, seed uint64, mix []brokertest.Call) {
	t.Helper()
	t.Logf("%d kills, FAULTS_SEED=%d", kills, seed)
	stop, made := make(chan struct{}), make(chan brokertest.Call)
	var running sync.WaitGroup
	for n := range callers {
		running.Go(func() { s.caller(t.Context(), n, mix, stop, made) })
	}
	var all []brokertest.Call
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for c := range made {
			all = append(all, c)
		}
	}()
	s.killAtRandom(t, kills, rand.New(rand.NewPCG(seed, 0)))
	close(stop)
	running.Wait()
	close(made)
	<-collected
	s.operated(len(all))
	s.judgeAll(t, all)
}

// killAtRandom leaves a broker that is ready.
func (s *site) killAtRandom(t *testing.T, kills int, random *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	holds := 0
	for range kills {
		pause(ctx, time.Duration(random.Int64N(int64(longest))))
		s.kill()
		s.killed()
		if holds == 0 {
			holds = s.vault.Residue(t)
		}
		if random.IntN(4) == 0 {
			short, cancel := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(starts))))
			s.restart(short) // that it is not ready by then is what is wanted
			cancel()
			s.kill()
			s.killed()
		}
		if err := s.restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if holds == 0 {
		t.Error("no hold was left in Vault by any kill: nothing was tried")
	}
}

// A caller makes one call after the other until it is stopped.
func (s *site) caller(ctx context.Context, number int, mix []brokertest.Call, stop <-chan struct{}, made chan<- brokertest.Call) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		c := mix[(number+n)%len(mix)]
		c.Key = fmt.Sprintf("caller-%d-%d", number, n)
		made <- c
		s.follow(ctx, c)
	}
}

// follow is a good gateway: it keeps the key, asks what became of a call whose
// answer was lost, and does what it is told.
func (s *site) follow(ctx context.Context, c brokertest.Call) {
	for ; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		a, err := s.do(ctx, c)
		switch {
		case err != nil:
			s.lookUntilTold(ctx, c)
		case a.Status >= 500 || a.Retry == fault.RetrySafe || a.Retry == fault.RetryWait:
		case a.Status >= 400:
			s.is(wrong, "%s: %s", c.Key, a.Body)
			return
		default:
			return
		}
	}
}

// lookUntilTold asks what became of c until somebody is there who says so.
func (s *site) lookUntilTold(ctx context.Context, c brokertest.Call) {
	for ; ctx.Err() == nil; pause(ctx, 20*time.Millisecond) {
		if _, err := s.look(ctx, c); err == nil {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// judgeAll asks for every operation once more. What is told now is what will be
// told for ever.
func (s *site) judgeAll(t *testing.T, all []brokertest.Call) {
	t.Helper()
	states, doubtful := map[string]int{}, 0
	for _, c := range all {
		a, err := s.look(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		states[string(a.State)]++
		if a.Retry == fault.RetryLookFirst && s.runs(c.Key) == 0 {
			doubtful++
		}
		if a.Status != 200 || a.Retry == fault.RetrySafe {
			s.is(wrong, "%s does not end: %s", c.Key, a.Body)
		}
	}
	t.Logf("%d operations: %v; of the unknown ones %d had not run", len(all), states, doubtful)
	if states[string(fault.InDoubt)] == 0 {
		t.Error("no operation is unknown: nothing was tried")
	}
	ran, arrived := 0, 0
	for _, tool := range []string{"slow", "whoami", "fail", "drop"} {
		ran += s.Records.Calls(tool) + s.Archive.Calls(tool)
	}
	s.mu.Lock()
	for n := range maps.Values(s.ran) {
		arrived += n
	}
	s.mu.Unlock()
	if ran > arrived || ran == 0 {
		t.Errorf("tools ran %d times, and %d calls were seen", ran, arrived)
	}
}
