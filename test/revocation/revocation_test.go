// Package revocation asks one question of a whole broker under load: once a
// revocation has returned, does a leg still leave that was checked after it?
//
// Every hold read and every leg is written down with its time, between the broker
// and Vault and at the MCP server, while grants are taken away and given back,
// actors are suspended and let go, callers lose their word for them, and epochs are
// revoked in Vault. Then the
// history is gone through: a leg that left with a token whose last read was
// answered after the revocation had returned, and before it was undone, is a
// violation. The clock is one process's, so there is no skew.
package revocation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devvault"
)

const (
	actors = 8  // two callers each
	rounds = 45 // a third of them in each way
)

// A history is what happened to the tokens of each actor. Times are of one clock.
type history struct {
	mu      sync.Mutex
	puts    map[string]time.Time // :: hold → when Vault had it
	reads   map[string][]read    // :: token
	legs    []leg
	revoked map[string][]interval // :: actor
	epochs  []interval            // the revocations of all epochs, each from its beginning to its return
}

// A read is a hold read that Vault answered with the token. Vault was asked
// after begun; the broker got the answer after done.
type read struct {
	hold        string
	begun, done time.Time
}

type leg struct {
	token, actor string
	at           time.Time
}

// An interval begins when a revocation has returned and ends when it begins to
// be undone.
type interval struct {
	how      string
	from, to time.Time // to is zero while it stands
}

func (h *history) read(token string, r read) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads[token] = append(h.reads[token], r)
}

func (h *history) put(hold string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.puts[hold] = time.Now()
}

func (h *history) leg(l leg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.legs = append(h.legs, l)
}

func (h *history) revokeEpochs(vault *devvault.Server) {
	from := time.Now()
	vault.RevokeAll("broker-op")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochs = append(h.epochs, interval{from: from, to: time.Now()})
}

func (h *history) revoke(actor, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoked[actor] = append(h.revoked[actor], interval{how: how, from: time.Now()})
}

func (h *history) restore(actor string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.revoked[actor]
	all[len(all)-1].to = time.Now()
}

// violations goes through the history. The read that a leg was checked by is the
// last one of its token that had been answered when the leg arrived.
func (h *history) violations() (found []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.legs {
		var last read
		for _, r := range h.reads[l.token] {
			if !r.done.After(l.at) && r.done.After(last.done) {
				last = r
			}
		}
		if last.done.IsZero() {
			found = append(found, fmt.Sprintf("a leg of %s without a hold read", l.actor))
			continue
		}
		for _, e := range h.epochs {
			if h.puts[last.hold].Before(e.from) && last.begun.After(e.to) {
				found = append(found, fmt.Sprintf("%s: a hold was read %s after its epoch had been revoked", l.actor, last.begun.Sub(e.to)))
			}
		}
		for _, i := range h.revoked[l.actor] {
			if last.done.After(i.from) && (i.to.IsZero() || l.at.Before(i.to)) {
				found = append(found, fmt.Sprintf("%s: %s returned, %s later a hold read was answered, and %s after that a leg arrived",
					l.actor, i.how, last.done.Sub(i.from), l.at.Sub(last.done)))
			}
		}
	}
	return found
}

// recorder passes everything on to Vault and notes the hold reads.
func (h *history) recorder(t *testing.T, vault string) string {
	target, err := url.Parse(vault)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64}
	proxy.ModifyResponse = func(res *http.Response) error {
		asked, isHold := res.Request.Context().Value(began{}).(time.Time)
		switch {
		case !isHold || res.Request.Method == "DELETE" || res.StatusCode >= 300:
			return nil
		case res.Request.Method == "POST":
			h.put(res.Request.URL.Path)
			return nil
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		var entry struct{ Data struct{ Token string } }
		if err := json.Unmarshal(body, &entry); err != nil {
			return err
		}
		res.Body = io.NopCloser(bytes.NewReader(body))
		h.read(entry.Data.Token, read{res.Request.URL.Path, asked, time.Now()})
		return nil
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/cubbyhole/op/") {
			r = r.WithContext(context.WithValue(r.Context(), began{}, time.Now()))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// began is the key of the time at which a request for a hold arrived.
type began struct{}

func name(n int) string { return fmt.Sprintf("user:%d", 100+n) }

// people puts a grant for every actor into the configuration; the word after
// "enabled:" of one is what grant changes.
func people(yaml string) string {
	var grants strings.Builder
	for n := range actors {
		fmt.Fprintf(&grants, "      %q: {credential: \"vault:kv/broker/people/%d#value\", allowed_audiences: [mcp-archive], allowed_scopes: [records.read], enabled: true}\n", name(n), n)
	}
	yaml = strings.Replace(yaml, "    grants:\n", "    grants:\n"+grants.String(), 1)
	return strings.Replace(yaml, `asserted: [`, `asserted: [`+asserted(), 1)
}

func asserted() (list string) {
	for n := range actors {
		list += fmt.Sprintf("%q, ", name(n))
	}
	return list
}

func grant(rig *brokertest.Rig, actor string, enabled bool) error {
	return rig.Edit(func(yaml string) string {
		lines := strings.Split(yaml, "\n")
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), fmt.Sprintf("%q:", actor)) {
				lines[i] = line[:strings.LastIndex(line, "enabled: ")] + fmt.Sprintf("enabled: %v}", enabled)
			}
		}
		return strings.Join(lines, "\n")
	})
}

