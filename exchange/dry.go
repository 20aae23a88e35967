package exchange

import (
	"context"
	"crypto/rand"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// Dry makes the exchange that d stands for with nobody's credential, to see what the
// provider says of the rest: our client, the grant type, the audience, the scopes.
//
// Where the broker itself is the subject it is a whole exchange, as [Client.Exchange]
// makes it. Else what is handed in is a text that is nobody's token. A provider has to
// refuse that and nothing before it, so subject_rejected becomes nil, and a token that
// is issued all the same becomes wrong_subject, with Issued.Refused.
func (c *Client) Dry(ctx context.Context, d policy.Decision, k Key) (Issued, error) {
	if !d.Dry() {
		return Issued{}, refuse(fault.NoGrant, "a dry exchange was not decided on")
	}
	p := *d.Profile()
	p.Response.RequireSubject = false // no grant is there to pin one
	o := order{&p, d.Audience(), d.Scopes(), ""}
	if p.BrokerIsSubject() {
		return c.exchange(ctx, o, Subject{}, k)
	}
	issued, err := c.exchange(ctx, o, Subject{Token: secret.New("nobody." + rand.Text())}, k)
	switch {
	case fault.ReasonOf(err) == fault.SubjectRejected:
		return Issued{}, nil
	case err == nil:
		return Issued{Refused: issued.Token}, refuse(fault.WrongSubject, "the provider issued a token in exchange for a text that is none")
	}
	return issued, err
}
