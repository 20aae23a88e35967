package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/vault"
)

const good = `{"server":"records","tool":"whoami","arguments":{},"request_key":"KEY"}`

// post sends body as the gateway for user:7, after change had its hands on it.
func post(t *testing.T, rig *brokertest.Rig, body string, change func(*http.Request)) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequest("POST", rig.URL+"/v1/operations", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+rig.Bearer)
	req.Header.Set("Broker-Actor", "user:7")
	req.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(req)
	}
	res, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, b
}

// TestRefused: requests that begin nothing, with the status and the one word
// that says why.
func TestRefused(t *testing.T) {
	rig := brokertest.New(t, nil)
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	add := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Add(name, value) }
	}
	for _, tc := range []struct {
		name   string
		body   string
		change func(*http.Request)
		status int
		reason fault.Reason
	}{
		// who calls
		{"no bearer", good, func(r *http.Request) { r.Header.Del("Authorization") }, 401, "caller_unknown"},
		{"another bearer", good, set("Authorization", "Bearer "+strings.Repeat("a", 52)), 401, "caller_unknown"},
		{"lower-case scheme", good, set("Authorization", "bearer "+rig.Bearer), 401, "caller_unknown"},
		{"two spaces", good, set("Authorization", "Bearer  "+rig.Bearer), 401, "caller_unknown"},
		{"two headers", good, add("Authorization", "Bearer "+rig.Bearer), 401, "caller_unknown"},
		{"joined", good, set("Authorization", "Bearer x, Bearer "+rig.Bearer), 401, "caller_unknown"},
		{"health check's agent", good, func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("User-Agent", "kube-probe/1.31") }, 401, "caller_unknown"},
		// for whom
		{"no actor", good, func(r *http.Request) { r.Header.Del("Broker-Actor") }, 401, "actor_missing"},
		{"two actors", good, add("Broker-Actor", "user:8"), 401, "actor_invalid"},
		{"both ways", good, set("Broker-Actor-Assertion", "x.y.z"), 401, "actor_invalid"},
		{"no id", good, set("Broker-Actor", "admin"), 401, "actor_invalid"},
		{"not in the list", good, set("Broker-Actor", "user:9"), 403, "actor_not_allowed"},
		{"underscores", good, func(r *http.Request) { r.Header.Del("Broker-Actor"); r.Header["Broker_actor"] = []string{"user:7"} }, 401, "actor_missing"},
		// how it is sent
		{"no type", good, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, "unsupported_media_type"},
		{"a form", "server=records", set("Content-Type", "application/x-www-form-urlencoded"), 415, "unsupported_media_type"},
		{"xml", "<a/>", set("Content-Type", "application/xml"), 415, "unsupported_media_type"},
		{"another charset", good, set("Content-Type", "application/json; charset=utf-16"), 415, "unsupported_media_type"},
		{"two types", good, add("Content-Type", "application/json"), 415, "unsupported_media_type"},
		{"coded", good, set("Content-Encoding", "gzip"), 415, "unsupported_media_type"},
		{"a query", good, func(r *http.Request) { r.URL.RawQuery = "actor=user:8" }, 400, "malformed_request"},
		{"a browser", good, set("Origin", "https://evil.example"), 403, "host_not_allowed"},
		{"a browser without a name", good, set("Origin", "null"), 403, "host_not_allowed"},
		{"another host", good, func(r *http.Request) { r.Host = "evil.example" }, 403, "host_not_allowed"},
		{"too large", `{"server":"` + strings.Repeat("a", 300<<10) + `"}`, nil, 413, "request_too_large"},
		// what it says
		{"empty", "", nil, 400, "malformed_request"},
		{"null", "null", nil, 400, "malformed_request"},
		{"array", "[]", nil, 400, "malformed_request"},
		{"two values", good + good, nil, 400, "malformed_request"},
		{"trailing text", good + "x", nil, 400, "malformed_request"},
		{"BOM", "\ufeff" + good, nil, 400, "malformed_request"},
		{"unknown member", `{"server":"records","tool":"whoami","request_key":"k","actor":"user:8"}`, nil, 400, "malformed_request"},
		{"twice", `{"server":"records","server":"archive","tool":"whoami","request_key":"k"}`, nil, 400, "malformed_request"},
		{"another case", `{"Server":"records","tool":"whoami","request_key":"k"}`, nil, 400, "malformed_request"},
		{"kelvin sign", `{"server":"records","tool":"whoami","request_\u212aey":"k"}`, nil, 400, "malformed_request"},
		{"twice in arguments", `{"server":"records","tool":"whoami","request_key":"k","arguments":{"a":1,"a":2}}`, nil, 400, "malformed_request"},
		{"arguments no object", `{"server":"records","tool":"whoami","request_key":"k","arguments":[]}`, nil, 400, "malformed_request"},
		{"arguments null", `{"server":"records","tool":"whoami","request_key":"k","arguments":null}`, nil, 400, "malformed_request"},
		{"arguments too deep", `{"server":"records","tool":"whoami","request_key":"k","arguments":{"a":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}}`, nil, 400, "malformed_request"},
		{"bad UTF-8", "{\"server\":\"rec\xffords\",\"tool\":\"whoami\",\"request_key\":\"k\"}", nil, 400, "malformed_request"},
		{"lone surrogate", `{"server":"rec\ud800","tool":"whoami","request_key":"k"}`, nil, 400, "malformed_request"},
		{"number as name", `{"server":7,"tool":"whoami","request_key":"k"}`, nil, 400, "malformed_request"},
		{"no server", `{"tool":"whoami","request_key":"k"}`, nil, 400, "malformed_request"},
		{"server is a path", `{"server":"../records","tool":"whoami","request_key":"k"}`, nil, 400, "malformed_request"},
		{"invisible in the tool", "{\"server\":\"records\",\"tool\":\"who\u200bami\",\"request_key\":\"k\"}", nil, 400, "malformed_request"},
		{"no key", `{"server":"records","tool":"whoami"}`, nil, 400, "malformed_request"},
		{"key too long", `{"server":"records","tool":"whoami","request_key":"` + strings.Repeat("k", 256) + `"}`, nil, 400, "malformed_request"},
		{"key with a line", `{"server":"records","tool":"whoami","request_key":"k\nk"}`, nil, 400, "malformed_request"},
		{"timeout is nothing", `{"server":"records","tool":"whoami","request_key":"k","timeout":"0s"}`, nil, 400, "malformed_request"},
		{"timeout is negative", `{"server":"records","tool":"whoami","request_key":"k","timeout":"-1s"}`, nil, 400, "malformed_request"},
		{"timeout is a number", `{"server":"records","tool":"whoami","request_key":"k","timeout":20}`, nil, 400, "malformed_request"},
		{"timeout without unit", `{"server":"records","tool":"whoami","request_key":"k","timeout":"20"}`, nil, 400, "malformed_request"},
		{"wait is huge", `{"server":"records","tool":"whoami","request_key":"k","wait":"1000h"}`, nil, 400, "malformed_request"},
		{"first_sent is no time", `{"server":"records","tool":"whoami","request_key":"k","first_sent":"yesterday"}`, nil, 400, "malformed_request"},
		{"first_sent at the beginning", `{"server":"records","tool":"whoami","request_key":"k","first_sent":"0001-01-01T00:00:00Z"}`, nil, 400, "malformed_request"},
		{"first_sent in 1970", `{"server":"records","tool":"whoami","request_key":"k","first_sent":"1970-01-01T00:00:00Z"}`, nil, 400, "malformed_request"},
		{"first_sent in the future", `{"server":"records","tool":"whoami","request_key":"k","first_sent":"2999-01-01T00:00:00Z"}`, nil, 400, "malformed_request"},
		{"a key of the future", `{"server":"records","tool":"whoami","request_key":"7fffffff-0000-7000-8000-000000000000"}`, nil, 400, "malformed_request"},
		{"supersedes no id", `{"server":"records","tool":"whoami","request_key":"k","supersedes":"../x"}`, nil, 400, "malformed_request"},
		{"supersedes nothing", `{"server":"records","tool":"whoami","request_key":"k","supersedes":"aaaaaaaaaaaaaaaaaaaaaaaaaa"}`, nil, 404, "operation_not_found"},
		// what the ledger cannot know
		{"a key older than the ledger", `{"server":"records","tool":"whoami","request_key":"01890a5d-ac96-774b-bcce-b302099a8057"}`, nil, 422, "no_record"},
		{"first_sent before the ledger", `{"server":"records","tool":"whoami","request_key":"k","first_sent":"2026-01-01T00:00:00Z"}`, nil, 422, "no_record"},
		// what policy says
		{"unknown server", `{"server":"nobody","tool":"whoami","request_key":"k"}`, nil, 403, "server_unknown"},
		{"unknown tool", `{"server":"records","tool":"nothing","request_key":"k"}`, nil, 403, "tool_unknown"},
	} {
		res, body := post(t, rig, strings.Replace(tc.body, "KEY", tc.name, 1), tc.change)
		var p struct {
			Status       int
			Reason, Kind string
			Ledger       struct{ ID string }
		}
		if err := json.Unmarshal(body, &p); err != nil {
			t.Errorf("%s: %v %s", tc.name, err, body)
		}
		if res.StatusCode != tc.status || p.Status != tc.status || p.Reason != string(tc.reason) || p.Kind != string(tc.reason.Kind()) || p.Ledger.ID == "" {
			t.Errorf("%s: %d %s, want %d %s", tc.name, res.StatusCode, body, tc.status, tc.reason)
		}
		if got := res.Header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
	if n := rig.Provider.Exchanges(); n != 0 {
		t.Errorf("%d exchanges for refused requests", n)
	}
}

