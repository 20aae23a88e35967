package hostile_test

import (
	"context"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

// A network is where the client dials. It keeps every connection, so that one
// which is forgotten stays open: else the collector would close it.
type network struct {
	mu    sync.Mutex
	conns []net.Conn
	addrs map[string]bool
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.addrs == nil {
		n.addrs = map[string]bool{}
	}
	n.addrs[addr] = true
	if err == nil {
		n.conns = append(n.conns, conn)
	}
	return conn, err
}

// counts are what must not grow.
type counts struct{ goroutines, descriptors int }

func countAll(t *testing.T) counts {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return counts{runtime.NumGoroutine(), len(open)}
}

// settled waits until nothing is above c.
func (c counts) settled(t *testing.T) (now counts, ok bool) {
	t.Helper()
	ok = within(10*time.Second, func() bool {
		now = countAll(t)
		return now.goroutines <= c.goroutines && now.descriptors <= c.descriptors
	})
	return now, ok
}

// within asks until the answer is yes, or d has gone by.
func within(d time.Duration, yes func() bool) bool {
	timer, ticker := time.NewTimer(d), time.NewTicker(time.Millisecond)
	defer timer.Stop()
	defer ticker.Stop()
	for {
		if yes() {
			return true
		}
		select {
		case <-ticker.C:
		case <-timer.C:
			return yes()
		}
	}
}

// A memoryWatch looks at the heap, dead objects included, every few milliseconds.
type memoryWatch struct {
	idle uint64
	done chan struct{}
	peak chan uint64
}

func watchMemory() memoryWatch {
	runtime.GC()
	w := memoryWatch{idle: heap(), done: make(chan struct{}), peak: make(chan uint64)}
	go func() {
		peak, ticker := uint64(0), time.NewTicker(2*time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				peak = max(peak, heap())
			case <-w.done:
				w.peak <- peak
				return
			}
		}
	}()
	return w
}

// stop returns the highest that was seen, over the beginning.
func (w memoryWatch) stop() uint64 {
	close(w.done)
	return max(<-w.peak, w.idle) - w.idle
}

func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
