// Package cache is a bounded map whose entries expire.
//
// It holds what may be looked up again at any time: key sets, what a server was
// found to speak, cool-downs. It is never for an exchanged token, which lives
// in Vault and nowhere else.
//
// What always holds:
//
//   - An entry is never returned at or after its expiry, by the clock that was
//     handed in.
//   - A time to live of zero or less is refused. The library below would take
//     it for "for ever".
//   - There are never more entries than the bound. A full cache refuses; it
//     never gives up a live entry for a new one.
//   - Nothing runs in the background: what has expired is dropped when its
//     place is needed.
//
// Values are stored as they are: a V that points somewhere is shared by everyone
// who gets it. It has to be fit for that, or be left unchanged.
package cache

import (
	"sync"
	"time"

	gocache "github.com/patrickmn/go-cache"
)

// A Cache maps keys to values of type V. It may be used from many goroutines.
// The key is for the caller to make: every part that decides belongs in it,
// each told apart from the next.
type Cache[V any] struct {
	max   int
	now   func() time.Time
	mu    sync.Mutex // held by writers, so that counting and storing are one step
	items *gocache.Cache
}

type entry[V any] struct {
	value   V
	expires time.Time
}

// New returns a Cache of at most max entries. A nil now is time.Now.
func New[V any](max int, now func() time.Time) *Cache[V] {
	if now == nil {
		now = time.Now
	}
	// Interval 0: no janitor. Its goroutine would never end.
	return &Cache[V]{max: max, now: now, items: gocache.New(gocache.NoExpiration, 0)}
}

// Get returns the live entry of key.
func (c *Cache[V]) Get(key string) (value V, found bool) {
	item, ok := c.items.Get(key)
	if !ok {
		return value, false
	}
	e := item.(entry[V])
	if !c.live(e) {
		return value, false
	}
	return e.value, true
}

// Set stores value under key for ttl, and replaces what was there. It reports
// false, and changes nothing that is live, if ttl is not positive or if the
// cache is full of live entries under other keys.
func (c *Cache[V]) Set(key string, value V, ttl time.Duration) bool {
	if ttl <= 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hasRoomLocked(key) {
		return false
	}
	// The library's own expiry stays off: it reads the wall clock, not ours.
	c.items.Set(key, entry[V]{value, c.now().Add(ttl)}, gocache.NoExpiration)
	return true
}

// Delete drops the entry of key, if there is one.
func (c *Cache[V]) Delete(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items.Delete(key)
}

func (c *Cache[V]) hasRoomLocked(key string) bool {
	if _, replaces := c.items.Get(key); replaces || c.items.ItemCount() < c.max {
		return true
	}
	for k, item := range c.items.Items() {
		if !c.live(item.Object.(entry[V])) {
			c.items.Delete(k)
		}
	}
	return c.items.ItemCount() < c.max
}

func (c *Cache[V]) live(e entry[V]) bool { return c.now().Before(e.expires) }