// TestAbsentKey: of a key that is not there the answer says whether that proves
// anything. It is the same for a key that another actor has used.
func TestAbsentKey(t *testing.T) {
	rig := brokertest.New(t, nil)
	fresh := uuid.Must(uuid.NewV7()).String()
	theirs := uuid.Must(uuid.NewV7()).String()
	if got := rig.Call(t, brokertest.Call{Key: theirs}); got.State != fault.Succeeded || got.FirstSent.IsZero() {
		t.Fatalf("%s", got.Body)
	}
	for _, tc := range []struct {
		name, query string
		want        bool
	}{
		{"a UUIDv7 of now", fresh, true},
		{"another actor's", theirs, true},
		{"a UUIDv7 from before the ledger", "01890a5d-ac96-774b-bcce-b302099a8057", false},
		{"a UUIDv4", "01890a5d-ac96-474b-bcce-b302099a8057", false},
		{"any text", "k1", false},
		{"with its time", "k1&first_sent=" + url.QueryEscape(time.Now().Add(time.Minute).Format(time.RFC3339)), true},
		{"with a time before the ledger", "k1&first_sent=2026-01-01T00:00:00Z", false},
	} {
		got := rig.Get(t, "/v1/operations?request_key="+tc.query, brokertest.Call{Actor: "user:8"})
		var p httpapi.Problem
		if err := json.Unmarshal(got.Body, &p); err != nil || got.Status != 404 || p.NeverSent == nil || *p.NeverSent != tc.want {
			t.Errorf("%s: %d %s", tc.name, got.Status, got.Body)
		}
	}
	for _, query := range []string{"first_sent=2026-01-01T00:00:00Z", "request_key=k&first_sent=now", "request_key=k&request_key=l", "state=open&request_key=k"} {
		if got := rig.Get(t, "/v1/operations?"+query, brokertest.Call{}); got.Status != 400 {
			t.Errorf("%s: %d %s", query, got.Status, got.Body)
		}
	}
}

