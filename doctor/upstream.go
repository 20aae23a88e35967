package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
)

// used are the enabled servers that can be asked, those first that the caller may ask.
func (e *examination) used() (used []*policy.Server) {
	for _, listed := range []bool{true, false} {
		for _, v := range e.snapshot.Servers() {
			if v.Enabled && v.DataClass != 0 && e.lists(v) == listed {
				used = append(used, v)
			}
		}
	}
	return used
}

// lists reports whether the caller may ask a server.
func (e *examination) lists(v *policy.Server) bool {
	c, known := e.snapshot.Caller(e.by.ID())
	return known && slices.Contains(c.Servers, v.ID)
}

func (e *examination) unlisted(about string, v *policy.Server) []Finding {
	return []Finding{wrong(about, "not looked at: "+v.ID+" is not in this caller's list", "callers."+e.by.ID()+".servers: […, "+v.ID+"]")}
}

// providers makes one dry exchange at each identity provider, and where the broker itself
// is the subject one for each server, since then it is a whole one.
func (e *examination) providers(ctx context.Context) []Finding {
	var ask []*policy.Server
	asked := map[string]bool{}
	for _, v := range e.used() {
		p, delegated := e.snapshot.Profile(v.Auth.Profile)
		if delegated && (p.BrokerIsSubject() || !asked[p.ID]) {
			asked[p.ID] = true
			ask = append(ask, v)
		}
	}
	about := func(v *policy.Server) string { return "provider " + v.Auth.Profile }
	return each(ctx, few, ask, about, func(ctx context.Context, v *policy.Server) []Finding {
		if !e.lists(v) {
			return e.unlisted(about(v), v)
		}
		found, err := e.Runner.DryExchange(ctx, e.by, v.ID)
		p, _ := e.snapshot.Profile(v.Auth.Profile)
		return []Finding{exchanged(about(v), p, v, found, err)}
	})
}

func exchanged(about string, p *policy.Profile, v *policy.Server, found, err error) Finding {
	var f *fault.Error
	switch {
	case err != nil:
		return wrong(about, "not asked: "+string(fault.ReasonOf(err)), Remedy(fault.ReasonOf(err)))
	case errors.As(found, &f):
		return wrong(about, f.Error(), ofProvider(p, v, f.Reason))
	case found != nil:
		return wrong(about, string(fault.ReasonOf(found)), Remedy(fault.ReasonOf(found)))
	case p.BrokerIsSubject():
		return ok(about, "issues a token of the broker's own for "+v.Auth.Audience+", which was dropped")
	case p.Then != nil:
		return ok(about, "its first step takes us as "+quoted([]string{p.Client.ID})+" and refuses a token that is none; the second was not asked")
	}
	return ok(about, "takes us as "+quoted([]string{p.Client.ID})+" and refuses a token that is none")
}

// ofProvider is what to do about a provider's answer.
func ofProvider(p *policy.Profile, v *policy.Server, r fault.Reason) string {
	key := "profiles." + p.ID
	switch r {
	case fault.ProviderUnreachable, fault.WallClock:
		return fmt.Sprintf("curl -v %s from this host: name, port, firewall; %s.token_endpoint, .allow_cidrs, .ca", p.TokenEndpoint, key)
	case fault.ProviderConfig:
		return key + ".client: id, auth and key as the provider has them; and does it let this client exchange tokens?"
	case fault.TargetRejected:
		return fmt.Sprintf("let the provider issue for %q to this client; servers.%s.auth.audience, %s.audience_param", v.Auth.Audience, v.ID, key)
	case fault.ScopeRejected:
		return fmt.Sprintf("let the provider grant %s to this client; servers.%s.auth.scopes", quoted(v.Auth.Scopes), v.ID)
	case fault.WrongSubject:
		return "do not use this provider: it gives tokens to anybody"
	case fault.CredentialMissing:
		return "vault kv put what " + key + ".client names"
	}
	return Remedy(r)
}

// servers probes each server.
func (e *examination) servers(ctx context.Context) []Finding {
	about := func(v *policy.Server) string { return "server " + v.ID }
	return each(ctx, few, e.used(), about, func(ctx context.Context, v *policy.Server) []Finding {
		if !e.lists(v) {
			return e.unlisted(about(v), v)
		}
		found, err := e.Runner.Probe(ctx, operation.Asker{Caller: e.by}, v.ID)
		return []Finding{probed(about(v), v, found, err)}
	})
}

func probed(about string, v *policy.Server, found operation.Discovery, err error) Finding {
	reason := found.Outcome.Cause
	if err != nil {
		reason = fault.ReasonOf(err)
	}
	key := "servers." + v.ID
	switch {
	case reason == fault.DiscoveryMissing:
		return note(about, "not asked: it has no discovery credential", key+".auth.discovery_credential: vault:…; without one neither import nor probe works")
	case err != nil:
		return wrong(about, "not asked: "+string(reason), Remedy(reason))
	case found.Sight.Is == mcpclient.Up:
		return ok(about, fmt.Sprintf("up, speaks %s (%s)", found.Spoken, found.Era))
	case found.Sight.Is == mcpclient.Down:
		return wrong(about, "down: "+string(reason), fmt.Sprintf("curl -v %s from this host: name, port, firewall; %s.url, .allow_cidrs, .ca", v.URL, key))
	case found.Sight.Is == mcpclient.Unwelcome:
		return wrong(about, "it refuses the discovery credential: "+string(reason), "vault kv put a live token where "+key+".auth.discovery_credential says")
	case found.Sight.Is == mcpclient.WrongProtocol:
		return wrong(about, "it does not speak MCP with us: "+string(reason), key+".url with its path, .era and .versions")
	}
	return wrong(about, "not asked: "+string(reason), Remedy(reason))
}
