package identity_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/sha256"
	"net/http"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

// TestStill: what proved a caller and an actor to one directory is asked again
// of a newer one. Each row changes one thing of the gateway's entry, or of what
// stands beside it.
func TestStill(t *testing.T) {
	r := newRig(t)
	k1 := func(key crypto.PublicKey) identity.KeySet {
		return keySet(t, map[string]crypto.PublicKey{"k1": key, "k2": r.p384.Public()})
	}
	digest := func(bearer string) [32]byte { return sha256.Sum256([]byte(bearer)) }
	signs := func(change func(*identity.SignedActors)) func([]identity.CallerConfig) {
		return func(c []identity.CallerConfig) { change(c[0].Signed) }
	}
	const before = "gateway-bearer-before-rotation"
	signed, err := r.assert(t, r.sign(t, goodHeader, goodClaims))
	if err != nil {
		t.Fatal(err)
	}
	gateway, auditor := r.caller(t, gatewayBearer), r.caller(t, auditorBearer)
	named, err := r.Actor(gateway, http.Header{"Broker-Actor": {"service:nightly"}})
	if err != nil {
		t.Fatal(err)
	}
	const stands = fault.None
	for _, row := range []struct {
		name          string
		change        func([]identity.CallerConfig)
		signed, named fault.Reason
	}{
		{"nothing", func([]identity.CallerConfig) {}, stands, stands},
		{"caller removed", func(c []identity.CallerConfig) {
			c[0] = c[1]
			c[0].ID, c[0].BearerSHA256 = "third", [][32]byte{digest("third")}
		},
			fault.CallerUnknown, fault.CallerUnknown},
		{"caller renamed", func(c []identity.CallerConfig) { c[0].ID = "gateway2" }, fault.CallerUnknown, fault.CallerUnknown},
		{"bearer removed", func(c []identity.CallerConfig) { c[0].BearerSHA256 = [][32]byte{digest(before)} }, fault.CallerUnknown, fault.CallerUnknown},
		{"other bearer removed", func(c []identity.CallerConfig) { c[0].BearerSHA256 = [][32]byte{digest(gatewayBearer)} }, stands, stands},
		{"bearer rotated, both listed", func(c []identity.CallerConfig) {
			c[0].BearerSHA256 = [][32]byte{digest(gatewayBearer), digest("gateway-bearer-after-rotation")}
		}, stands, stands},
		{"bearer rotated out", func(c []identity.CallerConfig) {
			c[0].BearerSHA256 = [][32]byte{digest("gateway-bearer-after-rotation")}
		}, fault.CallerUnknown, fault.CallerUnknown},
		{"bearer is another caller's", func(c []identity.CallerConfig) {
			c[0].BearerSHA256, c[1].BearerSHA256 = [][32]byte{digest(before)}, [][32]byte{digest(gatewayBearer)}
		}, fault.CallerUnknown, fault.CallerUnknown},
		{"role removed", func(c []identity.CallerConfig) { c[0].Roles = []identity.Role{identity.Audit, identity.Admin} }, fault.RoleMissing, fault.RoleMissing},
		{"role added", func(c []identity.CallerConfig) { c[0].Roles = append(c[0].Roles, identity.Admin) }, stands, stands},

		{"asserted removed", func(c []identity.CallerConfig) { c[0].Asserted = []string{"service:weekly"} }, stands, fault.ActorNotAllowed},
		{"asserted in another way", func(c []identity.CallerConfig) { c[0].Asserted = []string{"user:7"} }, stands, fault.ActorNotAllowed},
		{"asserted added", func(c []identity.CallerConfig) { c[0].Asserted = append(c[0].Asserted, "service:weekly") }, stands, stands},

		{"signed removed", func(c []identity.CallerConfig) { c[0].Signed = nil }, fault.ActorNotAllowed, stands},
		{"signed removed, and asserted instead", func(c []identity.CallerConfig) {
			c[0].Signed, c[0].Asserted = nil, []string{"user:7", "service:nightly"}
		},
			fault.ActorNotAllowed, stands},
		{"subject removed", signs(func(s *identity.SignedActors) { s.Subjects = []string{"user:8", "service:"} }), fault.ActorNotAllowed, stands},
		{"subject named by itself", signs(func(s *identity.SignedActors) { s.Subjects = []string{"user:7"} }), stands, stands},
		{"issuer replaced", signs(func(s *identity.SignedActors) { s.Issuer = "https://other.example.org" }), fault.AssertionInvalid, stands},
		{"audience replaced", signs(func(s *identity.SignedActors) { s.Audience = "another" }), fault.AssertionInvalid, stands},
		{"key removed", signs(func(s *identity.SignedActors) {
			s.Keys = keySet(t, map[string]crypto.PublicKey{"k2": r.p384.Public(), "k3": r.rsa.Public(), "k4": r.ed.Public()})
		}), fault.AssertionInvalid, stands},
		{"key replaced under its kid", signs(func(s *identity.SignedActors) { s.Keys = k1(newEC(t, elliptic.P256()).Public()) }), fault.AssertionInvalid, stands},
		{"another key removed", signs(func(s *identity.SignedActors) { s.Keys = keySet(t, map[string]crypto.PublicKey{"k1": r.p256.Public()}) }), stands, stands},
		{"key under another kid", signs(func(s *identity.SignedActors) { s.Keys = keySet(t, map[string]crypto.PublicKey{"k9": r.p256.Public()}) }), stands, stands},
	} {
		entries := r.entries()
		row.change(entries)
		d, err := identity.NewDirectory(entries, nil)
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		for i, want := range []fault.Reason{row.signed, row.named} {
			a := []identity.Actor{signed, named}[i]
			if got := d.Still(gateway, identity.Operate, a); got != want {
				t.Errorf("%s, for %s: %q, want %q", row.name, a, got, want)
			}
		}
	}

	for _, row := range []struct {
		c    identity.Caller
		r    identity.Role
		a    identity.Actor
		want fault.Reason
	}{
		{identity.Caller{}, identity.Operate, named, fault.CallerUnknown},
		{gateway, identity.Operate, identity.Actor{}, stands},
		{gateway, identity.Admin, identity.Actor{}, fault.RoleMissing},
		{auditor, identity.Audit, identity.Actor{}, stands},
		{auditor, identity.Audit, named, fault.ActorNotAllowed},
		{auditor, identity.Audit, signed, fault.ActorNotAllowed},
	} {
		if got := r.Still(row.c, row.r, row.a); got != row.want {
			t.Errorf("Still(%q, %s, %q) = %q, want %q", row.c.ID(), row.r, row.a, got, row.want)
		}
	}

	// An assertion that has expired since then began its operation in time.
	r.now = r.now.Add(time.Hour)
	if got := r.Still(gateway, identity.Operate, signed); got != stands {
		t.Errorf("an hour later: %q", got)
	}
}

// TestStillKnowsEveryKey: of whatever type the key is that signed.
func TestStillKnowsEveryKey(t *testing.T) {
	r := newRig(t)
	for kid, s := range map[string]struct {
		method jwt.SigningMethod
		key    any
	}{
		"k1": {jwt.SigningMethodES256, r.p256}, "k2": {jwt.SigningMethodES384, r.p384},
		"k3": {jwt.SigningMethodPS256, r.rsa}, "k4": {jwt.SigningMethodEdDSA, r.ed},
	} {
		a, err := r.assert(t, sign(t, s.method, s.key, `{"alg":"`+s.method.Alg()+`","kid":"`+kid+`"}`, goodClaims))
		if err != nil {
			t.Fatalf("%s: %v", kid, err)
		}
		if got := r.Still(r.caller(t, gatewayBearer), identity.Operate, a); got != fault.None {
			t.Errorf("%s: %q", kid, got)
		}
	}
}
