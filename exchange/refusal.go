package exchange

import (
	"fmt"
	"net/http"

	"onbehalf.internal/broker/fault"
)

// codes are the errors of RFC 6749 §5.2 and RFC 8693 §2.2.2, and those that
// providers send besides. A code that is not in the list is never printed.
//
// RFC 8693 has invalid_request for a subject token that is not acceptable for
// any reason; the others in its row are what servers say in its place. Some say
// the same of something else: zitadel invalid_grant of a client assertion that it
// does not take, Keycloak invalid_request of an audience that the client may not have.
var codes = map[string]fault.Reason{
	"invalid_request": fault.SubjectRejected,
	"invalid_grant":   fault.SubjectRejected,
	"access_denied":   fault.SubjectRejected,

	"invalid_target":       fault.TargetRejected,
	"invalid_scope":        fault.ScopeRejected,
	"interaction_required": fault.InteractionRequired,

	"invalid_client":         fault.ProviderConfig,
	"unauthorized_client":    fault.ProviderConfig,
	"unsupported_grant_type": fault.ProviderConfig,
	"unsupported_token_type": fault.ProviderConfig, // RFC 7009 §2.2.1
	"request_not_supported":  fault.ProviderConfig,
	"invalid_dpop_proof":     fault.ProviderConfig,
	"use_dpop_nonce":         fault.ProviderConfig,

	"server_error": fault.ProviderError,
}

// refusal names what an answer that is no means. Where the status says that
// somebody in between answered, or that it will pass, a code does not matter.
func (re reply) refusal() error {
	code := re.code()
	detail := fmt.Sprintf("the provider answered status %d", re.status)
	reason, known := codes[code]
	if known {
		detail += fmt.Sprintf(" and %q", code)
	}
	switch {
	case re.status >= 300 && re.status < 400:
		reason = fault.ProviderRedirect
	case re.status == http.StatusTooManyRequests:
		reason = fault.ProviderRateLimited
	case unreachable(re.status):
		reason = fault.ProviderUnreachable
	case !known:
		reason = fault.ProviderError
	case reason == fault.SubjectRejected && re.alone:
		reason = fault.ProviderConfig
	}
	if reason == fault.SubjectRejected {
		detail += "; some providers say so of the client's authentication or of the target, too"
	}
	e := fault.New("exchange.Exchange", reason, detail)
	if re.after > 0 || reason == fault.ProviderRateLimited {
		e.After = re.cool()
	}
	return e
}

// code is the error member, if the body is an object with one.
func (re reply) code() string {
	m, ok := open(re.body)
	if !re.json || !ok {
		return ""
	}
	return m.text("error")
}
