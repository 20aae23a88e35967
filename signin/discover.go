package signin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// A document is what we read of a provider's metadata (OpenID Connect Discovery 1.0 §3).
type document struct {
	authorization, token, keys *url.URL

	style        oauth2.AuthStyle // how a client with a secret shows it
	statesIssuer bool             // its answers hold iss (RFC 9207 §3)
}

func (p *Provider) discover(ctx context.Context, in identity.SignIn) (document, error) {
	at := strings.TrimSuffix(in.Issuer, "/") + "/.well-known/openid-configuration"
	return p.document.get(ctx, at, p.Now, func(document) bool { return true }, func(ctx context.Context) (document, error) {
		to, err := url.Parse(at)
		if err != nil {
			return document{}, refuse(fault.ProviderConfig, "the issuer is no address")
		}
		body, err := p.fetch(ctx, in, to)
		if err != nil {
			return document{}, err
		}
		return readDocument(body, in)
	})
}

func readDocument(body []byte, in identity.SignIn) (doc document, err error) {
	m, err := strictjson.Members(body)
	if err != nil {
		return doc, refuse(fault.ProviderError, "its document is not one strict JSON object")
	}
	if text(m["issuer"]) != in.Issuer { // byte for byte, with or without the slash at its end
		return doc, refuse(fault.ProviderConfig, "its document is of another issuer than sign_in names")
	}
	for _, e := range []struct {
		name string
		to   **url.URL
	}{{"authorization_endpoint", &doc.authorization}, {"token_endpoint", &doc.token}, {"jwks_uri", &doc.keys}} {
		u, ok := policy.ParseEndpoint(text(m[e.name]), in.AllowCIDRs)
		if !ok {
			return doc, refuse(fault.ProviderConfig, "its document has no "+e.name+" that we may use: https, without user, query and fragment")
		}
		*e.to = u
	}
	// Who does not say may support it all the same, and we send it in any case.
	if methods, said := m["code_challenge_methods_supported"]; said && !slices.Contains(texts(methods), "S256") {
		return doc, refuse(fault.ProviderConfig, "it does not support PKCE with S256")
	}
	doc.style = oauth2.AuthStyleInHeader // also where nothing is said
	if ways := texts(m["token_endpoint_auth_methods_supported"]); !slices.Contains(ways, "client_secret_basic") && slices.Contains(ways, "client_secret_post") {
		doc.style = oauth2.AuthStyleInParams
	}
	doc.statesIssuer = string(m["authorization_response_iss_parameter_supported"]) == "true"
	return doc, nil
}

// text reads a string of a document that was checked; anything else is none.
func text(raw strictjson.Raw) (s string) {
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// texts reads the strings of a list.
func texts(raw strictjson.Raw) (all []string) {
	for _, item := range strictjson.Elements(raw) {
		all = append(all, text(item))
	}
	return all
}

// providerKeys are the provider's keys, as they are kept or as it has them now.
type providerKeys struct {
	p   *Provider
	in  identity.SignIn
	at  *url.URL
	err error // why they could not be had
}

// VerifySignature is [oidc.KeySet]'s. A token that no kept key verifies is a reason to
// ask for them.
func (k *providerKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	verifies := func(s identity.KeySet) bool { _, err := s.VerifySignature(ctx, token); return err == nil }
	set, err := k.p.keys.get(ctx, k.at.String(), k.p.Now, verifies, func(ctx context.Context) (identity.KeySet, error) {
		body, err := k.p.fetch(ctx, k.in, k.at)
		if err != nil {
			return identity.KeySet{}, err
		}
		set, err := identity.ParseKeySet(body)
		if err != nil {
			return identity.KeySet{}, refuse(fault.KeysUnavailable, "its key set holds no key that can be used")
		}
		return set, nil
	})
	if err != nil {
		k.err = err
		return nil, err
	}
	return set.VerifySignature(ctx, token)
}

// How long the document and the keys are kept.
const (
	fresh   = 10 * time.Minute // then they are asked for again, so that a withdrawn key goes
	longest = time.Hour        // in an outage the old ones go on for so long
	pause   = 30 * time.Second // between two requests
	again   = 2 * time.Second  // after a failed one
)

// A kept is the newest value of one address.
type kept[T any] struct {
	turn  chan struct{} // holds one while somebody looks or asks: one at a time, and each waits no longer than it may
	from  string
	value T
	read  time.Time // zero: there is no value
	next  time.Time // not asked for before
}

func newKept[T any]() *kept[T] { return &kept[T]{turn: make(chan struct{}, 1)} }

// get returns what is at an address: what is kept, where it is fresh and fits, or what
// ask returns.
func (k *kept[T]) get(ctx context.Context, from string, now func() time.Time, fits func(T) bool, ask func(context.Context) (T, error)) (none T, _ error) {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return none, unanswered(ctx, ctx.Err())
	}
	if k.from != from {
		k.from, k.value, k.read, k.next = from, none, time.Time{}, time.Time{}
	}
	at := now()
	there := !k.read.IsZero() && at.Sub(k.read) < longest
	switch waits := at.Before(k.next); {
	case there && (waits || at.Sub(k.read) < fresh && fits(k.value)):
		return k.value, nil
	case waits:
		return none, refuse(fault.ProviderUnreachable, "it was asked a moment ago, and gave no answer that we can use")
	}
	value, err := ask(ctx)
	switch {
	case err == nil:
		k.value, k.read, k.next = value, now(), now().Add(pause)
	case fault.ReasonOf(err) == fault.CallerCancelled: // a browser went away: that says nothing
		return none, err
	default:
		k.next = now().Add(again)
		if !there {
			return none, err
		}
	}
	return k.value, nil
}

// fetch reads a document that anybody may read.
func (p *Provider) fetch(ctx context.Context, in identity.SignIn, from *url.URL) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, refuse(fault.ProviderConfig, "an address of the provider is none")
	}
	var a answer
	if _, err := a.from(in, from).RoundTrip(req); err != nil {
		return nil, unanswered(ctx, err)
	}
	if a.status != http.StatusOK {
		return nil, refused(a.status, "")
	}
	return a.body, nil
}
