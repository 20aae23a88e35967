package operation_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/store"
)

// TestChangedArgument: a key belongs to its arguments, while the call goes on and
// when it has ended, in whatever way. The change begins nothing and the call stays.
func TestChangedArgument(t *testing.T) {
	rig := brokertest.New(t, nil)
	refuse := func(c brokertest.Call) {
		t.Helper()
		heard := heardBy(rig)
		before := rig.Get(t, "/v1/operations?request_key="+c.Key, c)
		c.Arguments = map[string]any{"job": "another"}
		for _, a := range mesh(t, rig, c) {
			if a.Status != 422 || a.Reason != fault.RequestKeyConflict {
				t.Errorf("%s: %d %s", c.Key, a.Status, a.Body)
			}
		}
		if now := rig.Get(t, "/v1/operations?request_key="+c.Key, c); !bytes.Equal(now.Body, before.Body) || heardBy(rig) != heard {
			t.Errorf("%s: %s\nwas %s", c.Key, now.Body, before.Body)
		}
	}
	drop := brokertest.Call{Tool: "drop", Key: "unknown", Arguments: map[string]any{"job": "one"}}
	rig.Call(t, drop)
	refuse(drop)
	done := brokertest.Call{Tool: "job", Key: "succeeded", Arguments: map[string]any{"job": "one"}}
	rig.Call(t, done)
	refuse(done)

	release := rig.Records.Hold("tools/call")
	defer release()
	going := brokertest.Call{Tool: "job", Key: "sending", Arguments: map[string]any{"job": "one"}, Prefer: "respond-async"}
	rig.Call(t, going)
	if err := rig.Records.Await(t.Context(), func() bool { return rig.Records.Arrived("tools/call") == 3 }); err != nil {
		t.Fatal(err)
	}
	refuse(going)
}

// TestSomebodyElsesKey: whoever sends the key of another gets what a key gets that
// never was, byte for byte, and the other's call hears nothing of it.
func TestSomebodyElsesKey(t *testing.T) {
	rig := brokertest.New(t, nil)
	a := rig.Call(t, brokertest.Call{Key: "k"})
	other := brokertest.Call{Actor: "user:8"}
	send := func(key string) brokertest.Answer {
		c := other
		c.Key = key
		return rig.Call(t, c)
	}
	absent := "/v1/operations/" + strings.Repeat("a", 26)
	for name, pair := range map[string][2]brokertest.Answer{
		"sends it":       {send("k"), send("never")},
		"asks for it":    {rig.Get(t, "/v1/operations?request_key=k", other), rig.Get(t, "/v1/operations?request_key=never", other)},
		"asks for its":   {rig.Get(t, "/v1/operations/"+a.ID, other), rig.Get(t, absent, other)},
		"cancels it":     {rig.Cancel(t, a.ID, other), rig.Cancel(t, strings.Repeat("a", 26), other)},
		"lists":          {rig.Get(t, "/v1/operations", other), rig.Get(t, "/v1/operations", other)},
		"supersedes its": {rig.Call(t, brokertest.Call{Actor: "user:8", Supersedes: a.ID}), rig.Call(t, brokertest.Call{Actor: "user:8", Supersedes: strings.Repeat("a", 26)})},
	} {
		got, want := pair[0], pair[1]
		got.Header.Del("Date")
		want.Header.Del("Date")
		if got.Status != want.Status || !bytes.Equal(got.Body, want.Body) || fmt.Sprint(got.Header) != fmt.Sprint(want.Header) {
			t.Errorf("%s: %d %v %s\nwant %d %v %s", name, got.Status, got.Header, got.Body, want.Status, want.Header, want.Body)
		}
		if bytes.Contains(got.Body, []byte(a.ID)) {
			t.Errorf("%s: %s", name, got.Body)
		}
	}
	portal := brokertest.Call{Bearer: rig.PortalBearer(), Assertion: rig.Assert("user:7"), Key: "k"}
	if b := rig.Call(t, portal); b.State != fault.Succeeded || b.ID == a.ID || b.Header.Get("Broker-Replayed") != "" {
		t.Errorf("another caller's own key of this name: %s", b.Body)
	}
	if n := rig.Records.Calls("whoami"); n != 2 {
		t.Errorf("the tool ran %d times", n)
	}
}

