package policy_test

import (
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

// withApprovers has the caller lonely bring user:8 and user:9 as approvers.
func withApprovers(t *testing.T, oldnew ...string) *policy.Snapshot {
	t.Helper()
	text := strings.Replace(config(t, oldnew...), "    roles: [operate]\n", `    roles: [operate, approve]
    approvers: {issuer: https://people.example.org, jwks: gateway.jwks, audience: approvals, subjects: ["user:8", "user:9", "user:7"], admin: {claim: roles, value: admin}}
`, 1)
	s, err := policy.Load(write(t, map[string]string{"profiles.yaml": text, "gateway.jwks": sampleKeys(t)}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	eight = policy.Consent{By: "lonely", Issuer: "https://people.example.org", Subject: "user:8"}
	chief = policy.Consent{By: "lonely", Issuer: "https://people.example.org", Subject: "user:8", Admin: true}
)

// TestMayApprove: an approver passes the gate of the call but for the grant, which
// is the actor's, and never decides about what is done on its own behalf.
func TestMayApprove(t *testing.T) {
	with := func(change func(*policy.Consent)) policy.Consent {
		c := eight
		change(&c)
		return c
	}
	const search = "search: {enabled: true, effect: read}"
	type row struct {
		oldnew       []string
		caller       string
		server, tool string
		who          policy.Consent
		want         fault.Reason
	}
	allow := func(server, tool string, who policy.Consent, oldnew ...string) row {
		return row{oldnew, "gateway", server, tool, who, fault.None}
	}
	deny := func(server, tool string, who policy.Consent, want fault.Reason, oldnew ...string) row {
		return row{oldnew, "gateway", server, tool, who, want}
	}
	for _, r := range []row{
		allow("records", "search", eight), // whose own grant is disabled
		allow("asking", "search", eight),
		allow("records", "search", with(func(c *policy.Consent) { c.Subject = "user:9" })), // who has none
		allow("records", "search", chief, search, "search: {enabled: true, requires_admin: true}"),

		deny("records", "search", with(func(c *policy.Consent) { c.Subject = "user:7" }), fault.ApproverIsActor),
		deny("records", "search", policy.Consent{}, fault.ApproverIsActor), // nobody
		deny("records", "search", with(func(c *policy.Consent) { c.Subject = "user:6" }), fault.ApproverNotAllowed),
		deny("records", "search", with(func(c *policy.Consent) { c.Issuer = "https://other.example.org" }), fault.ApproverNotAllowed),
		deny("records", "search", with(func(c *policy.Consent) { c.By = "gateway" }), fault.ApproverNotAllowed), // has no approvers
		deny("records", "search", with(func(c *policy.Consent) { c.By = "nobody" }), fault.ApproverNotAllowed),
		deny("records", "search", eight, fault.AdminRequired, search, "search: {enabled: true, requires_admin: true}"),
		deny("nowhere", "search", eight, fault.ServerUnknown),
		deny("off", "search", eight, fault.ServerDisabled),
		deny("inert", "search", eight, fault.ServerInert),
		deny("records", "drop", eight, fault.ToolUnknown),
		deny("records", "purge", eight, fault.ToolDisabled),
		deny("secrets", "search", eight, fault.ZoneExceeded), // by the operation's caller
		{nil, "lonely", "records", "search", eight, fault.ServerNotAllowed},
	} {
		err := withApprovers(t, r.oldnew...).MayApprove(r.caller, "user:7", r.server, r.tool, r.who, now)
		if reason(err) != r.want {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestMayApproveNewest: suspensions and imports count for an approver as for an
// actor.
func TestMayApproveNewest(t *testing.T) {
	for _, r := range []struct {
		target policy.Target
		offers policy.Offers
		want   fault.Reason
	}{
		{want: fault.None},
		{target: policy.Target{Sort: "actor", Name: "user:8"}, want: fault.Suspended},
		{target: policy.Target{Sort: "actor", Name: "user:9"}, want: fault.None},
		{target: records, want: fault.Suspended},
		{target: company, want: fault.Suspended},
		{offers: policy.Offers{"records": {"search": {Pin: "sha256:1"}}}, want: fault.None},
		{offers: policy.Offers{"records": {}}, want: fault.ToolNotOffered},
		{offers: policy.Offers{"records": {"search": {Returned: true}}}, want: fault.ToolChanged},
	} {
		h := policy.NewHolder(withApprovers(t))
		h.SetOffers(r.offers)
		if r.target.Name != "" {
			s := policy.Suspension{ID: "s", Target: r.target, Reason: "r", By: "admin", Since: now, Until: now.Add(time.Hour)}
			if _, _, err := h.Suspend(s, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Current().MayApprove("gateway", "user:7", "records", "search", eight, now); reason(err) != r.want {
			t.Errorf("%v, %v: %v, want %q", r.target, r.offers, err, r.want)
		}
	}
}

// TestNeedsApproval: true unless the file says false, and never for discovery; the
// checks show which.
func TestNeedsApproval(t *testing.T) {
	s := load(t, config(t))
	for server, want := range map[string]bool{"asking": true, "records": false} {
		d, err := s.Decide(question(t, s, "gateway", "user:7", server, "search"), now)
		if err != nil || d.NeedsApproval() != want {
			t.Errorf("%s: %v, %v", server, d.NeedsApproval(), err)
		}
		checks, _ := s.Explain("gateway", "user:7", server, "search", now)
		last := checks[len(checks)-1]
		if value := map[bool]string{true: "an approver decides", false: "not needed"}[want]; last.Name != "approval" || !last.OK || last.Value != value {
			t.Errorf("%s: %+v", server, last)
		}
	}
	s = load(t, config(t, "scopes: [records.read]}\n    tools: {search: {enabled: true}}\n  secrets", "scopes: [records.read], discovery_credential: \"vault:kv/x#y\"}\n    tools: {search: {enabled: true}}\n  secrets"))
	if d, err := s.DecideDiscovery(question(t, s, "gateway", "", "asking", "").Caller, "asking", now); err != nil || d.NeedsApproval() {
		t.Errorf("discovery: %v", err)
	}
}
