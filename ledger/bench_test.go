package ledger_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/store"
)

// BenchmarkOperation is the commits of one operation: three that it waits for,
// and the drop's, which it does not. KB-written is what went to the files, the
// log and checkpoints together.
func BenchmarkOperation(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			l := ledger.New(s, ledger.Retention{}, time.Now)
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

// random is an operation as the broker begins them: id and key by chance, and
// an actor that was asserted by name.
func random(n int) ledger.Operation {
	op := another(n)
	op.ID, op.RequestKey, op.JTI, op.Hold = strings.ToLower(rand.Text()), rand.Text(), "", ledger.HoldHeld
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

// BenchmarkGet reads one of many operations by its key.
func BenchmarkGet(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Retention{}, time.Now)
	for n := range 1000 {
		if err := oneOperation(l, another(n), make([]byte, 2048)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, found, err := l.Find(b.Context(), "gateway", "user:7", "key500"); !found || err != nil {
			b.Fatal(found, err)
		}
	}
}
