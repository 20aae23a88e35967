package session_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/session"
)

// ask asks the dev Vault as its operator does.
func (r *rig) ask(method, path, body string, into any) {
	r.t.Helper()
	req, err := http.NewRequest(method, "http://127.0.0.1:1/v1/"+path, strings.NewReader(body))
	r.must(err)
	req.Header.Set("X-Vault-Token", r.vault.RootToken())
	res, err := r.vault.RoundTrip(req)
	r.must(err)
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		r.t.Fatalf("%s: status %d", path, res.StatusCode)
	}
	if into != nil {
		r.must(json.NewDecoder(res.Body).Decode(into))
	}
}

// TestKeyStaysInVault: Transit signs the assertion, and no key is read.
func TestKeyStaysInVault(t *testing.T) {
	r := newRig(t)
	r.ask("POST", "sys/mounts/transit", `{"type":"transit"}`, nil)
	r.ask("POST", "transit/keys/client", `{"type":"ecdsa-p256"}`, nil)
	var said struct {
		Data struct {
			Keys map[string]struct {
				PublicKey string `json:"public_key"`
			}
		}
	}
	r.ask("GET", "transit/keys/client", "", &said)
	block, _ := pem.Decode([]byte(said.Data.Keys["1"].PublicKey))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	r.must(err)
	r.provider, err = devidp.Start(devidp.Config{TTL: time.Minute, Clients: []devidp.Client{
		{ID: "signer", Auth: "private_key_jwt", Key: public, Allow: map[string][]string{"mcp": {"read"}}}}})
	r.must(err)
	t.Cleanup(func() { r.provider.Close() })
	r.issuer = r.provider.Issuer()
	r.vault.PutSecret("kv", "broker/subject", map[string]string{"v": r.provider.Mint("user:7", time.Hour)})
	r.client = `client: {id: signer, auth: private_key_jwt, key: "vault-transit:transit/client", alg: ES256, audience: issuer}`
	r.with("response: {token_format: jwt, expect_issuer: PROVIDER}", revokes)

	ctx, s := r.open(r.decide("records", false))
	if _, err := s.Token(ctx, "tools/call"); err != nil {
		t.Fatal(err)
	}
	s.Close(ctx)
	if got := s.Revoke(ctx); got != "revoked" {
		t.Errorf("Revoke says %q", got)
	}
	if n := r.vault.Count("GET", "kv/data/broker/client"); n != 0 || r.vault.Count("PUT", "transit/sign/client")+r.vault.Count("POST", "transit/sign/client") != 2 {
		t.Errorf("the key was read %d times, or signed another number of times than two", n)
	}
	r.client = strings.Replace(r.client, "ES256", "ES384", 1)
	r.with("response: {token_format: jwt, expect_issuer: PROVIDER}", "")
	if _, err := r.Open(ctx, r.decide("records", false)); fault.ReasonOf(err) != fault.CredentialRejected {
		t.Errorf("an alg that does not fit the key: %v", err)
	}
}

// TestBrokerIsSubject: the broker's own token goes the way of every other: checked
// before each leg, held, dropped. Nothing of the actor is read or sent.
func TestBrokerIsSubject(t *testing.T) {
	r := newRig(t)
	var asked []string
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		q.ParseForm()
		_, key, _ := q.BasicAuth()
		asked = append(asked, q.PostForm.Encode()+" "+key)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"the-token-of-the-broker","token_type":"Bearer","expires_in":60}`)
	}))
	defer endpoint.Close()
	r.edit = func(s string) string {
		s = strings.Replace(s, r.provider.TokenEndpoint(), endpoint.URL, 1)
		return strings.Replace(s, `credential: "vault:kv/broker/subject#v", `, "", 1)
	}
	r.with("response: {token_format: opaque, audience_unverified: true}", "    grant_type: client_credentials\n    audience_param: audience\n")
	ctx, s := r.open(r.decide("records", false))
	cred, err := s.Token(ctx, "tools/call")
	if err != nil || cred.Value.Reveal() != "the-token-of-the-broker" {
		t.Errorf("token: %v", err)
	}
	if got := s.Close(ctx); got != "dropped" || names(s.Legs()) != "subject exchange hold drop" {
		t.Errorf("Close says %q, legs %q", got, names(s.Legs()))
	}
	if n := r.vault.Count("GET", "kv/data/broker/subject"); n != 0 {
		t.Errorf("the actor's credential was read %d times", n)
	}
	if want := "audience=mcp&grant_type=client_credentials&scope=read " + clientSecret; len(asked) != 1 || asked[0] != want {
		t.Errorf("asked %q, want %q", asked, want)
	}

	r.Policy.Swap(r.load("true"))
	d := r.decide("records", false)
	r.Policy.Swap(r.load("false"))
	if s, err := r.Open(ctx, d); fault.ReasonOf(err) != fault.GrantRevoked || names(s.Legs()) != "subject" || len(asked) != 1 {
		t.Errorf("without its grant: %v, legs %q, asked %d times", err, names(s.Legs()), len(asked))
	}
}

// TestSecondStep: the second provider gets the assertion and its own key, after
// another look at the grant.
func TestSecondStep(t *testing.T) {
	const assertion = "eyJhbGciOiJub25lIn0.eyJhdWQiOiJodHRwczovL3NlY29uZC5leGFtcGxlIiwiZXhwIjo0MTAyNDQ0ODAwfQ.c2ln" // for https://second.example
	r := newRig(t)
	var asked []string
	var change func()
	steps := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		_, key, _ := q.BasicAuth()
		asked = append(asked, q.URL.Path+" "+key)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.URL.Path == "/first":
			if change != nil {
				change()
			}
			io.WriteString(w, `{"access_token":"`+assertion+`","issued_token_type":"urn:ietf:params:oauth:token-type:id-jag","token_type":"N_A"}`)
		case strings.Contains(string(body), "assertion="+assertion):
			io.WriteString(w, `{"access_token":"the-token-of-the-second","token_type":"Bearer","expires_in":60}`)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer steps.Close()
	r.vault.PutSecret("kv", "broker/second", map[string]string{"v": "the-second-key"})
	twoSteps := `    requested_token_type: urn:ietf:params:oauth:token-type:id-jag
    audience: ["https://second.example"]
    then:
      token_endpoint: ` + steps.URL + `/second
      allow_cidrs: ["127.0.0.0/8"]
      client: {id: b, auth: basic, key: "vault:kv/broker/second#v"}
      response: {token_format: opaque, audience_unverified: true}
      audience_param: audience
