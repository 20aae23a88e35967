package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/vault"
)

const (
	setUp = "deploy/vault/setup.sh with the flags of before sets all of it up again"
	// drift is how much clocks may differ: lives of tokens are held against them.
	drift = 2 * time.Second
	// capped is more than the cap of the token role, 75 s, as Vault rounds it.
	capped = 76 * time.Second
	// brief is less than a login should live from birth: it is renewed for epochs of 75 s.
	brief = 5 * time.Minute
)

// vault: whether it is there, its clock, the login, an epoch, and what the login may do.
func (e *examination) vault(ctx context.Context) []Finding {
	h, err := e.Vault.Health(ctx)
	if err != nil {
		return []Finding{wrong("vault", err.Error(), Remedy(fault.ReasonOf(err)))}
	}
	findings := []Finding{health(h), clock("clock beside vault", h.Clock, h.Asked, h.Took)}
	if err := e.Vault.Ready(); err != nil {
		return append(findings, wrong("vault login", err.Error(), "look at vault.auth of the configuration and at the log, "+setUp))
	}
	return append(findings, e.login(ctx), e.epoch(ctx), e.rights(ctx))
}

func health(h vault.Health) Finding {
	about, version := "vault", fmt.Sprintf("version %.40q", h.Version)
	switch {
	case !h.Initialized:
		return wrong(about, version+", not initialised", "vault operator init")
	case h.Sealed:
		return wrong(about, version+", sealed", "vault operator unseal")
	case h.Standby:
		return note(about, version+", a standby: each request takes one more hop", "let vault.address be that of the active node, or of a balancer that asks sys/health")
	}
	return ok(about, fmt.Sprintf("%s, answers within %s", version, h.Took.Round(time.Millisecond/10)))
}

// clock judges how far ours is ahead of another, that was told in whole seconds by an
// answer which took so long. In the middle of both the error is least.
func clock(about string, other, asked time.Time, took time.Duration) Finding {
	ahead := asked.Add(took / 2).Sub(other.Add(time.Second / 2))
	off := ahead.Abs()
	if off > drift+took {
		way := "ahead of"
		if ahead < 0 {
			way = "behind"
		}
		return wrong(about, fmt.Sprintf("ours is %s %s it: tokens would be taken for older or younger than they are", off.Round(time.Second), way),
			"timedatectl set-ntp true, here or there; `chronyc tracking` says which is off")
	}
	return ok(about, "no more than "+(drift+took).Round(time.Second).String()+" apart")
}

func (e *examination) login(ctx context.Context) Finding {
	const about = "vault login"
	l, err := e.Vault.Login(ctx)
	method := e.snapshot.Vault.Auth.Method
	again := method != "token" // every other method gets another login by itself
	switch {
	case err != nil:
		return wrong(about, err.Error(), Remedy(fault.ReasonOf(err)))
	case slices.Contains(l.Policies, "root"):
		return wrong(about, "it is root, which may do everything", "log in by approle, kubernetes, jwt or cert: "+setUp)
	case l.Uses > 0:
		return wrong(about, fmt.Sprintf("its token is good for %d more uses, and every operation takes some", l.Uses), "token_num_uses=0 in the role of the auth method")
	case slices.Contains(l.Policies, "default"):
		return wrong(about, "it has Vault's default policy, which allows more than a broker needs", "token_no_default_policy=true in the role of the auth method")
	case l.Whole == 0:
		return wrong(about, "its token never ends: whoever gets hold of it has it for ever", "token_ttl=1h in the role of the auth method, or an expiring token")
	case l.Whole < brief:
		return wrong(about, fmt.Sprintf("its token was given %s at its birth, and epochs of 75s are made from it", l.Whole), "token_ttl=1h in the role of the auth method")
	case !l.Renewable && !again:
		return note(about, fmt.Sprintf("its token ends in %s, is not renewable, and method token has no other", l.Life.Round(time.Second)), "use another vault.auth.method outside of tests")
	}
	return ok(about, fmt.Sprintf("by %s, %s left of %s, policies %s", method, l.Life.Round(time.Second), l.Whole, quoted(l.Policies)))
}

func (e *examination) epoch(ctx context.Context) Finding {
	const about = "vault epoch"
	role := e.snapshot.Vault.Role
	r, err := e.Vault.Rehearse(ctx)
	set := func(what string) string { return "vault write auth/token/roles/" + role + " " + what + "\n" + setUp }
	switch {
	case err != nil:
		return wrong(about, err.Error(), Remedy(fault.ReasonOf(err)))
	case r.Life > capped:
		return wrong(about, fmt.Sprintf("the role %s lets a token live for %s or more, so a broker that was killed could leave tokens in Vault for as long", role, r.Life), set("token_explicit_max_ttl=75s"))
	case r.Orphan:
		return wrong(about, "an epoch does not end with the login that made it", set("orphan=false"))
	case r.Renewable:
		return wrong(about, "an epoch can be renewed", set("renewable=false"))
	case len(r.Policies) != 1:
		return wrong(about, "it has the policies "+quoted(r.Policies)+", and needs one", set("allowed_policies="+role+" token_no_default_policy=true"))
	case len(r.Odd) > 0:
		var odd []string
		for _, o := range r.Odd {
			odd = append(odd, fmt.Sprintf("%s was answered %d, so %s", o.Step, o.Status, o.Means))
		}
		return wrong(about, strings.Join(odd, "; "), "compare policy "+quoted(r.Policies)+" with deploy/vault/broker-op.hcl\n"+setUp)
	}
	return ok(about, fmt.Sprintf("lives %s, and can hold, read and drop, and nothing else", r.Life))
}

