package identity

import (
	"maps"
	"slices"

	"onbehalf.internal/broker/fault"
)

// Speaks reports why no request of the caller with this id can operate for the
// actor; None if one can. It is what [Directory.Caller] and [Directory.Actor] prove
// from a request, from the entry alone.
func (d *Directory) Speaks(caller, actor string) fault.Reason {
	e := d.callers[caller]
	switch {
	case e == nil:
		return fault.CallerUnknown
	case !e.roles[Operate]:
		return fault.RoleMissing
	case e.asserted[actor] || e.signs(actor) || e.fronts(actor):
		return fault.None
	}
	return fault.ActorNotAllowed
}

// Proves reports whether an assertion or an access token of the caller can say that the actor is an
// administrator.
func (d *Directory) Proves(caller, actor string) bool {
	e := d.callers[caller]
	return e != nil && (e.signs(actor) && e.signed.admin.Name != "" || e.fronts(actor) && e.front.Admin.Name != "")
}

// Actors are whom the caller with this id can operate for, sorted: ids, and
// "user:" or "service:" for all of a kind.
func (d *Directory) Actors(caller string) []string {
	e := d.callers[caller]
	if e == nil || !e.roles[Operate] {
		return nil
	}
	all := slices.Collect(maps.Keys(e.asserted))
	if e.signed != nil {
		all = slices.AppendSeq(all, maps.Keys(e.signed.subjects))
	}
	if e.front != nil {
		all = slices.AppendSeq(all, maps.Keys(e.front.subjects))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (e *entry) signs(actor string) bool { return e.signed != nil && e.signed.believes(actor) }

func (e *entry) fronts(actor string) bool { return e.front != nil && e.front.subjects.hold(actor) }