func TestNoLegIsSentThatWasCheckedAfterARevocation(t *testing.T) {
	vault := devvault.New(devvault.Options{})
	address, err := vault.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vault.Close() })
	h := &history{puts: map[string]time.Time{}, reads: map[string][]read{}, revoked: map[string][]interval{}}
	rig := brokertest.New(t, &brokertest.Options{Vault: h.recorder(t, address), VaultToken: vault.RootToken(), Config: people})
	for n := range actors {
		if err := rig.SetCredential(t.Context(), fmt.Sprintf("broker/people/%d", n), rig.Provider.Mint(name(n), time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	rig.Archive.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			subject, _, _, _ := rig.Provider.Verify(token, "mcp-archive")
			h.leg(leg{token, subject, time.Now()})
			next.ServeHTTP(w, r)
		})
	})

	var done atomic.Bool
	var callers sync.WaitGroup
	var counted counts
	for n := range 2 * actors {
		callers.Go(func() {
			for !done.Load() {
				counted.note(rig.Do(t.Context(), brokertest.Call{Actor: name(n % actors), Server: "archive"}))
			}
		})
	}
	revokeAndRestore(t, rig, h, vault)
	done.Store(true)
	callers.Wait()
	if err := rig.Stop(); err != nil { // with every farewell
		t.Fatal(err)
	}

	for _, violation := range h.violations() {
		t.Error(violation)
	}
	t.Logf("%d legs; operations: %v", len(h.legs), counted.by)
	if len(h.legs) < 100 || counted.by["succeeded"] == 0 || counted.by["grant_revoked"] == 0 || counted.by["suspended"] == 0 || counted.by["hold_gone"] == 0 {
		t.Errorf("the history proves nothing: %d legs, %v", len(h.legs), counted.by)
	}
}

// A way is one to take an actor's rights away, which returns the way back.
type way struct {
	name   string
	revoke func(t *testing.T, rig *brokertest.Rig, actor string) (restore func())
}

var ways = []way{
	{"the removal of the grant", func(t *testing.T, rig *brokertest.Rig, actor string) func() {
		set := func(enabled bool) {
			if err := grant(rig, actor, enabled); err != nil {
				t.Fatal(err)
			}
		}
		set(false)
		return func() { set(true) }
	}},
	{"the suspension", func(t *testing.T, rig *brokertest.Rig, actor string) func() {
		var made struct{ ID string }
		if a := rig.Admin(t, "POST", "/v1/suspensions", fmt.Sprintf(`{"actor":%q,"reason":"test"}`, actor), &made); a.Status != 201 {
			t.Fatalf("%s", a.Body)
		}
		return func() {
			if a := rig.Admin(t, "DELETE", "/v1/suspensions/"+made.ID+"?reason=test", "", nil); a.Status >= 300 {
				t.Fatalf("%s", a.Body)
			}
		}
	}},
	{"the end of the caller's word for the actor", func(t *testing.T, rig *brokertest.Rig, actor string) func() {
		change := func(from, to string) {
			if err := rig.Edit(func(yaml string) string { return strings.Replace(yaml, from, to, 1) }); err != nil {
				t.Fatal(err)
			}
		}
		word, none := fmt.Sprintf("%q, ", actor), fmt.Sprintf("%q, ", actor+"x")
		change("asserted: ["+asserted(), "asserted: ["+strings.Replace(asserted(), word, none, 1))
		return func() { change("asserted: ["+strings.Replace(asserted(), word, none, 1), "asserted: ["+asserted()) }
	}},
}

// revokeAndRestore takes rights away and gives them back, each time from
// another actor and in another way; now and then it ends every epoch in Vault.
func revokeAndRestore(t *testing.T, rig *brokertest.Rig, h *history, vault *devvault.Server) {
	for n := range rounds {
		actor, way := name(rand.IntN(actors)), ways[n%len(ways)]
		restore := way.revoke(t, rig, actor)
		h.revoke(actor, way.name)
		await(t, rig)
		h.restore(actor)
		restore()
		if n%10 == 0 {
			h.revokeEpochs(vault)
		}
		await(t, rig)
	}
}

// await lets the load go on for a few more legs.
func await(t *testing.T, rig *brokertest.Rig) {
	before := rig.Archive.Arrived("tools/call")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := rig.Archive.Await(ctx, func() bool { return rig.Archive.Arrived("tools/call") > before+3 }); err != nil {
		t.Fatal("the load stopped: ", err)
	}
}

// counts are how the operations ended, by cause or state.
type counts struct {
	mu sync.Mutex
	by map[string]int
}

func (c *counts) note(a brokertest.Answer, err error) {
	word := string(a.State)
	switch {
	case err != nil:
		word = "no answer"
	case a.Reason != "":
		word = string(a.Reason)
	case a.Cause != "":
		word = string(a.Cause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[word]++
}
