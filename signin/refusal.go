package signin

import (
	"context"
	"fmt"
	"net/http"

	"onbehalf.internal/broker/fault"
)

// declines are the errors that a browser comes back with (RFC 6749 §4.1.2.1, OpenID
// Connect Core 1.0 §3.1.2.6). What is not among them is not printed.
var declines = map[string]fault.Reason{
	"access_denied":              fault.SignInFailed,
	"login_required":             fault.SignInFailed,
	"consent_required":           fault.SignInFailed,
	"interaction_required":       fault.SignInFailed,
	"account_selection_required": fault.SignInFailed,

	"invalid_request":           fault.ProviderConfig,
	"invalid_scope":             fault.ProviderConfig,
	"unauthorized_client":       fault.ProviderConfig,
	"unsupported_response_type": fault.ProviderConfig,

	"server_error":            fault.ProviderError,
	"temporarily_unavailable": fault.ProviderUnreachable,
}

// refusals are those of the token endpoint (RFC 6749 §5.2).
var refusals = map[string]fault.Reason{
	"invalid_grant": fault.SignInFailed, // the code is used, old, or another client's

	"invalid_request":        fault.ProviderConfig,
	"invalid_client":         fault.ProviderConfig,
	"invalid_scope":          fault.ProviderConfig,
	"unauthorized_client":    fault.ProviderConfig,
	"unsupported_grant_type": fault.ProviderConfig,
}

func declined(code string) error {
	reason, known := declines[code]
	if !known {
		return refuse(fault.ProviderError, "it sent the browser back with an error that has no meaning here")
	}
	return refuse(reason, fmt.Sprintf("it sent the browser back with %q", code))
}

// refused names what an answer means that is not 200.
func refused(status int, code string) error {
	detail := fmt.Sprintf("it answered status %d", status)
	reason, known := refusals[code]
	if known {
		detail += fmt.Sprintf(" and %q", code)
	}
	switch {
	case status >= 300 && status < 400:
		reason = fault.ProviderRedirect
	case status == http.StatusTooManyRequests:
		reason = fault.ProviderRateLimited
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		reason = fault.ProviderUnreachable
	case !known:
		reason = fault.ProviderError
	}
	return refuse(reason, detail)
}

// unanswered says why no answer came. What is an error of ours already stays so; the text
// of others names addresses, or quotes what the other side sent.
func unanswered(ctx context.Context, err error) error {
	switch ended := fault.Ended(ctx, fault.ProviderUnreachable); {
	case ended != fault.None:
		return refuse(ended, "it had not answered by then")
	case fault.ReasonOf(err) == fault.HostRefused:
		return refuse(fault.HostRefused, "its address is not one that we may dial: see allow_cidrs")
	case fault.ReasonOf(err) == fault.TLSFailed:
		return refuse(fault.ProviderUnreachable, "no TLS that we trust: see ca_file")
	case fault.ReasonOf(err) == fault.ProviderError:
		return refuse(fault.ProviderError, "its answer is longer than 256 KiB")
	default:
		return refuse(fault.ProviderUnreachable, "no whole answer came")
	}
}

func refuse(reason fault.Reason, detail string) error {
	return fault.New("signin.Provider", reason, detail)
}
