package counterparts

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// askToken is one request to a token endpoint with a secret in Basic. It
// returns the member of the answer that holds the token.
func askToken(t testing.TB, endpoint, client, secret, member string, form url.Values) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(url.QueryEscape(client), url.QueryEscape(secret)) // RFC 6749 §2.3.1
	resp := send(t, req)
	defer resp.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: status %d, %v", endpoint, resp.StatusCode, err)
	}
	token, _ := answer[member].(string)
	if token == "" {
		t.Fatalf("%s: status %d without %s: %v", endpoint, resp.StatusCode, member, answer["error"])
	}
	return token
}

// send sends req and follows no redirect.
func send(t testing.TB, req *http.Request) *http.Response {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
