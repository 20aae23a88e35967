package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"onbehalf.internal/broker/brokertest"
)

// epochUse is how long a floor may use one epoch, which lives 75 s.
const epochUse = 30 * time.Second

// A floor makes the legs of an operation directly, as a client would that has
// nobody to answer to: no grant, no ledger, no audit, no deadline, nothing checked
// but that the tool answered for the right actor.
type floor struct {
	vaultAddress string
	login        string // with the broker's own policy
	epoch        string
	key          string // the client's, at the provider

	provider string // the token endpoint
	mcp      string
	audience string
	legacy   bool

	kept  *http.Client // to Vault
	fresh *http.Client // to the provider: a connection for each exchange
}

// newFloor returns a floor over the counterparts of rig. What the broker
// remembers, the floor reads here: its login and the client's key.
func newFloor(ctx context.Context, v *vault, rig *brokertest.Rig, era string) (*floor, error) {
	f := &floor{
		vaultAddress: v.address,
		provider:     rig.Provider.TokenEndpoint(), mcp: rig.Records.URL, audience: "mcp-records",
		kept:  &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}},
		fresh: &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}},
	}
	if era == "legacy" {
		f.mcp, f.audience, f.legacy = rig.Archive.URL, "mcp-archive", true
	}
	var err error
	order := map[string]any{"policies": []string{"broker"}, "no_default_policy": true, "ttl": "1h"}
	if f.login, err = v.token(ctx, "auth/token/create", order); err != nil {
		return nil, err
	}
	if f.key, err = f.stored(ctx, "client"); err != nil {
		return nil, err
	}
	return f, f.renew(ctx, v)
}

// renew mints an epoch. It is called between rounds.
func (f *floor) renew(ctx context.Context, v *vault) (err error) {
	f.epoch, err = v.token(ctx, "auth/token/create/broker-op", nil)
	return err
}

func (f *floor) close() { f.kept.CloseIdleConnections() }

// operation is subject, exchange, hold, the MCP legs with a read before each, drop.
func (f *floor) operation(ctx context.Context) error {
	subject, err := f.stored(ctx, "subjects/7")
	if err != nil {
		return err
	}
	token, err := f.exchange(ctx, subject)
	if err != nil {
		return err
	}
	hold := "cubbyhole/op/" + strings.ToLower(rand.Text())
	if _, err := f.vault(ctx, "POST", hold, f.epoch, fmt.Sprintf(`{"token":%q}`, token), http.StatusNoContent); err != nil {
		return err
	}
	if err := f.converse(ctx, hold); err != nil {
		return err
	}
	_, err = f.vault(ctx, "DELETE", hold, f.epoch, "", http.StatusNoContent)
	return err
}

// stored reads a credential of KV version 2.
func (f *floor) stored(ctx context.Context, name string) (string, error) {
	body, err := f.vault(ctx, "GET", "kv/data/broker/"+name, f.login, "", http.StatusOK)
	if err != nil {
		return "", err
	}
	var said struct {
		Data struct{ Data struct{ Value string } }
	}
	err = json.Unmarshal(body, &said)
	return said.Data.Data.Value, err
}

// held reads what is held.
func (f *floor) held(ctx context.Context, hold string) (string, error) {
	body, err := f.vault(ctx, "GET", hold, f.epoch, "", http.StatusOK)
	if err != nil {
		return "", err
	}
	var said struct{ Data struct{ Token string } }
	err = json.Unmarshal(body, &said)
	return said.Data.Token, err
}

func (f *floor) vault(ctx context.Context, method, path, token, body string, want int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.vaultAddress+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Vault-Request", "true")
	req.Header.Set("X-Vault-Token", token)
	status, answer, err := send(f.kept, req)
	if err == nil && status != want {
		err = fmt.Errorf("floor: Vault answered %d to %s", status, method)
	}
	return answer, err
}

