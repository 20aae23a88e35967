package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	"github.com/hashicorp/vault/api"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

const maxAnswer = 1 << 20

// An answer is what Vault said.
type answer struct {
	status  int
	members map[string]strictjson.Raw // nil for a 204
}

// answers is the transport under every call, so that each request is in the
// namespace. It reads each answer whole and lets only those of Vault through:
// whoever else answers (a proxy, a redirect) must not be read as "stored", "gone"
// or "denied".
//
// It has no CloseIdleConnections on purpose: the library calls that after each
// call without an answer, and all operations would have to dial anew.
type answers struct {
	next      http.RoundTripper
	namespace string // empty: none
}

func (t answers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, _, err := t.exchange(req)
	return resp, err
}

// exchange returns an answer of Vault in two forms, so that nobody has to parse
// it a second time: as the library wants it, and as it was understood.
func (t answers) exchange(req *http.Request) (*http.Response, answer, error) {
	if t.namespace != "" {
		req.Header.Set("X-Vault-Namespace", t.namespace)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, answer{}, err
	}
	members, ok := ofVault(resp, body)
	if !ok {
		return nil, answer{}, foreign(resp.StatusCode)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, answer{resp.StatusCode, members}, nil
}

// A foreign is the status of an answer that is not Vault's.
type foreign int

func (s foreign) Error() string { return fmt.Sprintf("not an answer of Vault: status %d", int(s)) }

// ofVault reports whether Vault can have said this, and what. All it says is a
// JSON object, with "errors" or "data" where it refuses, or a 204 without a body.
func ofVault(resp *http.Response, body []byte) (members map[string]strictjson.Raw, ok bool) {
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return nil, len(body) == 0
	case resp.StatusCode >= 300 && resp.StatusCode < 400 || len(body) > maxAnswer:
		return nil, false
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, false
	}
	members, err = strictjson.Members(body)
	_, refuses := members["errors"]
	_, tells := members["data"]
	return members, err == nil && (resp.StatusCode < 400 || refuses || tells)
}

// plain sends one request without the library. The path is without /v1/.
func (c *Client) plain(ctx context.Context, method, path string, token secret.Text, body []byte) (answer, error) {
	return c.send(ctx, method, path, token, "application/json", body)
}

func (c *Client) send(ctx context.Context, method, path string, token secret.Text, media string, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.address+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.GetBody = nil // without it no transport can send it twice
	req.Header.Set("X-Vault-Request", "true")
	if !token.IsZero() { // a proxy's login has none
		req.Header.Set("X-Vault-Token", token.Reveal())
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", media)
	}
	_, a, err := c.answers.exchange(req)
	return a, err
}

// library returns a client of the library that carries this token and takes
// nothing from the environment: NewClient reads it whatever the config says.
func (c *Client) library(token secret.Text, way answers) (*api.Client, error) {
	client, err := api.NewClient(&api.Config{
		Address:          c.address,
		HttpClient:       &http.Client{Transport: way},
		DisableRedirects: true,
		// No retry, whatever happened: a token that was made may not be made again.
		CheckRetry: func(context.Context, *http.Response, error) (bool, error) { return false, nil },
	})
	if err != nil {
		return nil, fault.New("vault.New", fault.VaultNotReady, "a VAULT_ variable of the environment is malformed: unset it")
	}
	client.SetHeaders(http.Header{"X-Vault-Request": {"true"}}) // in place of those of the environment, the namespace among them
	client.SetWrappingLookupFunc(func(string, string) string { return "" })
	client.SetToken(token.Reveal())
	return client, nil
}

// read and write send one request with a login's token. The library fails for
// every status from 400 on and lets all others pass; only the status counts here.
func read(ctx context.Context, client *api.Client, path string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return whole(client.Logical().ReadRawWithContext(ctx, path))
}

func write(ctx context.Context, client *api.Client, path string, body map[string]string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	return whole(client.Logical().WriteRawWithContext(ctx, path, data))
}

func whole(resp *api.Response, err error) (answer, error) {
	if resp == nil || resp.Response == nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || len(body) == 0 {
		return answer{status: resp.StatusCode}, err
	}
	members, err := strictjson.Members(body)
	return answer{resp.StatusCode, members}, err
}

// unanswered is the fault of a call that Vault did not answer. The text of err
// stays here: it can hold a URL or what a proxy wrote.
func unanswered(op string, err error) *fault.Error {
	var status foreign
	switch {
	case errors.As(err, &status):
		return fault.New(op, fault.VaultUnexpected, status.Error())
	case slices.Contains([]fault.Reason{fault.CallerCancelled, fault.CallerGone, fault.BrokerStopping}, fault.ReasonOf(err)):
		return fault.New(op, fault.ReasonOf(err), "given up before Vault's answer")
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(op, fault.VaultUnreachable, "no answer in time")
	case errors.Is(err, context.Canceled):
		return fault.New(op, fault.VaultUnreachable, "given up before the answer")
	}
	return fault.New(op, fault.VaultUnreachable, "no answer")
}

// answered returns an error for a call without an answer, or with another than 200.
func answered(op string, a answer, err error) error {
	switch {
	case err != nil:
		return unanswered(op, err)
	case a.status != http.StatusOK:
		return unwanted(op, a)
	}
	return nil
}

// unwanted is the fault of an answer of Vault that is not the right one.
func unwanted(op string, a answer) *fault.Error {
	reason, detail := fault.VaultUnexpected, fmt.Sprintf("Vault answered %d", a.status)
	switch a.status {
	case http.StatusForbidden:
		reason = fault.VaultDenied
	case http.StatusTooManyRequests:
		reason = fault.VaultRateLimited
	case http.StatusServiceUnavailable:
		reason, detail = fault.VaultSealed, detail+": sealed or overloaded"
	}
	return fault.New(op, reason, detail)
}

// object returns the members of an object inside the answer; nil if there is none.
func (a answer) object(path ...string) map[string]strictjson.Raw {
	members := a.members
	for _, name := range path {
		members = strictjson.Parts(members[name])
	}
	return members
}

// member reads one value. It fails for one that is not there, null, or of
// another kind.
func member[T string | bool | int64](members map[string]strictjson.Raw, name string) (value T, ok bool) {
	var p *T
	if json.Unmarshal(members[name], &p) != nil || p == nil {
		return value, false
	}
	return *p, true
}
