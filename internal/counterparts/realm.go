package counterparts

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// RealmSubjectLife is how long a token of [Realm.ShortSubject] lives.
const RealmSubjectLife = 2 * time.Second

// A Realm is one company at an identity provider. It knows one person, whom the
// client "company-app" logs in by password (RFC 6749 §4.3), and one broker as
// three clients, by how they authenticate. Access tokens are exchanged.
type Realm struct {
	Issuer        string
	Token         string // the endpoints; over plain HTTP
	Revocation    string
	Introspection string
	Keys          string
	MutualTLS     string // the token endpoint over TLS, where a certificate is asked for

	ClientID, ClientSecret string // basic and post; the secret has characters that Basic has to encode
	SignerID               string // private_key_jwt, with Key
	HolderID               string // mtls, with Key and Certificate
	Key, Certificate       string // PEM
	CA                     string // PEM: who signed the certificates, that of the endpoint too

	keys *realmKeys
}

// newRealm makes the keys of a realm. What the server needs of them is in home:
// ca.pem, server.pem and server.key.
func newRealm(t testing.TB, home string) *Realm {
	t.Helper()
	k := newRealmKeys(t)
	for name, text := range map[string]string{"ca.pem": k.ca, "server.pem": k.server, "server.key": k.serverKey} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return &Realm{
		ClientID: "broker", ClientSecret: "b/r+o k%er", SignerID: "broker-jwt", HolderID: "broker-mtls",
		Key: k.brokerKey, Certificate: k.broker, CA: k.ca, keys: k,
	}
}

// Subject is a new access token of the person, for the broker.
func (r *Realm) Subject(t testing.TB) string {
	t.Helper()
	return r.login(t, "company-app")
}

// ShortSubject is one that lives for [RealmSubjectLife].
func (r *Realm) ShortSubject(t testing.TB) string {
	t.Helper()
	return r.login(t, "company-app-short")
}

func (r *Realm) login(t testing.TB, client string) string {
	t.Helper()
	return askToken(t, r.Token, client, "company-app-secret", "access_token", url.Values{
		"grant_type": {"password"}, "username": {"admin@example.com"}, "password": {"password"}, "scope": {"openid"}})
}

// Revoke ends a token of [Realm.Subject] (RFC 7009).
func (r *Realm) Revoke(t testing.TB, token string) {
	t.Helper()
	form := url.Values{"token": {token}, "client_id": {"company-app"}, "client_secret": {"company-app-secret"}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp := send(t, req)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("revoking a subject: status %d", resp.StatusCode)
	}
}