// exchange is RFC 8693 §2.1 with client_secret_basic.
func (f *floor) exchange(ctx context.Context, subject string) (string, error) {
	const accessToken = "urn:ietf:params:oauth:token-type:access_token"
	form := url.Values{
		"grant_type":    {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"subject_token": {subject}, "subject_token_type": {accessToken}, "requested_token_type": {accessToken},
		"audience": {f.audience}, "scope": {"records.read"},
	}
	req, err := http.NewRequestWithContext(ctx, "POST", f.provider, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("broker", url.QueryEscape(f.key)) // RFC 6749 §2.3.1
	status, body, err := send(f.fresh, req)
	if err != nil {
		return "", err
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("floor: the provider answered %d", status)
	}
	var said struct {
		Token string `json:"access_token"`
	}
	err = json.Unmarshal(body, &said)
	return said.Token, err
}

// A leg is one request to the MCP server.
type leg struct {
	method, params string
	status         int
}

// message is "" for the end of a session, which has no body.
func (l leg) message() string {
	switch {
	case l.method == "":
		return ""
	case strings.HasPrefix(l.method, "notifications/"):
		return `{"jsonrpc":"2.0","method":"` + l.method + `","params":` + l.params + `}`
	}
	return `{"jsonrpc":"2.0","id":"` + rand.Text() + `","method":"` + l.method + `","params":` + l.params + `}`
}

const (
	modernVersion = "2026-07-28"
	legacyVersion = "2025-11-25"
	modernMeta    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},` +
		`"io.modelcontextprotocol/clientInfo":{"name":"floor","version":"1"}}`
	rightAnswer = `"structuredContent":{"subject":"user:7"`
)

var (
	modernLegs = []leg{{"tools/call", `{"name":"whoami","arguments":{},` + modernMeta + `}`, 200}}
	legacyLegs = []leg{
		{"initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"floor","version":"1"}}`, 200},
		{"notifications/initialized", `{}`, 202},
		{"tools/call", `{"name":"whoami","arguments":{}}`, 200},
	}
	sessionEnd = leg{status: 204} // a DELETE
)

// converse makes the MCP legs over one fresh connection, each with the token as
// it was just read.
func (f *floor) converse(ctx context.Context, hold string) error {
	connection := &http.Transport{DisableCompression: true, MaxConnsPerHost: 1}
	defer connection.CloseIdleConnections()
	client := &http.Client{Transport: connection}
	legs := modernLegs
	if f.legacy {
		legs = legacyLegs
	}
	var session string
	var answer []byte
	for _, l := range legs {
		token, err := f.held(ctx, hold)
		if err != nil {
			return err
		}
		if session, answer, err = f.send(ctx, client, l, token, session); err != nil {
			return err
		}
	}
	if !bytes.Contains(answer, []byte(rightAnswer)) {
		return fmt.Errorf("floor: the tool answered %q", answer)
	}
	if session == "" {
		return nil
	}
	token, err := f.held(ctx, hold)
	if err == nil {
		_, _, err = f.send(ctx, client, sessionEnd, token, session)
	}
	return err
}

// send sends one leg and returns the session that the next one belongs to.
func (f *floor) send(ctx context.Context, client *http.Client, l leg, token, session string) (string, []byte, error) {
	verb, body := "POST", l.message()
	if l.method == "" {
		verb = "DELETE"
	}
	req, err := http.NewRequestWithContext(ctx, verb, f.mcp, strings.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	switch {
	case !f.legacy:
		req.Header.Set("Mcp-Protocol-Version", modernVersion)
		req.Header.Set("Mcp-Method", l.method)
		req.Header.Set("Mcp-Name", "whoami")
	case session != "":
		req.Header.Set("Mcp-Protocol-Version", legacyVersion)
		req.Header.Set("Mcp-Session-Id", session)
	}
	res, err := client.Do(req)
	if err != nil {
		return "", nil, err
	}
	defer res.Body.Close()
	var answer bytes.Buffer
	if _, err := answer.ReadFrom(res.Body); err != nil {
		return "", nil, err
	}
	if res.StatusCode != l.status {
		return "", nil, fmt.Errorf("floor: %s was answered %d", l.method, res.StatusCode)
	}
	if given := res.Header.Get("Mcp-Session-Id"); given != "" {
		session = given
	}
	return session, answer.Bytes(), nil
}
