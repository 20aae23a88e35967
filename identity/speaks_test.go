package identity_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

// TestSpeaks: what the entry alone says of a caller and an actor is what a request
// of that caller finds out.
func TestSpeaks(t *testing.T) {
	r := newRig(t)
	entries := r.entries()
	entries[1].Asserted = []string{"user:7"} // without the role operate that is nothing
	d, err := identity.NewDirectory(entries, func() time.Time { return r.now })
	if err != nil {
		t.Fatal(err)
	}
	r.Directory = d
	for _, row := range []struct {
		caller, actor string
		want          fault.Reason
		proves        bool
	}{
		{"gateway", "user:7", fault.None, true},           // signed, by its prefix
		{"gateway", "service:weekly", fault.None, true},   // signed, by itself
		{"gateway", "service:nightly", fault.None, false}, // named: an administrator is what an assertion proves
		{"gateway", "service:hourly", fault.ActorNotAllowed, false},
		{"gateway", "", fault.ActorNotAllowed, false},
		{"gateway", "user:", fault.None, true}, // all of a kind
		{"gateway", "service:", fault.ActorNotAllowed, false},
		{"auditor", "user:7", fault.RoleMissing, false},
		{"nobody", "user:7", fault.CallerUnknown, false},
	} {
		if got := r.Speaks(row.caller, row.actor); got != row.want {
			t.Errorf("%s for %q: %q, want %q", row.caller, row.actor, got, row.want)
		}
		if got := r.Proves(row.caller, row.actor); got != row.proves {
			t.Errorf("%s proves %q: %v", row.caller, row.actor, got)
		}
		if row.caller != "gateway" || identity.ParseActorID(row.actor) != nil {
			continue
		}
		_, named := r.Actor(r.caller(t, gatewayBearer), http.Header{"Broker-Actor": {row.actor}})
		_, signed := r.assert(t, r.sign(t, goodHeader, strings.Replace(goodClaims, "user:7", row.actor, 1)))
		if (named == nil || signed == nil) != (row.want == fault.None) {
			t.Errorf("%s for %q: %q, and a request %v, %v", row.caller, row.actor, row.want, named, signed)
		}
	}
	for caller, want := range map[string][]string{"gateway": {"service:nightly", "service:weekly", "user:"}, "auditor": nil, "nobody": nil} {
		if got := r.Actors(caller); !slices.Equal(got, want) {
			t.Errorf("actors of %s: %q", caller, got)
		}
	}
}

// Without a claim that says so, nobody is proven to be an administrator.
func TestProvesByItsClaim(t *testing.T) {
	r := newRig(t)
	entries := r.entries()
	entries[0].Signed.Admin = identity.Claim{}
	d, err := identity.NewDirectory(entries, nil)
	if err != nil || d.Proves("gateway", "user:7") {
		t.Errorf("%v, proven", err)
	}
}
