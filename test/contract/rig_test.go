package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/store"
)

// A rig is a broker before the server of a profile, which it knows as "peer".
type rig struct {
	*brokertest.Rig
	profile
	server *server
	tamper atomic.Pointer[func(store.Moment, []audit.Record) error]
}

// discovery is the server's own credential for imports and probes.
const discovery = "discovery-of-the-peer"

// start starts a rig. approval is what the operator's file says, as it is written
// there.
func start(t *testing.T, p profile, approval string) *rig {
	r := &rig{profile: p, server: newServer(t, p)}
	r.server.accept = func(token string) bool {
		_, _, _, err := r.Provider.Verify(token, "mcp-records")
		return err == nil || token == discovery
	}
	r.Rig = brokertest.New(t, &brokertest.Options{
		Config: func(yaml string) string { return r.declare(yaml, approval) },
		Tamper: func(at store.Moment, records []audit.Record) error {
			if f := r.tamper.Load(); f != nil {
				return (*f)(at, records)
			}
			return nil
		},
	})
	r.must(t, r.SetCredential(t.Context(), "broker/discovery/peer", discovery))
	return r
}

// declare adds the server to a configuration.
func (r *rig) declare(yaml, approval string) string {
	auth := `{mode: legacy}`
	if r.delegated {
		auth = `{mode: delegated, profile: company, audience: mcp-records, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/peer#value"}`
	}
	yaml = strings.ReplaceAll(yaml, "servers: [records, archive]", "servers: [records, archive, peer]")
	return yaml + fmt.Sprintf(`  peer:
    url: %s
    allow_cidrs: ["127.0.0.0/8"]
    enabled: true
    data_class: %s
    %s
    drain_window: 0s
    auth: %s
    tools: {search: {enabled: true}, find: {enabled: true, effect: read}, off: {enabled: false}}
`, r.server.URL, r.class, approval, auth)
}

// each runs f for every profile, with a broker that may call.
func each(t *testing.T, f func(t *testing.T, r *rig)) {
	for _, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			f(t, start(t, p, "requires_approval: false"))
		})
	}
}

func (r *rig) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// edit changes what the configuration says of the peer and has it read again.
func (r *rig) edit(t *testing.T, old, fresh string) {
	t.Helper()
	r.must(t, r.tryEdit(old, fresh))
}

func (r *rig) tryEdit(old, fresh string) error {
	return r.Edit(func(yaml string) string {
		before, after, found := strings.Cut(yaml, "\n  peer:\n")
		if !found || !strings.Contains(after, old) {
			panic("contract: the configuration has no " + old)
		}
		return before + "\n  peer:\n" + strings.Replace(after, old, fresh, 1)
	})
}

// fail breaks the commit that carries a record of this kind.
func (r *rig) fail(kind audit.Kind) {
	f := func(at store.Moment, records []audit.Record) error {
		if at == store.Committing && slices.ContainsFunc(records, func(rec audit.Record) bool { return rec.Kind == kind }) {
			return errors.New("the disk is gone")
		}
		return nil
	}
	r.tamper.Store(&f)
}

// call calls a tool of the peer: search, if c names none.
func (r *rig) call(t *testing.T, c brokertest.Call) brokertest.Answer {
	t.Helper()
	c.Server = "peer"
	if c.Tool == "" {
		c.Tool = "search"
	}
	return r.Call(t, c)
}

func (r *rig) imports(t *testing.T) (got httpapi.ImportAnswer) {
	t.Helper()
	if a := r.Admin(t, "POST", "/v1/servers/peer/import", "", &got); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return got
}

func (r *rig) probes(t *testing.T) (got httpapi.ProbeAnswer) {
	t.Helper()
	if a := r.Admin(t, "POST", "/v1/servers/peer/probe", "", &got); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return got
}

// seen is what GET /v1/servers says of the peer.
func (r *rig) seen(t *testing.T) httpapi.Server { return r.seenOf(t, "peer") }

func (r *rig) seenOf(t *testing.T, id string) httpapi.Server {
	t.Helper()
	var all struct{ Servers []httpapi.Server }
	r.Admin(t, "GET", "/v1/servers", "", &all)
	i := slices.IndexFunc(all.Servers, func(s httpapi.Server) bool { return s.ID == id })
	if i < 0 || !slices.IsSortedFunc(all.Servers, func(a, b httpapi.Server) int { return strings.Compare(a.ID, b.ID) }) {
		t.Fatalf("servers: %+v", all)
	}
	return all.Servers[i]
}

// contacted reports whether f was one contact or none.
func (r *rig) contacted(t *testing.T, f func()) bool {
	t.Helper()
	before := r.seen(t).Health.Contact
	f()
	return !r.seen(t).Health.Contact.Equal(before)
}

// kept is the catalogue of the peer, by the server's own names.
func (r *rig) kept(t *testing.T) map[string]httpapi.KeptTool {
	t.Helper()
	var got struct{ Tools []httpapi.KeptTool }
	if a := r.Admin(t, "GET", "/v1/servers/peer/tools", "", &got); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	all := map[string]httpapi.KeptTool{}
	for _, k := range got.Tools {
		all[k.Name] = k
	}
	return all
}

// offered is what user:7 may call at the peer, by the server's own names.
func (r *rig) offered(t *testing.T) map[string]httpapi.Tool {
	t.Helper()
	var got struct{ Tools []httpapi.Tool }
	a := r.Get(t, "/v1/tools", brokertest.Call{})
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	all := map[string]httpapi.Tool{}
	for _, o := range got.Tools {
		if o.Server == "peer" {
			all[o.Tool] = o
		}
	}
	return all
}

// told are the words of an answer that a gateway decides by.
func told(a brokertest.Answer) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s%s %s", a.Status, a.State, a.Cause, a.Reason, a.Retry))
}

// records are the audit records of one operation, or of the peer's imports and probes
// where id is empty, each with its kind and, at its end, how it stands. The broker has stopped.
func (r *rig) records(t *testing.T, id string) (all []string) {
	t.Helper()
	for line := range strings.Lines(r.Audit(t)) {
		var rec struct{ Kind, Server, Operation, State, Reason string }
		r.must(t, json.Unmarshal([]byte(line), &rec))
		if rec.Server == "peer" && rec.Operation == id && rec.Kind != "drop" && rec.Kind != "revocation" {
			if rec.Kind == "sending" { // its state is the same word
				rec.State = ""
			}
			all = append(all, strings.TrimSpace(rec.Kind+" "+rec.State+" "+rec.Reason))
		}
	}
	return all
}

// legs are those at the server: what was asked of Vault and of the provider is
// not of the conversation.
func legs(all []audit.Leg) (at []audit.Leg) {
	for _, l := range all {
		if strings.Contains(l.Name, "/") || l.Name == "initialize" {
			at = append(at, l)
		}
	}
	return at
}

// names are the names of tools, in their order.
func names[T any](all map[string]T) string {
	var list []string
	for name := range all {
		list = append(list, name)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// notSent fails t if a call has reached the server.
func (r *rig) notSent(t *testing.T) {
	t.Helper()
	if n := len(r.server.of("tools/call")); n != 0 {
		t.Errorf("%d calls were sent", n)
	}
}
