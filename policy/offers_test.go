package policy_test

import (
	"strings"
	"testing"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

var (
	looked  = "sha256:" + strings.Repeat("1", 64)
	another = "sha256:" + strings.Repeat("2", 64)
)

// TestOffers: what the last import found decides over what the operator has named,
// and a pin over what the server may say. Each line is refused or allowed alike for
// a new call, for the next leg of one that was allowed, and by Explain.
func TestOffers(t *testing.T) {
	offered := func(o policy.Offer) policy.Offers { return policy.Offers{"records": {"search": o}} }
	for name, r := range map[string]struct {
		pin    string
		offers policy.Offers
		want   fault.Reason
	}{
		"never imported":                      {"", nil, fault.None},
		"never imported, pinned":              {looked, nil, fault.ToolNotOffered},
		"another server was imported":         {"", policy.Offers{"static": {}}, fault.None},
		"another server was imported, pinned": {looked, policy.Offers{"static": {"search": {Pin: looked}}}, fault.ToolNotOffered},
		"offered":                             {"", offered(policy.Offer{Pin: another}), fault.None},
		"offered as pinned":                   {looked, offered(policy.Offer{Pin: looked}), fault.None},
		"offered otherwise than pinned":       {looked, offered(policy.Offer{Pin: another}), fault.ToolChanged},
		"not offered":                         {"", policy.Offers{"records": {}}, fault.ToolNotOffered},
		"not offered, pinned":                 {looked, policy.Offers{"records": {}}, fault.ToolNotOffered},
		"vanished":                            {"", offered(policy.Offer{Pin: looked, Orphaned: true}), fault.ToolNotOffered},
		"vanished, pinned":                    {looked, offered(policy.Offer{Pin: looked, Orphaned: true}), fault.ToolNotOffered},
		"came back":                           {"", offered(policy.Offer{Pin: looked, Returned: true}), fault.ToolChanged},
		"came back as pinned":                 {looked, offered(policy.Offer{Pin: looked, Returned: true}), fault.None},
		"came back otherwise than pinned":     {looked, offered(policy.Offer{Pin: another, Returned: true}), fault.ToolChanged},
	} {
		t.Run(name, func(t *testing.T) {
			const tool = "search: {enabled: true, effect: read}"
			h := policy.NewHolder(load(t, config(t)))
			q := question(t, h.Current(), "gateway", "user:7", "records", "search")
			before, err := h.Current().Decide(q, now)
			if err != nil {
				t.Fatal(err)
			}
			if r.pin != "" {
				h.Swap(load(t, config(t, tool, `search: {enabled: true, effect: read, pin: "`+r.pin+`"}`)))
			}
			h.SetOffers(r.offers)
			q = question(t, h.Current(), "gateway", "user:7", "records", "search")
			if _, err := h.Current().Decide(q, now); reason(err) != r.want {
				t.Errorf("Decide = %v, want %q", err, r.want)
			}
			if _, why := h.Current().Explain("gateway", "user:7", "records", "search", now); why != string(r.want) {
				t.Errorf("Explain says %q, want %q", why, r.want)
			}
			leg := r.want
			if leg == fault.ToolNotOffered {
				leg = fault.GrantRevoked
			}
			if err := h.Current().Stands(before, now); reason(err) != leg {
				t.Errorf("Stands = %v, want %q", err, leg)
			}
			if why := h.Current().Withholds(q, now); why != fault.None {
				t.Errorf("a result of before is withheld: %q", why)
			}
		})
	}
}

// TestOffersStay: neither a new file nor a suspension forgets them.
func TestOffersStay(t *testing.T) {
	h := policy.NewHolder(load(t, config(t)))
	h.SetOffers(policy.Offers{"records": {}})
	h.Swap(load(t, config(t)))
	s := policy.Suspension{ID: "x", Target: policy.Target{Sort: "actor", Name: "user:9"}, Since: now}
	if _, _, err := h.Suspend(s, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, _, imported := h.Current().Offer("records", "search"); !imported {
		t.Error("forgotten")
	}
}

// TestAStricterZone: a request can ask for less trust than its caller has, never for
// more.
func TestAStricterZone(t *testing.T) {
	s := load(t, config(t))
	for zone, want := range map[policy.Zone]fault.Reason{0: fault.None, 1: fault.ZoneExceeded, 2: fault.None, 4: fault.None} {
		q := question(t, s, "gateway", "user:7", "records", "search")
		q.Zone = zone
		if _, err := s.Decide(q, now); reason(err) != want {
			t.Errorf("%s: %v, want %q", zone, err, want)
		}
		q.Server = "secrets"
		if _, err := s.Decide(q, now); reason(err) != fault.ZoneExceeded {
			t.Errorf("%s: a request got trust: %v", zone, err)
		}
	}
}

// TestAdministrator: a tool that needs one is refused to whom nothing proves to be
// one. That an assertion can is tested in package identity.
func TestAdministrator(t *testing.T) {
	s := load(t, config(t, "search: {enabled: true, effect: read}", "search: {enabled: true, effect: read, requires_admin: true}"))
	if _, err := s.Decide(question(t, s, "gateway", "user:7", "records", "search"), now); reason(err) != fault.AdminRequired {
		t.Errorf("an asserted actor: %v", err)
	}
}