func (e *examination) rights(ctx context.Context) Finding {
	const about = "vault policy"
	uses, left := uses(e.snapshot)
	rights, err := e.Vault.Rights(ctx, uses)
	if fault.ReasonOf(err) == fault.VaultDenied {
		return wrong(about, "the login may not ask what it may do", rule("sys/capabilities-self", "update")+"\n"+setUp)
	}
	if err != nil {
		return wrong(about, err.Error(), Remedy(fault.ReasonOf(err)))
	}
	var lacks, excess, add []string
	for _, r := range rights {
		if l := r.Lacks(); len(l) > 0 {
			lacks = append(lacks, fmt.Sprintf("%s of %q (%s)", strings.Join(l, ", "), r.Path, r.For))
			add = append(add, rule(r.Path, r.Needs...))
		}
		if x := r.Excess(); len(x) > 0 {
			excess = append(excess, fmt.Sprintf("%s of %q", strings.Join(x, ", "), r.Pattern()))
		}
	}
	switch {
	case slices.ContainsFunc(rights, func(r vault.Right) bool { return slices.Contains(r.Has, "root") }):
		return wrong(about, "the login is root, which may do everything", setUp)
	case len(lacks) > 0:
		return wrong(about, "the login lacks "+some(lacks, "; "), some(add, "\n")+"\ninto a policy of the login")
	case len(excess) > 0:
		return wrong(about, "the login may do what nothing needs: "+some(excess, "; "), "take it out of the policies of the login: `vault policy read <name>` of each, beside deploy/vault/broker.hcl")
	}
	says := fmt.Sprintf("what is needed at %d paths, and nothing beside", len(rights))
	if left > 0 {
		says += fmt.Sprintf("; %d credentials of grants were not asked for (broker grants orphaned asks for each)", left)
	}
	return ok(about, says)
}

func rule(path string, capabilities ...string) string {
	return fmt.Sprintf("path %q { capabilities = [%s] }", path, quoted(capabilities))
}

func quoted(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = fmt.Sprintf("%.60q", s)
	}
	return strings.Join(q, ", ")
}

// some is the beginning of a list that may be long.
func some(list []string, between string) string {
	const shown = 8
	if len(list) <= shown {
		return strings.Join(list, between)
	}
	return strings.Join(list[:shown], between) + between + fmt.Sprintf("and %d more", len(list)-shown)
}

// mostGrants is for how many credentials of grants Vault is asked.
const mostGrants = 500

// uses are what the configuration has the login do in Vault, and how many of the grants'
// credentials are not among them.
func uses(s *policy.Snapshot) (uses []vault.Use, left int) {
	for _, v := range s.Servers() {
		key := "servers." + v.ID + ".auth."
		uses = append(uses, vault.Use{For: key + "discovery_credential", Read: v.Auth.Discovery}, vault.Use{For: key + "credential", Read: v.Auth.Credential})
	}
	for _, k := range s.Keys.Results {
		uses = append(uses, vault.Use{For: "keys.results", Wrap: k.Transit})
	}
	ofGrants := map[string]vault.Use{}
	for _, p := range s.Profiles() {
		uses = append(uses, clients(p)...)
		for g := range s.Grants(p.ID) {
			if g.Enabled {
				ofGrants[g.Credential.String()] = credential(g)
			}
		}
	}
	uses = slices.DeleteFunc(uses, nothing)
	maps.DeleteFunc(ofGrants, func(_ string, u vault.Use) bool { return nothing(u) })
	for _, which := range slices.Sorted(maps.Keys(ofGrants)) {
		if len(uses) >= mostGrants {
			left++
			continue
		}
		uses = append(uses, ofGrants[which])
	}
	return uses, left
}

func nothing(u vault.Use) bool {
	u.For = ""
	return u == vault.Use{}
}

// clients are what a profile proves the broker with, at each of its steps.
func clients(p *policy.Profile) (uses []vault.Use) {
	for key := "profiles." + p.ID; p != nil; p, key = p.Then, key+".then" {
		uses = append(uses, vault.Use{For: key + ".client.key", Read: p.Client.Key}, vault.Use{For: key + ".client.certificate", Read: p.Client.Certificate},
			vault.Use{For: key + ".client.key", Sign: p.Client.Transit}, vault.Use{For: key + ".actor.credential", Read: p.Actor.Credential})
	}
	return uses
}

func credential(g *policy.Grant) vault.Use {
	u := vault.Use{For: "the grant of " + g.Where}
	switch c := g.Credential; c.Kind {
	case policy.Stored:
		u.Read = c.Ref
	case policy.RefreshToken:
		u.Replace = c.Ref
	case policy.VaultOIDC:
		u.Mount, u.Role = c.Mount, c.Role
	}
	return u
}
