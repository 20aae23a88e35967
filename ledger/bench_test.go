package ledger_test

import (
	"context"
	"crypto/rand"
	"fmt"
	rand2 "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// BenchmarkOperation is the commits of one operation: three that it waits for,
// and the drop's, which it does not. KB-written is what went to the files, the
// log and checkpoints together.
func BenchmarkOperation(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			l := ledger.New(s, ledger.Config{})
			result := make([]byte, 2048)
			var n atomic.Int64
			var running atomic.Int64
			var drops sync.WaitGroup
			before := written(b)
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				if running.Add(1) > int64(callers) {
					return
				}
				for pb.Next() {
					op := random(int(n.Add(1)))
					if err := oneOperation(l, op, result); err != nil {
						b.Error(err)
					}
					drops.Go(func() {
						if err := drop(l, op); err != nil {
							b.Error(err)
						}
					})
				}
			})
			drops.Wait()
			b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "operations/s")
			b.ReportMetric(float64(written(b)-before)/1e3/float64(n.Load()), "KB-written/op")
		})
	}
}

// written is how many bytes this process has handed to the kernel (proc(5),
// io); 0 where there is no such file.
func written(b *testing.B) (n int64) {
	raw, err := os.ReadFile("/proc/self/io")
	if err == nil {
		_, text, _ := strings.Cut(string(raw), "wchar: ")
		_, err = fmt.Sscan(text, &n)
	}
	if err != nil {
		b.Log(err)
	}
	return n
}

// random is an operation as the broker begins them: a new id, a key by chance, and
// an actor that was asserted by name.
func random(n int) ledger.Operation {
	op := another(n)
	op.ID, op.RequestKey, op.JTI, op.Hold = ledger.NewID(), rand.Text(), "", ledger.HoldHeld
	return op
}

func oneOperation(l *ledger.Ledger, op ledger.Operation, result []byte) error {
	ctx := context.Background()
	rec := recordOf(op)
	if _, _, err := l.Begin(ctx, op, rec); err != nil {
		return err
	}
	if err := l.Sending(ctx, op.ID, 1, rec); err != nil {
		return err
	}
	return l.Finish(ctx, op.ID, 1, succeeded, result, legs, op.Hold, rec)
}

func drop(l *ledger.Ledger, op ledger.Operation) error {
	return l.Dropped(context.Background(), op.ID, 1, ledger.HoldDropped, legs, recordOf(op))
}

func recordOf(op ledger.Operation) audit.Record {
	return audit.Record{Caller: op.Caller, Actor: op.Actor, Server: op.Server, Tool: op.Tool, Arguments: op.Arguments}
}

