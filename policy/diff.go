package policy

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"
)

// A Change is what became of one actor's grant in a profile.
type Change struct {
	Kind           ChangeKind
	Actor, Profile string
	Gained, Lost   []string // sorted; what the grant gives, in words
	Old, New       string   // file:line of the grant; empty: there is none
}

// A ChangeKind says whether anybody has to look.
type ChangeKind string

const (
	Added    ChangeKind = "added"
	Removed  ChangeKind = "removed"
	Widened  ChangeKind = "widened" // something was gained, whatever was lost besides
	Narrowed ChangeKind = "narrowed"
)

// Wider reports whether somebody may do what nobody could before.
func (k ChangeKind) Wider() bool { return k == Added || k == Widened }

// Diff yields the grants that do not give the same in both files, sorted by actor
// and profile. It asks no clock, and a grant that is disabled in both is compared
// like any other.
func Diff(before, after *Snapshot) iter.Seq[Change] {
	old, fresh := before.report(time.Time{}), after.report(time.Time{})
	return func(yield func(Change) bool) {
		for _, key := range grantKeys(before, after) {
			c := Change{Actor: key.actor, Profile: key.profile}
			was, is := old.powers(key, &c.Old), fresh.powers(key, &c.New)
			c.Gained, c.Lost = is.beyond(was), was.beyond(is)
			if c.Kind = c.kind(); c.Kind != "" && !yield(c) {
				return
			}
		}
	}
}

func (c Change) kind() ChangeKind {
	switch {
	case c.Old == "":
		return Added
	case c.New == "":
		return Removed
	case c.Gained != nil:
		return Widened
	case c.Lost != nil:
		return Narrowed
	}
	return ""
}

// A grantKey names a grant in any file.
type grantKey struct{ actor, profile string }

// grantKeys are those of all snapshots, sorted, each once.
func grantKeys(all ...*Snapshot) (keys []grantKey) {
	for _, s := range all {
		for profile, grants := range s.grants {
			for actor := range grants {
				keys = append(keys, grantKey{actor, profile})
			}
		}
	}
	slices.SortFunc(keys, func(a, b grantKey) int {
		return cmp.Or(cmp.Compare(a.actor, b.actor), cmp.Compare(a.profile, b.profile))
	})
	return slices.Compact(keys)
}

// A power is one thing that a grant gives. Without a value it is all of them: any
// subject, any definition, no end.
type power struct{ about, value string }

// until is what a power is about that ends: a later day has the earlier one in it.
const until = "until"

// powers is all that a grant gives, so that more powers are a wider grant. A
// condition is therefore the power of whoever does without it.
type powers map[power]bool

// powers returns what the grant gives, and sets where to its line.
func (r *report) powers(key grantKey, where *string) powers {
	g, ok := r.Grant(key.profile, key.actor)
	if !ok {
		return nil
	}
	*where = g.Where
	all := powers{}
	all.add("credential", g.Credential.String())
	all.add("subject", g.Subject)
	all.add(until, r.row(g, r.at).Expires)
	all.add("token endpoint", r.profiles[g.Profile].endpoints())
	all.add("audience", g.AllowedAudiences...)
	all.add("scope", g.AllowedScopes...)
	if g.Enabled {
		all.add("grant", "enabled")
	}
	for to := range r.opened(g) {
		r.addRemote(all, g, to)
	}
	return all
}

// addRemote adds what the grant gives at one tool.
func (r *report) addRemote(all powers, g *Grant, to remote) {
	name := to.ID + "/" + to.tool
	all.add("tool", name)
	all.add(name+" by", r.through(calling, r.callers, g.Actor, to)...)
	all.add(name+" definition", to.Tools[to.tool].Pin)
	all.add(to.ID+" at", to.URL.String())
	all.add(to.ID+" audience", to.Auth.Audience)
	all.add(to.ID+" scope", to.Auth.Scopes...)
	if !to.RequiresApproval {
		all.add(name, "without approval")
	}
	if !to.Tools[to.tool].RequiresAdmin {
		all.add(name, "without an administrator")
	}
}

func (p powers) add(about string, values ...string) {
	for _, v := range values {
		p[power{about, v}] = true
	}
}

// beyond are the powers of p that o does not have, in words, sorted.
func (p powers) beyond(o powers) (words []string) {
	for x := range p {
		if !o.covers(x) {
			words = append(words, x.about+" "+cmp.Or(x.value, "any"))
		}
	}
	slices.Sort(words)
	return words
}

// covers reports whether p has x, or what x is a part of.
func (p powers) covers(x power) bool {
	if p[x] || p[power{about: x.about}] {
		return true
	}
	for y := range p {
		if y.about == until && x.about == until && x.value != "" && y.value >= x.value {
			return true
		}
	}
	return false
}

// endpoints are where the credential goes, and then what that issues.
func (p *Profile) endpoints() string {
	var all []string
	for ; p != nil; p = p.Then {
		all = append(all, p.TokenEndpoint.String())
	}
	return strings.Join(all, " then ")
}
