//go:build real

package providers_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

const config = `version: 1
listen: {api: "127.0.0.1:8471"}
vault:
  address: http://127.0.0.1:8200
  auth: {method: token}
  hold: {role: broker-op}
store: {path: broker.db}
operation: {timeout: 20s}
callers:
  gateway:
    roles: [operate]
    bearer_sha256: ["BEARER"]
    actors: {asserted: ["user:7"]}
    servers: [records]
profiles:
  company:
    token_endpoint: ENDPOINT
    allow_cidrs: [127.0.0.0/8]
    client: {id: CLIENT, auth: AUTH, key: "vault:kv/broker/client#key"}
    allowed_audiences: ["AUDIENCE"]
    allowed_scopes: SCOPES
    response: {RESPONSE}
    PARAMETERS
    grants:
      "user:7":
        enabled: true
        credential: "vault:kv/broker/subjects/7#token"
        allowed_audiences: ["AUDIENCE"]
        allowed_scopes: SCOPES
        PIN
servers:
  records:
    url: https://records.example.org/mcp
    enabled: true
    data_class: publicContent
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: "AUDIENCE", scopes: SCOPES}
    tools: {search: {enabled: true}}
`

// A profile is what an operator writes about a provider, and what is then sent.
type profile struct {
	endpoint, client, auth string
	audience               string
	scopes                 []string
	response               string // the members of response
	parameters             string // other keys of the profile, one a line
	pin                    string // the sub that the grant expects

	subject, secret string
}

// decide is the decision that the file above makes.
func (p profile) decide(t *testing.T) policy.Decision {
	t.Helper()
	const bearer = "a-bearer-of-the-test"
	digest := sha256.Sum256([]byte(bearer))
	pin := ""
	if p.pin != "" {
		pin = `subject: "` + p.pin + `"`
	}
	text := strings.NewReplacer("BEARER", hex.EncodeToString(digest[:]), "ENDPOINT", p.endpoint, "CLIENT", p.client,
		"AUTH", p.auth, "AUDIENCE", p.audience, "SCOPES", `["`+strings.Join(p.scopes, `", "`)+`"]`, "RESPONSE", p.response,
		"PARAMETERS", strings.ReplaceAll(p.parameters, "\n", "\n    "), "PIN", pin).Replace(config)
	path := filepath.Join(t.TempDir(), "profiles.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := policy.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Authorization": {"Bearer " + bearer}, "Broker-Actor": {"user:7"}}
	q := policy.Question{Server: "records", Tool: "search"}
	if q.Caller, err = s.Directory.Caller(h); err != nil {
		t.Fatal(err)
	}
	if q.Actor, err = s.Directory.Actor(q.Caller, h); err != nil {
		t.Fatal(err)
	}
	d, err := s.Decide(q, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (p profile) exchange(t *testing.T) (exchange.Issued, error) {
	t.Helper()
	return p.by(t.Context(), p.decide(t))
}

func (p profile) by(ctx context.Context, d policy.Decision) (exchange.Issued, error) {
	return exchange.New(nil).Exchange(ctx, d, exchange.Subject{Token: secret.New(p.subject)}, exchange.Key{Text: secret.New(p.secret)})
}

// reason is how an exchange ended.
func reason(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// A row is a profile that is written otherwise, and how its exchange ends.
type row struct {
	name   string
	change func(*profile)
	want   fault.Reason
}

// run makes each row's exchange with a profile of its own. The subject may not show
// up in what comes of it.
func run(t *testing.T, fresh func(testing.TB) profile, rows []row) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			p := fresh(t)
			r.change(&p)
			d := p.decide(t)
			canary.Run(t, func(c *canary.Cage) {
				issued, err := p.by(t.Context(), d)
				c.Value("error", err)
				c.Value("issued", issued)
				if reason(err) != r.want {
					t.Errorf("error %v, want reason %q", err, r.want)
				}
				if err == nil && !cmp.Equal(issued.Scopes, slices.Sorted(slices.Values(p.scopes))) {
					t.Errorf("scopes %q, want those asked for", issued.Scopes)
				}
			}, p.subject) // the secrets of these clients are too short to be told from chance
		})
	}
}

func asItIs(*profile) {}
