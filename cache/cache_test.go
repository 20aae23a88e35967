package cache_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/cache"
)

// A clock stands still until it is moved.
type clock struct{ at time.Time }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) move(d time.Duration) { c.at = c.at.Add(d) }

func TestExpiry(t *testing.T) {
	const ttl = time.Minute
	for _, r := range []struct {
		after time.Duration
		found bool
	}{
		{0, true},
		{ttl - 1, true},
		{ttl, false},
		{ttl + 1, false},
		{1000 * time.Hour, false},
		{-time.Hour, true}, // a clock that steps back
	} {
		clock := &clock{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
		c := cache.New[string](1, clock.now)
		if !c.Set("key", "value", ttl) {
			t.Fatal("Set refused")
		}
		clock.move(r.after)
		if v, found := c.Get("key"); found != r.found || found != (v == "value") {
			t.Errorf("after %v: Get = %q, %v, want found %v", r.after, v, found, r.found)
		}
	}
}

// The library keeps an entry with a negative time to live for ever, and takes
// zero for its default.
func TestSetRefusesNoTime(t *testing.T) {
	c := cache.New[int](10, nil)
	c.Set("old", 1, time.Hour)
	for _, ttl := range []time.Duration{0, -1, -time.Hour} {
		for _, key := range []string{"new", "old"} {
			if c.Set(key, 2, ttl) {
				t.Errorf("Set(%q, ttl %v) was taken", key, ttl)
			}
		}
	}
	if _, found := c.Get("new"); found {
		t.Error("a refused entry is there")
	}
	if v, found := c.Get("old"); !found || v != 1 {
		t.Errorf("a refused Set changed what was there: %v, %v", v, found)
	}
}

func TestBound(t *testing.T) {
	clock := &clock{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	c := cache.New[int](2, clock.now)
	set := func(key string, ttl time.Duration, want bool) {
		t.Helper()
		if got := c.Set(key, 1, ttl); got != want {
			t.Errorf("Set(%q) = %v, want %v", key, got, want)
		}
	}
	set("short", time.Second, true)
	set("long", time.Hour, true)
	set("third", time.Hour, false) // full
	set("long", time.Hour, true)   // replaces
	if _, found := c.Get("short"); !found {
		t.Error("a live entry gave way")
	}
	clock.move(time.Second)
	set("third", time.Hour, true) // "short" has expired
	set("fourth", time.Hour, false)
	c.Delete("long")
	c.Delete("never there")
	set("fourth", time.Hour, true)
	for key, want := range map[string]bool{"short": false, "long": false, "third": true, "fourth": true} {
		if _, found := c.Get(key); found != want {
			t.Errorf("Get(%q) found %v, want %v", key, found, want)
		}
	}
	if cache.New[int](0, nil).Set("key", 1, time.Hour) {
		t.Error("a cache of no entries took one")
	}
}

// Counting and storing are one step: of many who want the last place, one gets it.
func TestLastPlace(t *testing.T) {
	const rivals, rounds = 8, 500
	for range rounds {
		c := cache.New[int](1, nil)
		var taken atomic.Int32
		var wg sync.WaitGroup
		for n := range rivals {
			wg.Go(func() {
				if c.Set(strconv.Itoa(n), n, time.Hour) {
					taken.Add(1)
				}
			})
		}
		wg.Wait()
		if n := taken.Load(); n != 1 {
			t.Fatalf("%d entries in a cache of 1", n)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	c := cache.New[int](50, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for k := range 200 {
				key := strconv.Itoa(k)
				c.Set(key, k, time.Hour)
				if v, found := c.Get(key); found && v != k {
					t.Errorf("Get(%q) = %d", key, v)
				}
				c.Delete(strconv.Itoa(k - 30))
			}
		})
	}
	wg.Wait()
}
