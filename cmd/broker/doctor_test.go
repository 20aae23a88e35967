package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
)

// says answers one thing.
func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// standIn stands before the rig's broker, answers what is asked at one place itself, and
// calls itself server.
func standIn(t *testing.T, rig *brokertest.Rig, at string, answer http.HandlerFunc, server string) *httptest.Server {
	t.Helper()
	target, err := url.Parse(rig.URL)
	if err != nil {
		t.Fatal(err)
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() == at {
			answer(w, r)
			return
		}
		if server != "" {
			w.Header().Set("Server", server)
		}
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }}).ServeHTTP(w, r)
	}))
}

// TestDoctor: what stands between doctor and a broker, or in its place, is seen.
// No result is printed, whatever comes.
func TestDoctor(t *testing.T) {
	rig := brokertest.New(t, nil)
	first := rig.Call(t, brokertest.Call{Key: "first"})
	rig.Call(t, brokertest.Call{Key: "second"}) // the first one's drop is recorded by now
	bearer := filepath.Join(t.TempDir(), "bearer")
	if err := os.WriteFile(bearer, []byte(rig.Bearer), 0o600); err != nil {
		t.Fatal(err)
	}
	byID, all, byKey := "/v1/operations/"+first.ID, "/v1/operations", "/v1/operations?request_key=first"
	moving := 0
	for _, tc := range []struct {
		name, at string
		answer   http.HandlerFunc
		status   int
		says     string
	}{
		{"as it is", "", nil, 0, `ok  retrieval: 2 operations; the oldest, "` + first.ID + `"`},
		{"sealed", "/readyz", says(503, `{"status":"not_ready","reason":"vault_sealed"}`), 1, "NO  ready: vault_sealed\n      Vault is sealed: vault operator unseal."},
		{"another reason", "/readyz", says(503, `{"status":"not_ready","reason":"hold_failed"}`), 1, "NO  ready: hold_failed\n      docs/outcomes.md"},
		{"another Host", "/readyz", says(403, `{"status":403,"reason":"host_not_allowed"}`), 1, "NO  ready: host_not_allowed\n      Use the address"},
		{"another service, ready", "/readyz", says(200, `{"status":"ok"}`), 1, "NO  ready: something answers /readyz with 200 that is no broker"},
		{"a page", "/readyz", says(200, `<html>`), 1, "that is no broker"},
		{"ready with a bad status", "/readyz", says(503, `{"status":"ready"}`), 1, "NO  ready: something answers /readyz with 503"},
		{"a list of somebody else", all, says(200, `{"items":[]}`), 1, "NO  retrieval: something answers with 200 that is no broker"},
		{"a gateway's 502", all, says(502, `<html>`), 1, "NO  retrieval: something answers with 502 that is no broker"},
		{"foreign words", all, says(401, `{"reason":"\u001b[2Jsecret"}`), 1, "NO  retrieval: something answers with 401 that is no broker"},
		{"the store", all, says(503, `{"reason":"store_failed"}`), 1, "NO  retrieval: 503, so what is cut off cannot be found again. store_failed\n      Its disk"},
		{"lost by id", byID, says(404, `{}`), 1, `the oldest of 2 operations is in the list, and asking for it at "/v1/operations/` + first.ID + `" is answered 404`},
		{"lost by key", byKey, says(404, `{}`), 1, `asking for it at "/v1/operations?request_key=first" is answered 404`},
		{"another by key", byKey, says(200, `{"id":"another"}`), 1, `is one thing by its id and another by its key`},
		{"moving", byID, func(w http.ResponseWriter, _ *http.Request) { moving++; fmt.Fprint(w, moving) }, 1, `is one thing by its id and another by its key`},
	} {
		proxy := standIn(t, rig, tc.at, tc.answer, "")
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"doctor", "--api", proxy.URL, "--bearer-file", bearer, "--actor", "user:7"},
			world{func(string) string { return "" }, &stdout, &stderr, nil})
		proxy.Close()
		if said := stdout.String(); status != tc.status || !strings.Contains(said, tc.says) || strings.Count("\n"+said, "\n"+`ok`)+strings.Count("\n"+said, "\nNO")+strings.Count("\n"+said, "\n--") != 3 || stderr.Len() > 0 {
			t.Errorf("%s: status %d, %q, %s; want %q", tc.name, status, said, &stderr, tc.says)
		}
		if said := stdout.String(); strings.Contains(said, "subject") || strings.Contains(said, "\x1b") {
			t.Errorf("%s: %q", tc.name, said)
		}
	}
	if moving != 6 {
		t.Errorf("what moves was fetched %d times", moving)
	}
}

