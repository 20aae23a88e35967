package identity

import (
	"net/http"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// An Approver is a person who decides about calls of others. Only a verified
// assertion makes one, or signing in: nobody decides by name. The zero Approver is nobody.
type Approver struct{ person Actor }

// String returns the approver's id, as in "user:8".
func (a Approver) String() string { return a.person.id }

// Issuer returns who vouches for the approver.
func (a Approver) Issuer() string {
	if a.person.proof == nil {
		return ""
	}
	return a.person.proof.issuer
}

// JTI returns the jti of the approver's assertion, which is for one call; it is empty for
// a person who has signed in, and looks at many.
func (a Approver) JTI() string { return a.person.jti }

// Admin reports whether the assertion says that the approver is an administrator.
func (a Approver) Admin() bool { return a.person.Admin() }

// Approver reads Broker-Approver-Assertion for c, as strictly as an actor's. The
// reason of the error is approver_missing, approver_not_allowed or
// assertion_invalid.
func (d *Directory) Approver(c Caller, h http.Header) (Approver, error) {
	assertions := h.Values("Broker-Approver-Assertion")
	switch {
	case c.IsZero() || c.entry.approvers == nil:
		return Approver{}, notApprover(fault.ApproverNotAllowed, "this caller has no entry for approvers")
	case len(assertions) != 1:
		return Approver{}, notApprover(fault.ApproverMissing, "exactly one Broker-Approver-Assertion is needed")
	}
	person, err := c.entry.approvers.verify(secret.New(assertions[0]))
	switch fault.ReasonOf(err) {
	case fault.ActorNotAllowed:
		err = notApprover(fault.ApproverNotAllowed, "this caller may not bring assertions of this approver")
	case fault.ActorInvalid:
		err = notApprover(fault.AssertionInvalid, "sub is not the id of a person")
	}
	if err != nil {
		return Approver{}, err
	}
	return Approver{person}, nil
}

// Approves reports whether the caller may still bring this approver, whom an
// earlier directory has verified: issuer and subject are those of its entry. A caller
// without the role approve has none. What a person's claims said is not asked again:
// the token is gone.
func (d *Directory) Approves(caller, issuer, subject string) bool {
	e := d.callers[caller]
	switch {
	case e == nil || !e.roles[Approve]:
		return false
	case d.people != nil && d.people.entry == e:
		return d.people.Issuer == issuer && d.people.subjects.hold(subject)
	}
	return e.approvers != nil && e.approvers.issuer == issuer && e.approvers.believes(subject)
}

func notApprover(reason fault.Reason, detail string) error {
	return fault.New("identity.Approver", reason, detail)
}