// TestFirstSentIsOneTime: in whatever zone it is said, the answer and a retrieval
// say the same.
func TestFirstSentIsOneTime(t *testing.T) {
	rig := brokertest.New(t, nil)
	at := time.Now().Add(time.Minute).Truncate(time.Millisecond)
	said := at.In(time.FixedZone("", 5400)).Format(time.RFC3339Nano)
	_, first := post(t, rig, `{"server":"records","tool":"whoami","request_key":"k","first_sent":"`+said+`"}`, nil)
	want := `"first_sent":"` + at.UTC().Format(time.RFC3339Nano) + `"`
	if again := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); !strings.Contains(string(first), want) || !strings.Contains(string(again.Body), want) {
		t.Errorf("%s\n%s", first, again.Body)
	}
}

// TestAccepted: what must not be refused.
func TestAccepted(t *testing.T) {
	rig := brokertest.New(t, nil)
	for name, change := range map[string]func(*http.Request){
		"as it is":        nil,
		"charset":         func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=UTF-8") },
		"localhost":       func(r *http.Request) { r.Host = "localhost:" + strings.Split(r.Host, ":")[1] },
		"forwarded names": func(r *http.Request) { r.Header.Set("X-Remote-User", "root"); r.Header.Set("X-Forwarded-For", "::1") },
	} {
		if res, body := post(t, rig, strings.Replace(good, "KEY", strings.ReplaceAll(name, " ", "-"), 1), change); res.StatusCode != 200 {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
}

func TestRoutes(t *testing.T) {
	rig := brokertest.New(t, nil)
	for _, tc := range []struct {
		method, path string
		bearer       bool
		status       int
	}{
		{"GET", "/healthz", false, 200},
		{"GET", "/readyz", false, 200},
		{"GET", "/v1/operations", true, 200},
		{"GET", "/v1/operations", false, 401},
		{"GET", "/v1/operations?state=open", true, 200},
		{"GET", "/v1/operations?state=closed", true, 400},
		{"GET", "/v1/operations?state=open&request_key=k", true, 400},
		{"GET", "/v1/operations?actor=user:8", true, 400},
		{"GET", "/v1/operations/../operations", true, 404},
		{"GET", "/v1/operations/", true, 404},
		{"GET", "/V1/operations", true, 404},
		{"GET", "/v1/%6fperations", true, 404},
		{"GET", "/debug/pprof/", true, 404},
		{"GET", "/debug/vars", true, 404},
		{"GET", "/metrics", true, 404},
		{"GET", "/nothing", true, 404},
		{"GET", "/nothing", false, 401},
		{"DELETE", "/v1/operations", true, 405},
		{"POST", "/healthz", true, 405},
		{"HEAD", "/healthz", false, 200},
		{"OPTIONS", "/v1/operations", false, 401},
		{"OPTIONS", "/v1/operations", true, 405},
		{"TRACE", "/v1/operations", true, 405},
		{"BREW", "/v1/operations", true, 405},
	} {
		req, err := http.NewRequest(tc.method, rig.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tc.bearer {
			req.Header.Set("Authorization", "Bearer "+rig.Bearer)
			req.Header.Set("Broker-Actor", "user:7")
		}
		res, err := testhttp.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tc.status {
			t.Errorf("%s %s (bearer %t): %d, want %d", tc.method, tc.path, tc.bearer, res.StatusCode, tc.status)
		}
	}
}

// TestEmptyListIsNormal: nothing found is 200 with an empty list and its window.
func TestEmptyListIsNormal(t *testing.T) {
	rig := brokertest.New(t, nil)
	a := rig.Get(t, "/v1/operations", brokertest.Call{})
	if a.Status != 200 || !bytes.Contains(a.Body, []byte(`"operations":[],"window":"168h"`)) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	rig.Call(t, brokertest.Call{Key: "k"})
	a = rig.Get(t, "/v1/operations", brokertest.Call{})
	if !bytes.Contains(a.Body, []byte(`"request_key":"k"`)) || bytes.Contains(a.Body, []byte(`"result"`)) {
		t.Errorf("%s", a.Body)
	}
}

// TestText: a result also comes as plain text, beside its bytes; an error of the
// server's does not.
func TestText(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Key: "ran", Tool: "fail"})
	for name, a := range map[string]brokertest.Answer{
		"call":      rig.Call(t, brokertest.Call{Key: "ran", Tool: "fail"}),
		"retrieval": rig.Get(t, "/v1/operations?request_key=ran", brokertest.Call{}),
	} {
		if !strings.HasPrefix(a.Text, "The tool reported an error: ") || a.Result == nil {
			t.Errorf("%s: text %q in %s", name, a.Text, a.Body)
		}
	}
	if list := rig.Get(t, "/v1/operations", brokertest.Call{}); bytes.Contains(list.Body, []byte(`"text"`)) {
		t.Errorf("a list with text: %s", list.Body)
	}
}

// TestNotReady: a broker whose login ended answers, and says what is missing.
func TestNotReady(t *testing.T) {
	rig := brokertest.New(t, nil)
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := rig.Broker.Ready(); fault.ReasonOf(err) != fault.Draining {
		t.Errorf("a stopped broker: %v", err)
	}
}

// TestReadTimeoutEndsWithTheBody: the read timeout is for the body; it does not end the wait
// for a longer operation.
func TestReadTimeoutEndsWithTheBody(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{ReadTimeout: 100 * time.Millisecond})
	a := rig.Call(t, brokertest.Call{Tool: "slow", Arguments: map[string]float64{"seconds": 0.4}})
	if a.Status != 200 || a.State != "succeeded" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestRole: a caller without the role of an address is told so.
func TestRole(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(y string) string {
		return strings.Replace(y, "portal:\n    roles: [operate]", "portal:\n    roles: [audit]", 1)
	}})
	a := rig.Call(t, brokertest.Call{Bearer: rig.PortalBearer(), Assertion: rig.Assert("user:7")})
	if a.Status != 403 || a.Reason != "role_missing" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// TestRate: one caller's flood ends in 429, before anything is looked up, and
