package brokertest

import (
	"net/http"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// Origin is what the broker's address is for MCP clients, see [Fronted].
const Origin = "https://broker.example.org"

// Fronted has MCP clients come to the broker: people with access tokens of the issuer
// "https://login.example", user:7 and user:8, who both may use both servers. See
// [Options.Config], [Rig.Token] and [Rig.Front].
func Fronted(yaml string) string { return FrontedAt(Origin)(yaml) }

// FrontedAt is Fronted with another origin, for clients that cannot be told another host than
// the one they connect to: "http://" and Options.API.
func FrontedAt(origin string) func(yaml string) string {
	return func(yaml string) string {
		const callers, grants = "callers:\n", "    grants:\n"
		yaml = strings.Replace(yaml, callers, `mcp: {origin: "`+origin+`"}
`+callers+`  desks:
    roles: [operate]
    tokens: {issuer: "https://login.example", jwks: portal.jwks, subjects: ["user:7", "user:8"]}
    servers: [records, archive]
    zone: local
`, 1)
		return strings.Replace(yaml, grants, grants+`      "user:8":
        enabled: true
        credential: "vault:kv/broker/subjects/8#value"
        subject: "user:8"
        allowed_audiences: [mcp-records, mcp-archive]
        allowed_scopes: [records.read]
        reason: "brokertest"
`, 1)
	}
}

// Token signs an access token of a person ("7") for the address of a server; claims may add
// to it and change it.
func (r *Rig) Token(person, resource string, claims map[string]any) string {
	all := jwt.MapClaims{"iss": "https://login.example", "sub": person, "aud": resource, "client_id": "desk"}
	for name, value := range claims {
		all[name] = value
	}
	return r.signAs("at+jwt", all)
}

// Front is how an MCP client reaches the broker by an origin that is not its address: it
// connects to the broker, and says what a proxy would have passed on. Token, where it is
// not empty, is the bearer.
type Front struct {
	Rig   *Rig
	Token string
}

// RoundTrip makes Front an [http.RoundTripper].
func (f Front) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", strings.TrimPrefix(f.Rig.URL, "http://")
	r.Host = strings.TrimPrefix(Origin, "https://")
	if f.Token != "" {
		r.Header.Set("Authorization", "Bearer "+f.Token)
	}
	return transport.RoundTrip(r)
}

// transport holds no connection that nobody uses: a rig that ends waits for none.
var transport = &http.Transport{DisableKeepAlives: true}
