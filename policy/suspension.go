package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"onbehalf.internal/broker/fault"
)

// A Target is what a suspension stops: one actor, server or profile. The
// configuration need not know it, now or later.
type Target struct {
	Sort string // "actor", "server" or "profile"
	Name string
}

// sorts are the sorts of targets, and what names one of each.
var sorts = map[string]rule{"actor": actorID, "server": serverID, "profile": profileID}

func (t Target) String() string { return t.Sort + " " + t.Name }

// Problem says what is wrong with t; "" for nothing. All actors of a sort are no
// target: an empty variable in somebody's script would stop everybody.
func (t Target) Problem() string {
	named, ok := sorts[t.Sort]
	if !ok {
		return "must be an actor, a server or a profile"
	}
	return named(t.Name)
}

// A Suspension stops a Target, whatever grants it has, from Since until Until or
// until it is lifted.
type Suspension struct {
	ID     string // 26 characters; made by who suspends
	Target Target
	Reason string // the admin's own words
	By     string // caller
	Since  time.Time
	Until  time.Time // zero: until it is lifted
}

// Stands reports whether s stops its target at the given time. The interval is
// half-open: at Until itself it is over.
func (s Suspension) Stands(at time.Time) bool { return s.Until.IsZero() || at.Before(s.Until) }

// same reports whether s and o say one thing: then the second was a repeat.
func (s Suspension) same(o Suspension) bool {
	return s.Target == o.Target && s.Reason == o.Reason && s.By == o.By && s.Until.Equal(o.Until)
}

// outlasts reports whether s stands when o no longer does.
func (s Suspension) outlasts(o Suspension) bool {
	return !o.Until.IsZero() && (s.Until.IsZero() || s.Until.After(o.Until))
}

const maxReason = 512 // bytes, as for the reason of a grant

// ReasonProblem says what is wrong with the words of an admin; "" for nothing.
// They are shown to people: what moves a cursor or cannot be seen is refused.
func ReasonProblem(s string) string {
	if what := atMost(maxReason)(s); what != "" {
		return what
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "must be one line of text that can be seen"
	}
	return ""
}

// suspensions are those in force. They never change: a change is another one.
type suspensions struct {
	all     map[string]Suspension // :: id →
	longest map[Target]Suspension // of the target's own the one that stands longest
}

// newSuspensions leaves out what no longer stands at the given time.
func newSuspensions(all map[string]Suspension, at time.Time) *suspensions {
	set := &suspensions{map[string]Suspension{}, map[Target]Suspension{}}
	for id, s := range all {
		if !s.Stands(at) {
			continue
		}
		set.all[id] = s
		if known, ok := set.longest[s.Target]; !ok || s.outlasts(known) {
			set.longest[s.Target] = s
		}
	}
	return set
}

// over returns the suspension that stops an operation for actor at server by
// way of profile, if there is one. It costs three look-ups.
func (set *suspensions) over(actor, server, profile string, at time.Time) (Suspension, bool) {
	if set == nil || len(set.longest) == 0 {
		return Suspension{}, false
	}
	for _, t := range [...]Target{{"actor", actor}, {"server", server}, {"profile", profile}} {
		if s, ok := set.longest[t]; ok && s.Stands(at) {
			return s, true
		}
	}
	return Suspension{}, false
}

// Suspensions returns those that stand at the given time, the oldest first.
func (s *Snapshot) Suspensions(at time.Time) []Suspension {
	list := []Suspension{}
	for _, x := range s.suspended.all {
		if x.Stands(at) {
			list = append(list, x)
		}
	}
	slices.SortFunc(list, func(a, b Suspension) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID))
	})
	return list
}

// Knows reports whether the file has this server or profile, or a grant of this
// actor. A suspension of what it does not know stands all the same.
func (s *Snapshot) Knows(t Target) bool {
	known := false
	switch t.Sort {
	case "server":
		_, known = s.servers[t.Name]
	case "profile":
		_, known = s.profiles[t.Name]
	case "actor":
		for _, grants := range s.grants {
			_, granted := grants[t.Name]
			known = known || granted
		}
	}
	return known
}

// notLookedAt is the value of a check that the file alone cannot make.
const notLookedAt = "not looked at: the file does not say"

// notSuspended comes before everything else, since a suspension wins over it. A
// snapshot that no Holder holds has none to look at.
func notSuspended(t *trial) finding {
	set := t.snapshot.suspended
	if set == nil {
		return finding{true, notLookedAt, ""}
	}
	profile := ""
	if v, ok := t.snapshot.servers[t.server]; ok {
		profile = v.Auth.Profile
	}
	if s, stopped := set.over(t.actor, t.server, profile, t.at); stopped {
		return finding{false, s.Target.String(), "suspension " + s.ID}
	}
	return finding{true, "no suspension", ""}
}

// maxSuspensions bounds what is kept in memory and listed at once.
const maxSuspensions = 10_000

// Suspend puts s into force, after write has made it durable: both under the
// lock, so that the order on disk is the order in memory. Once it has returned,
// [Holder.Current] gives nothing else. If the same stands already (target,
// reason, until, caller) it returns that one, and write is not called.
func (h *Holder) Suspend(s Suspension, write func() error) (_ Suspension, repeated bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.Current().suspended.all
	for _, known := range all {
		if known.Stands(s.Since) && known.same(s) {
			return known, true, nil
		}
	}
	if len(all) >= maxSuspensions && len(newSuspensions(all, s.Since).all) >= maxSuspensions {
		return Suspension{}, false, fault.New("policy.Suspend", fault.TooManySuspensions,
			fmt.Sprintf("%d stand: lift some, or suspend a server or a profile instead of its actors", maxSuspensions))
	}
	if err := write(); err != nil {
		return Suspension{}, false, err
	}
	all = maps.Clone(all)
	all[s.ID] = s
	h.p.Store(h.Current().with(newSuspensions(all, s.Since)))
	return s, false, nil
}

// Lift ends the suspension with this id, after write has made that durable. It
// returns what it has ended, and how many others stop the same target.
func (h *Holder) Lift(id string, at time.Time, write func(Suspension) error) (lifted Suspension, others int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.Current().suspended.all
	lifted, ok := all[id]
	if !ok || !lifted.Stands(at) {
		return Suspension{}, 0, fault.New("policy.Lift", fault.SuspensionNotFound, "no suspension with this id stands: it was lifted, its time has passed, or it never was")
	}
	if err := write(lifted); err != nil {
		return Suspension{}, 0, err
	}
	all = maps.Clone(all)
	delete(all, id)
	h.p.Store(h.Current().with(newSuspensions(all, at)))
	for _, s := range all {
		if s.Target == lifted.Target && s.Stands(at) {
			others++
		}
	}
	return lifted, others, nil
}

// Restore puts into force what an earlier process has left.
func (h *Holder) Restore(list []Suspension, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := maps.Clone(h.Current().suspended.all)
	for _, s := range list {
		all[s.ID] = s
	}
	h.p.Store(h.Current().with(newSuspensions(all, at)))
}
