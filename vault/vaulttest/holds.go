package vaulttest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

func perOperation(conf *vault.Config) { conf.PerOperation = true }

// clientOwn: with a token for each operation, an operator ends one of them by its
// accessor, and what is dropped or not used is gone with its token.
func (r *rig) clientOwn(t *testing.T) {
	before := r.Residue()
	c := r.start(t, perOperation)
	r.ready(t, c)
	var holds []*vault.Hold
	for i := range 3 {
		h := c.Reserve(t.Context())
		if err := h.Put(t.Context(), secret.New(fmt.Sprint("token-", i))); err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	if n := r.Residue(); n != before+3 {
		t.Errorf("the residue went from %d to %d by three holds", before, n)
	}
	r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": holds[0].Epoch()})
	for i, h := range holds {
		got, err := h.Read(t.Context())
		if killed := i == 0; killed && fault.ReasonOf(err) != fault.HoldGone || !killed && (err != nil || got.Reveal() != fmt.Sprint("token-", i)) {
			t.Errorf("hold %d: Read = %v", i, err)
		}
	}
	for i, h := range holds {
		if err := h.Drop(t.Context()); err != nil || h.State() != vault.Dropped {
			t.Errorf("hold %d: Drop = %v, %q", i, err, h.State())
		}
	}
	unused := c.Reserve(t.Context())
	if err := unused.Drop(t.Context()); err != nil || unused.Epoch() == "" {
		t.Errorf("Drop of what was not put = %v", err)
	}
	if n := r.Residue(); n != before {
		t.Errorf("%d entries are left", n-before)
	}
	if s := c.Stats(); s.Epochs != 1 || s.Holds != 0 || s.Pending != 0 {
		t.Errorf("%+v", s)
	}
}

// clientMany: operations beside one another read their own tokens, and leave nothing.
func (r *rig) clientMany(t *testing.T) {
	for name, change := range map[string]func(*vault.Config){"shared": asItIs, "an epoch for each": perOperation} {
		t.Run(name, func(t *testing.T) {
			before := r.Residue()
			c := r.start(t, change)
			r.ready(t, c)
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					for round := range 4 {
						if err := use(t, c, secret.New(fmt.Sprint("token-", i, "-", round))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if n := r.Residue(); n != before || c.Pending() != 0 {
				t.Errorf("%d entries are left, %d pending", n-before, c.Pending())
			}
		})
	}
}

func use(t *testing.T, c *vault.Client, token secret.Text) (err error) {
	h := c.Reserve(t.Context())
	defer func() { err = errors.Join(err, h.Drop(t.Context())) }()
	if err := h.Put(t.Context(), token); err != nil {
		return err
	}
	for range 3 {
		if got, err := h.Read(t.Context()); err != nil || !got.Equal(token) {
			return fmt.Errorf("reading %s: %w", h.ID(), errors.Join(err, errors.New("it is another's")))
		}
	}
	return nil
}

// clientFailedDrop: what cannot be dropped is swept with its epoch, which is revoked
// when it was replaced, and else runs out.
func (r *rig) clientFailedDrop(t *testing.T) {
	for _, row := range []struct {
		name   string
		cut    []string
		change func(*vault.Config)
		want   vault.State
	}{
		{"is swept by the revocation", []string{"/v1/cubbyhole/"}, asItIs, vault.Dropped},
		{"ends with its own epoch", []string{"/v1/auth/token/revoke-self"}, perOperation, vault.Expired},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := r.Residue()
			line := &cutter{paths: row.cut}
			c := r.start(t, func(conf *vault.Config) {
				row.change(conf)
				conf.Role, conf.Transport = "suite-brief", line
			})
			var h *vault.Hold
			eventually(t, 5*time.Second, "a hold in an epoch of four seconds", func() (ok bool) {
				h = c.Reserve(t.Context())
				return h.Put(t.Context(), secret.New("token-of-an-operation")) == nil
			})
			line.cut(true)
			if err := h.Drop(t.Context()); err == nil {
				t.Fatal("the drop was not cut off")
			}
			if n := r.Residue(); n != before+1 {
				t.Errorf("%d entries are left by a drop that did not happen", n-before)
			}
			ended := make(chan vault.State, 1)
			h.WhenEnded(func(s vault.State) { ended <- s })
			select {
			case got := <-ended:
				if got != row.want {
					t.Errorf("it ended as %q, want %q", got, row.want)
				}
			case <-time.After(20 * time.Second):
				t.Error("it has not ended")
			}
			if n := r.Residue(); n != before {
				t.Errorf("%d entries are left", n-before)
			}
			line.cut(false)
		})
	}
}

// A cutter cuts connections for some paths, but not those of a put or a read.
type cutter struct {
	paths []string
	mu    sync.Mutex
	cuts  bool
}

func (c *cutter) cut(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts = yes
}

func (c *cutter) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	cuts := c.cuts
	c.mu.Unlock()
	for _, path := range c.paths {
		if cuts && strings.HasPrefix(req.URL.Path, path) {
			return nil, errors.New("the line is cut")
		}
	}
	return http.DefaultTransport.RoundTrip(req)
}
