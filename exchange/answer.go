package exchange

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// maxToken bounds a token in bytes: servers cap the head of a request at 8 to
// 16 KiB.
const maxToken = 16 << 10

// b64token is RFC 6750 §2.1. It keeps line breaks out of the Authorization
// header that the token will stand in.
var b64token = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// An answer says yes (RFC 8693 §2.2.1). It has the right shape, and is not yet
// held against anything. Members that are not here are dropped unread, a
// refresh token above all.
type answer struct {
	token      secret.Text
	issuedType string
	tokenType  string
	lifetime   time.Duration // 0: not said
	scopes     []string      // nil: not said
	audience   []string      // nil: not said, as RFC 8693 has it
	asked      time.Time     // right before the request left
}

// answer reads re strictly, or says what it is instead.
func (re reply) answer(p *policy.Profile) (answer, error) {
	m, err := re.object()
	if err != nil {
		return answer{}, err
	}
	a, err := parse(m, cmp.Or(p.ScopeSeparator, " "))
	a.asked = re.asked
	return a, err
}

// object is the JSON object of an answer that says yes.
func (re reply) object() (members, error) {
	switch {
	case re.status < 200 || re.status >= 300:
		return members{}, re.refusal()
	case re.status != http.StatusOK:
		return members{}, malformed(fmt.Sprintf("status %d carries no token", re.status))
	case re.toolong:
		return members{}, malformed(fmt.Sprintf("it is longer than %d bytes", re.most))
	case !re.json:
		return members{}, malformed("its content type is not application/json")
	}
	m, ok := open(re.body)
	if !ok {
		return members{}, malformed("it is not one JSON object with distinct names")
	}
	if m.has("error") { // whatever else is there
		return members{}, re.refusal()
	}
	return m, nil
}

func parse(m members, separator string) (answer, error) {
	token := m.text("access_token")
	a := answer{
		token:      secret.New(token),
		issuedType: m.text("issued_token_type"),
		tokenType:  m.text("token_type"),
		lifetime:   m.seconds("expires_in"),
		scopes:     m.scopes("scope", separator),
		audience:   m.texts("audience"),
	}
	switch {
	case m.wrong != "":
		return answer{}, malformed(fmt.Sprintf("its member %q has not the right form", m.wrong))
	case len(token) > maxToken:
		return answer{}, malformed(fmt.Sprintf("its token is longer than %d bytes", maxToken))
	case !b64token.MatchString(token):
		return answer{}, malformed("it has no token of RFC 6750 characters")
	}
	return a, nil
}

// malformed refuses an answer. What is wrong is told without quoting it.
func malformed(what string) error {
	return refuse(fault.ExchangeMalformed, "the provider's answer: "+what)
}