`
	endpoint := func(s string) string { return strings.Replace(s, r.provider.TokenEndpoint(), steps.URL+"/first", 1) }
	r.edit = endpoint
	r.with("response: {expect_issuer: https://first.example}", twoSteps)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := r.Open(ctx, r.decide("records", false))
	if fault.ReasonOf(err) != fault.WrongIssuer || len(asked) != 1 {
		t.Errorf("an assertion of another issuer: %v, asked %q", err, asked)
	}

	asked = nil
	r.with("response: {require_act: broker}", twoSteps)
	if _, err = r.Open(ctx, r.decide("records", false)); fault.ReasonOf(err) != fault.WrongActor || len(asked) != 1 {
		t.Errorf("an assertion without an actor: %v, asked %q", err, asked)
	}

	asked = nil
	r.with("", twoSteps)
	ctx, s := r.open(r.decide("records", false))
	cred, err := s.Token(ctx, "tools/call")
	if err != nil || cred.Value.Reveal() != "the-token-of-the-second" {
		t.Errorf("token: %v", err)
	}
	s.Close(ctx)
	if got := strings.Join(asked, ", "); got != "/first "+clientSecret+", /second the-second-key" {
		t.Errorf("asked %s", got)
	}
	if got := names(s.Legs()); got != "subject exchange then hold drop" {
		t.Errorf("legs %q", got)
	}

	asked = nil
	change = func() { r.Policy.Swap(r.load("false")) }
	if _, err := r.Open(ctx, r.decide("records", false)); fault.ReasonOf(err) != fault.GrantRevoked || len(asked) != 1 {
		t.Errorf("the grant went after the first step: %v, asked %q", err, asked)
	}
}

// TestMayBind: who issues the token that the server gets decides.
func TestMayBind(t *testing.T) {
	const (
		basic = `client: {id: broker, auth: basic, key: "vault:kv/broker/client#v"}`
		mtls  = `client: {id: broker, auth: mtls, key: "vault:kv/broker/client#v", certificate: "vault:kv/broker/chain#v"}`
	)
	then := func(client string) string {
		return `    requested_token_type: urn:ietf:params:oauth:token-type:id-jag
    audience: ["https://second.example"]
    then: {token_endpoint: "https://second.example/token", ` + client + `, response: {token_format: jwt}, audience_param: audience}
`
	}
	for _, tc := range []struct {
		name, client, more, server string
		probe, want                bool
	}{
		{"mtls", mtls, "", "records", false, true},
		{"basic", basic, "", "records", false, false},
		{"a probe", mtls, "", "records", true, false},
		{"a legacy server", mtls, "", "old", false, false},
		{"mtls at the second step", basic, then(mtls), "records", false, true},
		{"mtls at the first step alone", mtls, then(basic), "records", false, false},
	} {
		r := rigWith(t, "https://identity.test", "the-subject-token", exchange.New(nil))
		r.client = tc.client
		response := "response: {token_format: jwt}"
		if tc.more != "" {
			response = ""
		}
		r.with(response, tc.more)
		if got := session.MayBind(r.decide(tc.server, tc.probe)); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