// TestMeshAfterTheGrant: what is repeated when the grant is gone is told, without
// what the server said, and nothing is sent.
func TestMeshAfterTheGrant(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: recoverable})
	calls := []brokertest.Call{
		{Key: "succeeded"},
		{Key: "tool_error", Tool: "fail"},
		{Key: "rpc_error", Tool: "drop", Arguments: map[string]string{"job": "a", "then": "invalid"}},
		{Key: "unknown", Tool: "drop", Arguments: map[string]string{"job": "b"}},
	}
	var before []brokertest.Answer
	for _, c := range calls {
		before = append(before, rig.Call(t, c))
	}
	if err := rig.Edit(disableGrant); err != nil {
		t.Fatal(err)
	}
	heard := heardBy(rig)
	for n, c := range calls {
		if string(before[n].State) != c.Key {
			t.Errorf("%s: %s", c.Key, before[n].Body)
		}
		for _, a := range mesh(t, rig, c) {
			withheld := a.Withheld == fault.GrantRevoked || c.Key == "unknown" && a.Withheld == fault.None
			if a.ID != before[n].ID || told(a) != told(before[n]) || a.Result != nil || a.Error != nil || a.Text != "" || !withheld {
				t.Errorf("%s: %s\nwas %s", c.Key, a.Body, before[n].Body)
			}
		}
	}
	if now := heardBy(rig); now != heard {
		t.Errorf("%d calls and exchanges without a grant", now-heard)
	}
}

// TestNoCommitNoCall: as long as the ledger does not take "sending", no call of many
// reaches a server, on a new connection (records) and on one that the handshake has
// used (archive). Then each runs by its own key, once.
func TestNoCommitNoCall(t *testing.T) {
	const times = 60
	b := &bench{t: t}
	b.Rig = brokertest.New(t, &brokertest.Options{Tamper: b.interfere})
	b.commit(audit.Sending, store.Applying)
	b.all(times, func(c brokertest.Call) {
		if a, err := b.Do(t.Context(), c); err != nil || a.State != fault.NotSent {
			t.Errorf("%v %s", err, a.Body)
		}
	})
	for name, server := range eras(b.Rig) {
		if n := server.Arrived("tools/call"); n != 0 {
			t.Errorf("%d calls reached %s", n, name)
		}
	}
	b.tamper.Store(nil)
	b.all(times, func(c brokertest.Call) {
		a, err := b.Do(t.Context(), c)
		for range 9 { // a busy machine may be late for a check: "safe", then
			if a.State == fault.NotSent {
				a, err = b.Do(t.Context(), c)
			}
		}
		if err != nil || a.State != fault.Succeeded || a.Attempt < 2 {
			t.Errorf("%v %s", err, a.Body)
		}
	})
	for name, server := range eras(b.Rig) {
		if n := server.Arrived("tools/call"); n != times || server.Calls("whoami") != times {
			t.Errorf("%d calls reached %s, want %d", n, name, times)
		}
	}
}

// all has do make so many calls of both servers, each with its own key, four at once.
func (b *bench) all(times int, do func(brokertest.Call)) {
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() {
			for n := worker; n < times; n += 4 {
				do(brokertest.Call{Server: "records", Key: fmt.Sprint("records-", n)})
				do(brokertest.Call{Server: "archive", Key: fmt.Sprint("archive-", n)})
			}
		})
	}
	workers.Wait()
}

// TestNoKeyHeader: some clients and proxies send a request again if it has one of
// these headers. What a gateway brings of them goes to nobody.
func TestNoKeyHeader(t *testing.T) {
	var mu sync.Mutex
	seen := map[string][]string{} // :: who → the names of all headers
	note := func(who string) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				for name := range r.Header {
					seen[who] = append(seen[who], name)
				}
				mu.Unlock()
				next.ServeHTTP(w, r)
			})
		}
	}
	dev := devvault.New(devvault.Options{})
	vault := httptest.NewServer(note("vault")(dev))
	defer vault.Close()
	rig := brokertest.New(t, &brokertest.Options{Vault: vault.URL, VaultToken: dev.RootToken()})
	rig.Provider.Break(note("provider"))
	rig.Records.Break(note("records"))
	rig.Archive.Break(note("archive"))
	for server := range eras(rig) {
		body := fmt.Sprintf(`{"server":%q,"tool":"whoami","request_key":%[1]q}`, server)
		req, err := http.NewRequestWithContext(t.Context(), "POST", rig.URL+"/v1/operations", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer " + rig.Bearer, "Broker-Actor": "user:7", "Content-Type": "application/json",
			"Idempotency-Key": "of-the-gateway", "X-Idempotency-Key": "of-the-gateway"} {
			req.Header.Set(name, value)
		}
		res, err := testhttp.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.Header.Get("Broker-Outcome") != "succeeded; retry=never" {
			t.Errorf("%s: %d %v", server, res.StatusCode, res.Header)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, who := range []string{"vault", "provider", "records", "archive"} {
		if len(seen[who]) == 0 || slices.ContainsFunc(seen[who], func(name string) bool { return strings.Contains(name, "Idempotency") }) {
			t.Errorf("%s got %q", who, seen[who])
		}
	}
}
