package brokertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/audit"
)

// configuration is a whole profiles.yaml. The words in capitals are filled in.
const configuration = `version: 1
listen: {api: "API"}
vault:
  address: "VAULT"
  auth: {method: token}
  hold: {role: broker-op}
store: {path: "DATABASE"}
operation: {timeout: 5s}
ui: UI

callers:
  gateway:
    roles: [operate]
    bearer_sha256: ["BEARER"]
    actors: {asserted: ["user:7", "user:8"]}
    servers: [records, archive]
    zone: local
  portal:
    roles: [operate]
    bearer_sha256: ["PORTAL"]
    actors: {signed: {issuer: "https://portal.example", jwks: portal.jwks, audience: broker, subjects: ["user:"]}}
    servers: [records]
    zone: local

  admin:
    roles: [admin]
    bearer_sha256: ["ADMIN"]
    servers: [records, archive]
  people:
    roles: [approve]
    bearer_sha256: ["PEOPLE"]
    approvers: {issuer: "https://people.example", jwks: portal.jwks, audience: approvals, subjects: ["user:"], admin: {claim: roles, value: admin}}
  auditor:
    roles: [audit]
    bearer_sha256: ["AUDITOR"]
  reviewers:
    roles: [audit, approve]
    sign_in: {issuer: "PROVIDER", allow_cidrs: ["127.0.0.0/8"], client_id: page, subjects: ["user:"], admin: {claim: groups, value: admins},
      audit: {claim: groups, value: auditors}, approve: {claim: groups, value: approvers}}

profiles:
  company:
    token_endpoint: PROVIDER/oauth/token
    allow_cidrs: ["127.0.0.0/8"]
    client: {id: broker, auth: basic, key: "vault:kv/broker/client#value"}
    allowed_audiences: [mcp-records, mcp-archive]
    allowed_scopes: [records.read, records.write]
    response: {token_format: jwt, expect_issuer: "PROVIDER", require_act: broker}
    grants:
      "user:7":
        enabled: true
        credential: "vault:kv/broker/subjects/7#value"
        subject: "user:7"
        allowed_audiences: [mcp-records, mcp-archive]
        allowed_scopes: [records.read]
        reason: "brokertest"

servers:
  records:
    url: RECORDS
    allow_cidrs: ["127.0.0.0/8"]
    enabled: true
    data_class: internalConfiguration
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp-records, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/records#value"}
    tools: TOOLS
  archive:
    url: ARCHIVE
    allow_cidrs: ["127.0.0.0/8"]
    enabled: true
    data_class: internalConfiguration
    requires_approval: false
    auth: {mode: delegated, profile: company, audience: mcp-archive, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/archive#value"}
    tools: TOOLS
`

const tools = `{whoami: {enabled: true, effect: read}, slow: {enabled: true}, fail: {enabled: true}, drop: {enabled: true, drain_window: 0s}, job: {enabled: true, effect: read}}`

// PortalBearer is the bearer of the caller "portal", which names actors by
// signed assertions alone; see [Rig.Assert].
func (r *Rig) PortalBearer() string { return "portal-" + r.Bearer }

// AdminBearer is the bearer of the caller "admin", which runs no operations.
func (r *Rig) AdminBearer() string { return "admin-" + r.Bearer }

// AuditorBearer is the bearer of the caller "auditor", which may look and nothing else.
func (r *Rig) AuditorBearer() string { return "auditor-" + r.Bearer }

// HeadsPath is the second place of signed heads, with Options.SignedAudit.
func (r *Rig) HeadsPath() string { return filepath.Join(r.Dir, "heads") }

func (r *Rig) writeConfig(o Options) error {
	api := o.API
	if api == "" {
		api = "127.0.0.1:0"
	}
	page := "{}"
	if strings.HasPrefix(api, "unix:") { // which no browser sees
		page = `{origin: "https://broker.example"}`
	}
	text := strings.NewReplacer("API", api, "UI", page, "VAULT", r.admin.address, "DATABASE", r.DatabasePath(), "BEARER", digest(r.Bearer),
		"PORTAL", digest(r.PortalBearer()), "ADMIN", digest(r.AdminBearer()), "AUDITOR", digest(r.AuditorBearer()), "PEOPLE", digest(r.PeopleBearer()),
		"PROVIDER", r.Provider.Issuer(), "RECORDS", r.Records.URL, "ARCHIVE", r.Archive.URL,
		"TOOLS", tools).Replace(configuration)
	var keys []string
	if o.KeyInVault {
		keys = append(keys, `results: "`+ResultsKey+`"`)
	}
	if o.SignedAudit {
		if err := r.writeAuditKey(); err != nil {
			return err
		}
		keys = append(keys, `audit: "file:audit.key"`)
		text += "audit: {heads: \"file:" + r.HeadsPath() + "\"}\n"
	}
	if len(keys) > 0 {
		text += "keys: {" + strings.Join(keys, ", ") + "}\n"
	}
	if o.Config != nil {
		text = o.Config(text)
	}
	if err := r.writeKeys(); err != nil {
		return err
	}
	r.ConfigPath = filepath.Join(r.Dir, "profiles.yaml")
	return os.WriteFile(r.ConfigPath, []byte(text), 0o600)
}

func (r *Rig) writeAuditKey() error {
	file, verifier, err := audit.NewKey("brokertest")
	if err != nil {
		return err
	}
	r.AuditKey = verifier
	return os.WriteFile(filepath.Join(r.Dir, "audit.key"), file, 0o600)
}

// writeKeys makes the key that signs the portal's assertions and writes its
// public half where the configuration looks for it.
func (r *Rig) writeKeys() (err error) {
	if r.signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	point, err := r.signer.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return err
	}
	encode := base64.RawURLEncoding.EncodeToString
	set, err := json.Marshal(map[string]any{"keys": []map[string]string{{"kty": "EC", "crv": "P-256", "kid": "portal", "use": "sig", "alg": "ES256",
		"x": encode(point[1:33]), "y": encode(point[33:])}}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Dir, "portal.jwks"), set, 0o600)
}

// Assert signs an assertion of the portal that it acts for actor.
func (r *Rig) Assert(actor string) string {
	return r.sign(jwt.MapClaims{"iss": "https://portal.example", "aud": "broker", "sub": actor})
}

// sign signs claims, each jti of its own, for a minute unless they say otherwise.
func (r *Rig) sign(claims jwt.MapClaims) string { return r.signAs("JWT", claims) }

func (r *Rig) signAs(typ string, claims jwt.MapClaims) string {
	now := time.Now()
	all := jwt.MapClaims{"jti": rand.Text(), "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	maps.Copy(all, claims)
	token := jwt.NewWithClaims(jwt.SigningMethodES256, all)
	token.Header["kid"], token.Header["typ"] = "portal", typ
	signed, err := token.SignedString(r.signer)
	if err != nil {
		panic("brokertest: internal error: " + err.Error())
	}
	return signed
}
