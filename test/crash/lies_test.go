//go:build real

package crash

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	deployvault "onbehalf.internal/broker/deploy/vault"
	"onbehalf.internal/broker/internal/testhttp"
)

// The proxy before Vault makes of this broker one that never drops a hold, and
// whose epochs live for an hour: what reaches Vault is what such a broker would
// send. So the product needs no switch for it.

const mint = "/v1/auth/token/create/broker-op"

// uncap takes the limit out of the token role.
func (s *site) uncap(t *testing.T) {
	t.Helper()
	role, err := deployvault.Files.ReadFile("broker-op.json")
	if err != nil {
		t.Fatal(err)
	}
	capped := `"token_explicit_max_ttl": "75s"`
	if !bytes.Contains(role, []byte(capped)) {
		t.Fatalf("the role has no %s", capped)
	}
	s.ask(t, "POST", "auth/token/roles/broker-op", strings.Replace(string(role), capped, `"token_explicit_max_ttl": "0"`, 1))
}

// ask makes a request as Vault's root.
func (s *site) ask(t *testing.T, method, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.vault.Addr+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", s.vault.Token)
	res, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
}

// undropped tells the broker that its hold or its epoch is gone, and Vault nothing.
func (s *site) undropped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		drop := r.Method == http.MethodDelete || r.URL.Path == "/v1/auth/token/revoke-self"
		if s.lies.Load() && drop {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *site) askForLonger(r *http.Request) {
	if s.lies.Load() && r.URL.Path == mint {
		setBody(&r.Body, &r.ContentLength, `{"explicit_max_ttl":"1h"}`)
	}
}

func (s *site) sayShorter(r *http.Response) error {
	if !s.lies.Load() || r.Request.URL.Path != mint {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	text := strings.Replace(string(body), `"lease_duration":3600`, `"lease_duration":75`, 1)
	setBody(&r.Body, &r.ContentLength, text)
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return err
}

func setBody(body *io.ReadCloser, length *int64, text string) {
	*body, *length = io.NopCloser(strings.NewReader(text)), int64(len(text))
}
