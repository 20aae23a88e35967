package identity_test

import (
	"crypto"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

const approverClaims = `{"iss":"https://people.example.org","sub":"user:8","aud":"approvals","iat":1800000000,"exp":1800000120,"jti":"a-1"}`

// people has the auditor approve, too.
func (r *rig) people() []identity.CallerConfig {
	c := r.entries()
	c[1].Roles = append(c[1].Roles, identity.Approve)
	c[1].Approvers = &identity.SignedActors{Issuer: "https://people.example.org", Audience: "approvals", Keys: r.keys,
		Subjects: []string{"user:8", "user:9"}, Admin: identity.Claim{Name: "roles", Value: "admin"}}
	return c
}

func (r *rig) directory(t *testing.T, callers []identity.CallerConfig) *identity.Directory {
	t.Helper()
	d, err := identity.NewDirectory(callers, func() time.Time { return r.now })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestApprover: one assertion of the right issuer makes an approver, and nothing
// else does. How strict the assertion is read is shown for actors, by the same code.
func TestApprover(t *testing.T) {
	r := newRig(t)
	r.Directory = r.directory(t, r.people())
	signed := func(oldnew ...string) string {
		claims := approverClaims
		for i := 0; i < len(oldnew); i += 2 {
			claims = replace(t, claims, oldnew[i], oldnew[i+1])
		}
		return r.sign(t, goodHeader, claims)
	}
	good := signed()
	for _, row := range []struct {
		name   string
		bearer string
		header http.Header
		want   fault.Reason
	}{
		{"good", auditorBearer, http.Header{"Broker-Approver-Assertion": {good}}, fault.None},
		{"asserted by name", auditorBearer, http.Header{"Broker-Actor": {"user:8"}}, fault.ApproverMissing},
		{"as an actor", auditorBearer, http.Header{"Broker-Actor-Assertion": {good}}, fault.ApproverMissing},
		{"nothing", auditorBearer, http.Header{}, fault.ApproverMissing},
		{"twice", auditorBearer, http.Header{"Broker-Approver-Assertion": {good, good}}, fault.ApproverMissing},
		{"a name in its place", auditorBearer, http.Header{"Broker-Approver-Assertion": {"user:8"}}, fault.AssertionInvalid},
		{"a caller without approvers", gatewayBearer, http.Header{"Broker-Approver-Assertion": {good}}, fault.ApproverNotAllowed},
		{"an actor's assertion", auditorBearer, http.Header{"Broker-Approver-Assertion": {r.sign(t, goodHeader, goodClaims)}}, fault.AssertionInvalid},
		{"another person", auditorBearer, http.Header{"Broker-Approver-Assertion": {signed("user:8", "user:7")}}, fault.ApproverNotAllowed},
		{"no id", auditorBearer, http.Header{"Broker-Approver-Assertion": {signed("user:8", "8")}}, fault.AssertionInvalid},
		{"another issuer", auditorBearer, http.Header{"Broker-Approver-Assertion": {signed("people.example", "others.example")}}, fault.AssertionInvalid},
		{"expired", auditorBearer, http.Header{"Broker-Approver-Assertion": {signed("1800000000", "1799999000", "1800000120", "1799999120")}}, fault.AssertionInvalid},
		{"another key", auditorBearer, http.Header{"Broker-Approver-Assertion": {signAs(t, r, approverClaims)}}, fault.AssertionInvalid},
	} {
		a, err := r.Approver(r.caller(t, row.bearer), row.header)
		if reason(err) != row.want || (err == nil) != (a.String() == "user:8") {
			t.Errorf("%s: %q, %v, want %q", row.name, a, err, row.want)
		}
		if err == nil && (a.Issuer() != "https://people.example.org" || a.JTI() != "a-1" || a.Admin()) {
			t.Errorf("%s: issuer %q, jti %q, admin %v", row.name, a.Issuer(), a.JTI(), a.Admin())
		}
	}
	chief, err := r.Approver(r.caller(t, auditorBearer), http.Header{"Broker-Approver-Assertion": {signed(`"jti"`, `"roles":["admin"],"jti"`)}})
	if err != nil || !chief.Admin() {
		t.Errorf("an administrator: %v, %v", chief.Admin(), err)
	}
	if nobody := (identity.Approver{}); nobody.String()+nobody.Issuer()+nobody.JTI() != "" || nobody.Admin() {
		t.Error("the zero Approver is somebody")
	}
}

func signAs(t *testing.T, r *rig, claims string) string {
	t.Helper()
	own := r.p256
	defer func() { r.p256 = own }()
	r.p256 = r.foreign
	return r.sign(t, goodHeader, claims)
}

// TestApproves: what a newer file says of somebody who was verified before.
func TestApproves(t *testing.T) {
	r := newRig(t)
	for name, row := range map[string]struct {
		change func(*identity.CallerConfig)
		want   bool
	}{
		"nothing":     {func(*identity.CallerConfig) {}, true},
		"all of them": {func(c *identity.CallerConfig) { c.Approvers.Subjects = []string{"user:"} }, true},
		"the person":  {func(c *identity.CallerConfig) { c.Approvers.Subjects = []string{"user:9"} }, false},
		"the issuer":  {func(c *identity.CallerConfig) { c.Approvers.Issuer = "https://others.example.org" }, false},
		"the entry":   {func(c *identity.CallerConfig) { c.Approvers = nil }, false},
		"the role":    {func(c *identity.CallerConfig) { c.Roles, c.Approvers = c.Roles[:1], nil }, false},
		"the caller":  {func(c *identity.CallerConfig) { c.ID = "another" }, false},
		"a key, rotated": {func(c *identity.CallerConfig) {
			c.Approvers.Keys = keySet(t, map[string]crypto.PublicKey{"k9": r.ed.Public()})
		}, true},
	} {
		callers := r.people()
		row.change(&callers[1])
		if got := r.directory(t, callers).Approves("auditor", "https://people.example.org", "user:8"); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestApproversConfig: what in an entry for approvers is refused.
func TestApproversConfig(t *testing.T) {
	r := newRig(t)
	for want, change := range map[string]func([]identity.CallerConfig){
		"approvers: no issuer":                         func(c []identity.CallerConfig) { c[1].Approvers.Issuer = "" },
		"approvers: no audience":                       func(c []identity.CallerConfig) { c[1].Approvers.Audience = "" },
		"approvers: no key":                            func(c []identity.CallerConfig) { c[1].Approvers.Keys = identity.KeySet{} },
		"approvers: no subjects":                       func(c []identity.CallerConfig) { c[1].Approvers.Subjects = nil },
		`approvers: subject "service:": only a person`: func(c []identity.CallerConfig) { c[1].Approvers.Subjects = []string{"service:"} },
		"approvers: without the role approve":          func(c []identity.CallerConfig) { c[1].Roles = []identity.Role{identity.Audit} },
		`are those of the actors of caller "gateway"; give ap`: func(c []identity.CallerConfig) {
			*c[1].Approvers = *c[0].Signed
			c[1].Approvers.Subjects = []string{"user:8"}
		},
	} {
		callers := r.people()
		change(callers)
		if _, err := identity.NewDirectory(callers, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