// afterSome is a time that was measured.
var afterSome = regexp.MustCompile(`after [0-9.]+m?s,`)

// TestDoctorAsAdmin: what stands between an admin and the broker, or in its place, and
// what comes of patience.
func TestDoctorAsAdmin(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string { return strings.Replace(yaml, "timeout: 5s", "timeout: 1s", 1) }})
	dir := t.TempDir()
	admin, gateway, unknown := filepath.Join(dir, "admin"), filepath.Join(dir, "gateway"), filepath.Join(dir, "unknown")
	for path, text := range map[string]string{admin: rig.AdminBearer(), gateway: rig.Bearer, unknown: "unknown-4711"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hurried := func(w http.ResponseWriter, r *http.Request) { // as a gateway does whose time is over
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusGatewayTimeout)
	}
	cut := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	const examine, wait = "/v1/doctor", "/v1/doctor/patience?wait=1s"
	for _, tc := range []struct {
		name, bearer, at string
		answer           http.HandlerFunc
		server           string // what the proxy calls itself
		status           int
		says             string
		patience         bool
	}{
		{"as it is", admin, "", nil, "", 0, "ok  vault policy: ", false},
		{"patience", admin, "", nil, "", 0, "ok  patience on the way to the broker: nothing cut an answer that took 1", true},
		{"the gateway's bearer", gateway, "", nil, "", 1, "NO  examination: 403. role_missing\n      This caller lacks the role admin", false},
		{"an unknown bearer", unknown, "", nil, "", 1, "NO  examination: 401. caller_unknown", false},
		{"another service", admin, examine, says(200, `{"status":"ok"}`), "", 1, "NO  examination: something answers with 200 that is no broker", false},
		{"a page", admin, examine, says(502, `<html>`), "", 1, "NO  examination: something answers with 502", false},
		{"under way", admin, examine, says(429, `{"reason":"server_busy"}`), "", 1, "NO  examination: 429. server_busy\n      It is being asked already", false},
		{"nginx on the way", admin, "", nil, "nginx/1.29", 0, "--  way to the broker: nginx stands on this way; it gives up after 1m0s unless it is told otherwise", false},
		{"an answer that is cut", admin, wait, hurried, "", 1, "NO  patience on the way to the broker: something cut the answer off after SOME, and a call may take 1s", true},
		{"a connection that is cut", admin, wait, cut, "", 1, "NO  patience on the way to the broker: something cut the answer off after SOME, and", true},
		{"an answer too soon", admin, wait, says(200, `{}`), "", 1, "NO  patience on the way to the broker: an answer came after SOME, where one was to come after 1s: it is not the broker's", true},
		{"an answer of another's", admin, wait, says(404, `{}`), "", 1, "NO  patience on the way to the broker: something answers with 404", true},
	} {
		proxy := standIn(t, rig, tc.at, tc.answer, tc.server)
		args := []string{"doctor", "--api", proxy.URL, "--admin-bearer-file", tc.bearer}
		if tc.patience {
			args = append(args, "--patience")
		}
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), args, world{func(string) string { return "" }, &stdout, &stderr, nil})
		proxy.Close()
		said := afterSome.ReplaceAllString(stdout.String(), "after SOME,")
		if status != tc.status || !strings.Contains(said, tc.says) || stderr.Len() > 0 {
			t.Errorf("%s: status %d, %s, %s; want %q", tc.name, status, said, &stderr, tc.says)
		}
		for _, secret := range rig.Secrets() {
			if strings.Contains(stdout.String(), secret) {
				t.Errorf("%s: a secret is printed", tc.name)
			}
		}
	}
}