// another caller does not notice.
func TestRate(t *testing.T) {
	noon := time.Now()
	rig := brokertest.New(t, nil)
	s, err := policy.Load(rig.ConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	h := httpapi.New(httpapi.Config{Policy: policy.NewHolder(s), Now: func() time.Time { return noon }, Log: slog.New(slog.DiscardHandler),
		Metrics: httpapi.NewMetrics(func() int { return 0 }, func() vault.Stats { return vault.Stats{} }, func() []httpapi.Server { return nil }), Ledger: func() (string, time.Time) { return "l", time.Time{} }})
	ask := func(bearer string) int {
		req := httptest.NewRequest("GET", "/v1/operations?state=closed", nil)
		req.Header.Set("Authorization", "Bearer "+bearer)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec.Code
	}
	limited := 0
	for range 5_000 { // at one moment
		if ask(rig.Bearer) == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited != 1_000 {
		t.Errorf("of 5,000 requests at once %d were limited", limited)
	}
	if got := ask(rig.PortalBearer()); got != http.StatusBadRequest {
		t.Errorf("another caller got %d", got)
	}
}

// TestRawHTTP speaks to the socket.
func TestRawHTTP(t *testing.T) {
	rig := brokertest.New(t, nil)
	address := strings.TrimPrefix(rig.URL, "http://")
	auth := "Authorization: Bearer " + rig.Bearer + "\r\nBroker-Actor: user:7\r\nContent-Type: application/json\r\n"
	for name, tc := range map[string]struct {
		send   string
		status int
	}{
		"two hosts":          {"GET /healthz HTTP/1.1\r\nHost: " + address + "\r\nHost: evil\r\n\r\n", 400},
		"no host":            {"GET /healthz HTTP/1.1\r\n\r\n", 400},
		"header too large":   {"GET /healthz HTTP/1.1\r\nHost: " + address + "\r\nX: " + strings.Repeat("a", 32<<10) + "\r\n\r\n", 431},
		"signed length":      {"POST /v1/operations HTTP/1.1\r\nHost: " + address + "\r\n" + auth + "Content-Length: +3\r\n\r\n{}}", 400},
		"two lengths":        {"POST /v1/operations HTTP/1.1\r\nHost: " + address + "\r\n" + auth + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		"space before colon": {"GET /healthz HTTP/1.1\r\nHost: " + address + "\r\nAuthorization : x\r\n\r\n", 400},
		"body on a read":     {"GET /v1/operations HTTP/1.1\r\nHost: " + address + "\r\n" + auth + "Content-Length: 2\r\n\r\n{}", 400},
	} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprint(c, tc.send)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if res.StatusCode != tc.status {
			t.Errorf("%s: %d, want %d", name, res.StatusCode, tc.status)
		}
		c.Close()
	}
}

// TestUnixSocket: the socket is for its owner, replaces a dead one, refuses a
// live one.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := httpapi.Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := httpapi.Listen("unix:" + path); err == nil {
		t.Error("a live socket was taken over")
	}
	l.Close()
	os.WriteFile(path, nil, 0o600)
	if _, err := httpapi.Listen("unix:" + path); err == nil {
		t.Error("a file that is no socket was replaced")
	}
	os.Remove(path)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close() // as a process leaves it that was killed
	again, err := httpapi.Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// TestMetrics: the canary over the metrics, and a bounded number of series
// whatever comes in.
func TestMetrics(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		rig := brokertest.New(t, &brokertest.Options{Log: c.Writer(), Config: func(y string) string {
			return strings.Replace(y, `listen: {api: "127.0.0.1:0"}`, `listen: {api: "127.0.0.1:0", metrics: "127.0.0.1:0"}`, 1)
		}})
		c.Plant(rig.Bearer)
		for i := range 20 {
			rig.Call(t, brokertest.Call{Tool: fmt.Sprintf("tool%d", i)})
			rig.Get(t, fmt.Sprintf("/v1/operations/%026d", i), brokertest.Call{})
		}
		rig.Call(t, brokertest.Call{})
		c.Plant(rig.Secrets()...)
		res, err := testhttp.Client.Get(rig.Broker.MetricsAddress() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		c.Bytes("metrics", body)
		for _, want := range []string{`broker_operations_total{cause="",server="records",state="succeeded"} 1`,
			`broker_http_requests_total{route="/v1/operations/:id",status="404"} 20`, `broker_leg_seconds_count{leg="tools/call"} 1`,
			"broker_holds_open 0", "broker_epochs_alive 1", "broker_drops_pending 0", "broker_drops_pending_oldest_seconds 0",
			`broker_vault_mints_total{result="ok"} 1`, `broker_vault_drops_total{result="ok"} 1`, "broker_vault_login_seconds "} {
			if !bytes.Contains(body, []byte(want)) {
				t.Errorf("no %s in\n%s", want, body)
			}
		}
		if bytes.Contains(body, []byte("tool7")) || bytes.Contains(body, []byte("user:7")) {
			t.Error("a name from the wire is a label")
		}
	})
}
