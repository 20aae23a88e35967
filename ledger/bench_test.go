package ledger_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/store"
)

// BenchmarkOperation is the three durable commits of one operation.
func BenchmarkOperation(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			l := ledger.New(s, time.Now)
			result := make([]byte, 2048)
			var n atomic.Int64
			var running atomic.Int64
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				if running.Add(1) > int64(callers) {
					return
				}
				for pb.Next() {
					if err := oneOperation(l, another(int(n.Add(1))), result); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(n.Load())/b.Elapsed().Seconds(), "operations/s")
		})
	}
}

func oneOperation(l *ledger.Ledger, op ledger.Operation, result []byte) error {
	ctx := context.Background()
	rec := audit.Record{Caller: op.Caller, Actor: op.Actor, Server: op.Server, Tool: op.Tool, Arguments: op.Arguments}
	if _, _, err := l.Begin(ctx, op, rec); err != nil {
		return err
	}
	if err := l.Sending(ctx, op.ID, 1, rec); err != nil {
		return err
	}
	return l.Finish(ctx, op.ID, 1, succeeded, result, legs, "", rec)
}

// BenchmarkGet reads one of many operations by its key.
func BenchmarkGet(b *testing.B) {
	s, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "broker.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, time.Now)
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