// BenchmarkMillion is a ledger with a million operations: reading one by its
// key, opening and recovering it after a stop and after a death, and what a sweep of all of them costs those who
// write meanwhile.
func BenchmarkMillion(b *testing.B) {
	path := filepath.Join(b.TempDir(), "broker.db")
	now := time.Now()
	open := func() (*store.Store, *ledger.Ledger) {
		s, err := store.Open(b.Context(), store.Config{Path: path})
		if err != nil {
			b.Fatal(err)
		}
		return s, ledger.New(s, ledger.Config{Now: func() time.Time { return now }})
	}
	s, l := open()
	many := 1_000_000
	if testing.Short() {
		many = 20_000
	}
	fill(b, s, l, many)

	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if _, found, err := l.Find(b.Context(), "gateway", "user:7", fmt.Sprintf("key%07d", 1+rand2.IntN(many-1))); !found || err != nil {
				b.Fatal(found, err)
			}
		}
	})
	b.Run("recover", func(b *testing.B) {
		for b.Loop() {
			s.Close()
			s, l = open()
			if _, _, err := l.Recover(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("recover-unclean", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			s.Close()
			lock, err := os.ReadFile(path + ".lock")
			if err == nil {
				err = os.WriteFile(path+".lock", []byte(strings.TrimSuffix(string(lock), " closed")), 0o600)
			}
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			if s, l = open(); s.Opening().Clean {
				b.Fatal("it was not checked")
			}
		}
	})
	b.Run("sweep", func(b *testing.B) {
		for range b.N {
			alone := commits(b, l, func() bool { return true })
			now = now.Add(8 * 24 * time.Hour)
			swept := 0
			beside := commits(b, l, func() bool {
				more, err := l.Sweep(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				swept++
				<-time.After(25 * time.Millisecond) // the broker's sweepPause
				return more
			})
			b.ReportMetric(float64(percentile(alone, 99).Microseconds()), "p99-alone-us")
			b.ReportMetric(float64(percentile(beside, 99).Microseconds()), "p99-beside-us")
			b.ReportMetric(float64(percentile(beside, 99))/float64(percentile(alone, 99)), "p99-ratio")
			b.ReportMetric(float64(percentile(beside, 50))/float64(percentile(alone, 50)), "p50-ratio")
			b.ReportMetric(float64(swept), "chunks")
		}
	})
	s.Close()
}

// fill writes finished operations, each with a result, as Begin and Finish do.
func fill(b *testing.B, s *store.Store, l *ledger.Ledger, many int) {
	result := make([]byte, 400)
	err := oneOperation(l, another(0), result)
	if err == nil { // or the first recovery would have a million holds to settle
		err = l.Gone(b.Context(), "op0", 1, ledger.HoldDropped, audit.Record{})
	}
	if err != nil {
		b.Fatal(err)
	}
	const rest = `attempt, state, ran, evidence, cause, deadline, created, updated, legs, hold, snapshot, grant_line, profile, audience, scopes,
		first_sent, supersedes, superseded_by, caller, actor, jti, run_id, server, tool, fingerprint, arguments`
	spoken := make([]audit.Record, 40_000) // four of each operation
	for i := range spoken {
		spoken[i] = recordOf(another(i))
		spoken[i].Kind = []audit.Kind{audit.Decision, audit.Sending, audit.Outcome, audit.Drop}[i%4]
	}
	for n := 1; n < many; {
		err := s.Commit(b.Context(), func(tx *store.Tx) error {
			for range 10_000 {
				id := fmt.Sprintf("%026d", n) // in order: by chance it would take many minutes
				if _, err := tx.Exec(`INSERT INTO operations (id, request_key, `+strings.Replace(rest, "jti,", "", 1)+`, jti)
					SELECT ?, ?, `+strings.Replace(rest, "jti,", "", 1)+`, '' FROM operations WHERE id = 'op0'`, id, fmt.Sprintf("key%07d", n)); err != nil {
					return err
				}
				if _, err := tx.Exec(`INSERT INTO results (operation, body, created) SELECT id, ?, created FROM operations WHERE id = ?`, result, id); err != nil {
					return err
				}
				n++
			}
			return nil
		}, spoken...)
		if err != nil {
			b.Fatal(err)
		}
	}
}

// commits is how long 2,000 commits of 16 writers take while beside runs in a loop.
func commits(b *testing.B, l *ledger.Ledger, beside func() bool) (took []time.Duration) {
	var done atomic.Bool
	var sweeper, writers sync.WaitGroup
	sweeper.Go(func() {
		for !done.Load() && beside() {
		}
	})
	var mu sync.Mutex
	for range 16 {
		writers.Go(func() {
			for range 125 {
				op := random(0)
				began := time.Now()
				if _, _, err := l.Begin(context.Background(), op, recordOf(op)); err != nil {
					b.Error(err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	done.Store(true)
	sweeper.Wait()
	slices.Sort(took)
	return took
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

// BenchmarkSearch is an auditor's page of 100 of a million operations of 10,000 actors at
// 100 servers with 3 tools each, one of them called seldom, and the uses of all of them.
func BenchmarkSearch(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Config{})
	fill(b, s, l, 1_000_000)
	err = s.Commit(b.Context(), func(tx *store.Tx) error {
		for _, update := range []string{
			`UPDATE operations SET created = created + rowid * 1000000, actor = 'user:' || (rowid % 10000), server = 'server' || (rowid % 100),
				tool = CASE WHEN rowid % 100000 = 7 THEN 'seldom' ELSE 'tool' || (rowid % 3) END, state = CASE WHEN rowid % 1000 = 0 THEN 'unknown' ELSE state END`,
			`DELETE FROM uses`,
			`INSERT INTO uses SELECT actor, profile, server, tool, COUNT(*), MAX(created) FROM operations GROUP BY 1, 2, 3, 4`,
		} {
			if _, err := tx.Exec(update); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for name, search := range map[string]ledger.Search{
		"all": {}, "actor": {Actor: "user:7"}, "server": {Server: "server7"}, "tool": {Server: "server7", Tool: "tool1"}, "seldom": {Server: "server7", Tool: "seldom"},
		"state": {State: fault.InDoubt}, "key": {RequestKey: "key0999999"}, "no-index": {Tool: "nowhere"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := l.Search(b.Context(), search, ledger.Place{}, 100); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("uses", func(b *testing.B) {
		for b.Loop() {
			uses, _, err := l.Uses(b.Context(), policy.Filter{}, "", "~")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(uses)), "uses")
		}
	})
}
