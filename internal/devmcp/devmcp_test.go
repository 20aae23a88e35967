package devmcp_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/testhttp"
)

const token = "token-of-user-7"

func verify(token string) (devmcp.Identity, error) {
	subject, ok := strings.CutPrefix(token, "token-of-")
	if !ok {
		return devmcp.Identity{}, errors.New("not ours")
	}
	return devmcp.Identity{Subject: subject, Audience: []string{"mcp-api"}, Actor: "broker"}, nil
}

func start(t *testing.T, opts devmcp.Options) *devmcp.Server {
	t.Helper()
	if opts.Header == "" && opts.Verify == nil {
		opts.Verify = verify
	}
	s, err := devmcp.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// bearer puts a header on every request.
type bearer struct{ name, value string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(b.name, b.value)
	return http.DefaultTransport.RoundTrip(r)
}

// connect connects the SDK's own client.
func connect(t *testing.T, s *devmcp.Server, version string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:             s.URL,
		HTTPClient:           &http.Client{Transport: bearer{"Authorization", "Bearer " + token}},
		MaxRetries:           -1,
		DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err == nil {
		t.Cleanup(func() { session.Close() })
	}
	return session, err
}

// TestTools calls every tool in both eras through the SDK's client.
func TestTools(t *testing.T) {
	for _, era := range []struct {
		version string
		legacy  bool
		methods []string // before the first call
	}{
		{"2026-07-28", false, []string{"server/discover"}},
		{"2025-11-25", true, []string{"initialize", "notifications/initialized"}},
	} {
		t.Run(era.version, func(t *testing.T) {
			s := start(t, devmcp.Options{Legacy: era.legacy})
			session, err := connect(t, s, era.version)
			if err != nil {
				t.Fatal(err)
			}
			var methods []string
			for _, r := range s.Requests() {
				methods = append(methods, r.Method)
			}
			if diff := cmp.Diff(era.methods, methods); diff != "" {
				t.Errorf("handshake: %s", diff)
			}
			list, err := session.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, fmt.Sprint(tool.Name, " ", tool.Annotations.ReadOnlyHint))
			}
			if diff := cmp.Diff([]string{"drop false", "fail false", "job true", "slow true", "whoami true"}, names); diff != "" {
				t.Error(diff)
			}
			call := func(name, arguments string) (string, error) {
				res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("%v %s", res.IsError, res.Content[0].(*mcp.TextContent).Text), nil
			}
			for _, tc := range []struct{ name, arguments, want string }{
				{"whoami", `{}`, `false {"subject":"user-7","audience":["mcp-api"],"actor":"broker"}`},
				{"slow", `{"seconds":0.001}`, `false {"slept":0.001}`},
				{"fail", `{}`, `true it failed, as it was asked to`},
				{"fail", `{"seconds":"many"}`, `true the arguments are not what the schema says`},
				{"drop", `{"job":"a","then":"well"}`, `true there is no such ending`},
				{"job", `{"job":"a"}`, `false {"job":"a","ran":0}`},
			} {
				if got, err := call(tc.name, tc.arguments); err != nil || got != tc.want {
					t.Errorf("%s %s: %s, %v, want %s", tc.name, tc.arguments, got, err, tc.want)
				}
			}
			if got, err := call("drop", `{"job":"a"}`); err == nil {
				t.Errorf("drop answered %s", got)
			}
			for name, want := range map[string]int{"whoami": 1, "slow": 1, "fail": 1, "drop": 2, "job": 1, "none": 0} {
				if got := s.Calls(name); got != want {
					t.Errorf("%s ran %d times, want %d", name, got, want)
				}
			}
			session, err = connect(t, s, era.version) // the SDK gives a session up when a connection breaks
			if err != nil {
				t.Fatal(err)
			}
			if got, err := call("job", `{"job":"a"}`); err != nil || got != `false {"job":"a","ran":1}` {
				t.Errorf("after the drop: %s, %v", got, err)
			}
		})
	}
}

// A message is what a test sends by hand.
type message struct {
	method, params, session string
	version                 string // the header; "" for none
	token                   string
}

// send sends m as its era asks for it, and returns the JSON-RPC answer, if any,
// out of either form of body.
func send(t *testing.T, s *devmcp.Server, m message) (*http.Response, string) {
	t.Helper()
	id := `"id":"r-1",`
	if strings.HasPrefix(m.method, "notifications/") {
		id = ""
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0",%s"method":%q,"params":%s}`, id, m.method, m.params)
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range map[string]string{
		"Authorization": m.token, "Mcp-Protocol-Version": m.version, "Mcp-Session-Id": m.session,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if m.version >= modern {
		req.Header.Set("Mcp-Method", m.method)
		if m.method == "tools/call" {
			req.Header.Set("Mcp-Name", "whoami")
		}
	}
	res, err := testhttp.Client.Do(req)
	if err != nil {
		return nil, err.Error()
	}
	defer res.Body.Close()
	return res, payload(t, res)
}

func payload(t *testing.T, res *http.Response) string {
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		b, _ := io.ReadAll(res.Body)
		return strings.TrimSpace(string(b))
	}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && strings.HasPrefix(data, "{") {
			return data
		}
	}
	t.Error("a stream without an answer")
	return ""
}

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
	meta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	good   = "Bearer " + token
	hello  = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`
)

// TestModern: one request is one operation; nothing is shaken before.
func TestModern(t *testing.T) {
	s := start(t, devmcp.Options{})
	for _, tc := range []struct {
		name   string
		m      message
		status int
		has    string // in the answer
	}{
		{"discover", message{"server/discover", `{` + meta + `}`, "", modern, good}, 200, `"supportedVersions":["2026-07-28"]`},
		{"list", message{"tools/list", `{` + meta + `}`, "", modern, good}, 200, `"resultType":"complete"`},
		{"call", message{"tools/call", `{"name":"whoami","arguments":{},` + meta + `}`, "", modern, good}, 200, `"subject":"user-7"`},
		{"another name in the header", message{"tools/call", `{"name":"fail","arguments":{},` + meta + `}`, "", modern, good}, 400, `-32020`},
		{"no version in the body", message{"tools/list", `{}`, "", modern, good}, 400, `-32602`},
		{"unknown version", message{"tools/list", strings.ReplaceAll(`{`+meta+`}`, modern, "2030-01-01"), "", "2030-01-01", good}, 400, `-32022`},
		{"unknown method", message{"tools/none", `{` + meta + `}`, "", modern, good}, 404, `-32601`},
		{"the older handshake", message{"initialize", hello, "", legacy, good}, 400, `supported versions: 2026-07-28`},
		{"no token", message{"tools/list", `{` + meta + `}`, "", modern, ""}, 401, ``},
		{"a bad token", message{"tools/list", `{` + meta + `}`, "", modern, "Bearer stolen"}, 401, ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, answer := send(t, s, tc.m)
			if res.StatusCode != tc.status || !strings.Contains(answer, tc.has) {
				t.Errorf("%d %s, want %d with %s", res.StatusCode, answer, tc.status, tc.has)
			}
			if res.Header.Get("Mcp-Session-Id") != "" {
				t.Error("a stateless server gave out a session")
			}
			if challenge := res.Header.Get("WWW-Authenticate"); (challenge == `Bearer error="invalid_token"`) != (tc.status == 401) {
				t.Errorf("challenge %q with status %d", challenge, res.StatusCode)
			}
		})
	}
	for _, method := range []string{"GET", "DELETE"} {
		req, _ := http.NewRequest(method, s.URL, nil)
		req.Header.Set("Authorization", good)
		res, err := testhttp.Client.Do(req)
		if err != nil || res.StatusCode != 405 {
			t.Errorf("%s: %v, %v, want 405", method, res, err)
		}
	}
}

// TestLegacy: handshake, session, call, end.
func TestLegacy(t *testing.T) {
	s := start(t, devmcp.Options{Legacy: true})

	res, answer := send(t, s, message{"server/discover", `{` + meta + `}`, "", modern, good})
	if want := `"supported":["2025-11-25","2025-06-18","2025-03-26"]`; res.StatusCode != 400 || !strings.Contains(answer, want) {
		t.Errorf("probe: %d %s, want 400 with %s", res.StatusCode, answer, want)
	}
	res, answer = send(t, s, message{"tools/call", `{"name":"whoami","arguments":{},` + meta + `}`, "", modern, good})
	if res.StatusCode != 400 || !strings.Contains(answer, `-32022`) {
		t.Errorf("modern call: %d %s, want 400 with -32022", res.StatusCode, answer)
	}

	res, answer = send(t, s, message{"initialize", hello, "", "", good})
	session := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != 200 || session == "" || !strings.Contains(answer, `"protocolVersion":"2025-11-25"`) {
		t.Fatalf("initialize: %d, session %q, %s", res.StatusCode, session, answer)
	}
	if res, _ = send(t, s, message{"notifications/initialized", `{}`, session, legacy, good}); res.StatusCode != 202 {
		t.Errorf("initialized: %d, want 202", res.StatusCode)
	}
	call := message{"tools/call", `{"name":"whoami","arguments":{}}`, session, legacy, good}
	if res, answer = send(t, s, call); res.StatusCode != 200 || !strings.Contains(answer, `"subject":"user-7"`) {
		t.Errorf("call: %d %s", res.StatusCode, answer)
	}
	unauthorised := call
	unauthorised.token = "Bearer stolen"
	if res, _ = send(t, s, unauthorised); res.StatusCode != 401 {
		t.Errorf("a session is no credential: %d, want 401", res.StatusCode)
	}
	req, _ := http.NewRequest("DELETE", s.URL, nil)
	req.Header.Set("Authorization", good)
	req.Header.Set("Mcp-Session-Id", session)
	if res, err := testhttp.Client.Do(req); err != nil || res.StatusCode != 204 {
		t.Errorf("DELETE: %v, %v", res, err)
	}
	if res, _ = send(t, s, call); res.StatusCode != 404 {
		t.Errorf("call in an ended session: %d, want 404", res.StatusCode)
	}
	if _, err := connect(t, s, modern); err != nil {
		t.Errorf("the SDK's client does not fall back: %v", err)
	}
}

func TestStaticHeader(t *testing.T) {
	if _, err := devmcp.Start(devmcp.Options{}); err == nil {
		t.Error("a server for everybody was started")
	}
	s := start(t, devmcp.Options{Header: "X-Api-Key", Value: "static-credential"})
	for value, status := range map[string]int{"static-credential": 200, "static-credentia": 401, "": 401} {
		req, _ := http.NewRequest("POST", s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+meta+`}}`))
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"*/*"}, "X-Api-Key": {value},
			"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/list"}, "Authorization": {good}}
		res, err := testhttp.Client.Do(req)
		if err != nil || res.StatusCode != status {
			t.Errorf("%q: %v, %v, want %d", value, res, err, status)
		}
	}
}

// A request with two tokens has none.
func TestTwoTokens(t *testing.T) {
	s := start(t, devmcp.Options{})
	for _, values := range [][]string{{good, good}, {token}, {"bearer " + token}, {""}} {
		req, _ := http.NewRequest("POST", s.URL, strings.NewReader(`{}`))
		req.Header["Authorization"] = values
		if res, err := testhttp.Client.Do(req); err != nil || res.StatusCode != 401 {
			t.Errorf("%q: %v, %v, want 401", values, res, err)
		}
	}
	if len(s.Tokens()) != 0 {
		t.Errorf("tokens %q", s.Tokens())
	}
}

func TestRecord(t *testing.T) {
	s := start(t, devmcp.Options{})
	send(t, s, message{"tools/list", `{` + meta + `}`, "a-session", modern, good})
	send(t, s, message{"tools/list", `{` + meta + `}`, "", modern, "Bearer stolen"})
	send(t, s, message{"tools/list", `{` + meta + `}`, "", "", ""})
	want := []devmcp.Request{
		{HTTPMethod: "POST", Method: "tools/list", Version: modern, HasSession: true, Subject: "user-7", Status: 200},
		{HTTPMethod: "POST", Method: "tools/list", Version: modern, Status: 401},
		{HTTPMethod: "POST", Method: "tools/list", Status: 401},
	}
	if diff := cmp.Diff(want, s.Requests()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{token, "stolen"}, s.Tokens()); diff != "" {
		t.Error(diff)
	}
}

// TestBreak: the ways that a test of the broker spoils an exchange.
func TestBreak(t *testing.T) {
	answer := func(status int, header, value string) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set(header, value)
				w.WriteHeader(status)
			})
		}
	}
	cutBefore := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}
	cutAfter := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		})
	}
	onlyLists := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if devmcp.MethodOf(r) == "tools/list" {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	for _, tc := range []struct {
		name   string
		f      func(http.Handler) http.Handler
		status int // 0: the connection was cut
		runs   int
	}{
		{"redirect", answer(307, "Location", "http://192.0.2.1/"), 307, 0},
		{"insufficient scope", answer(403, "WWW-Authenticate", `Bearer error="insufficient_scope"`), 403, 0},
		{"no body", answer(500, "Content-Length", "0"), 500, 0},
		{"cut before", cutBefore, 0, 0},
		{"cut after", cutAfter, 0, 1},
		{"another method", onlyLists, 200, 1},
		{"mended", nil, 200, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, devmcp.Options{})
			s.Break(cutBefore)
			s.Break(tc.f)
			status := 0
			if res, _ := send(t, s, message{"tools/call", `{"name":"whoami","arguments":{},` + meta + `}`, "", modern, good}); res != nil {
				status = res.StatusCode
			}
			if status != tc.status || s.Calls("whoami") != tc.runs {
				t.Errorf("status %d after %d runs, want %d after %d", status, s.Calls("whoami"), tc.status, tc.runs)
			}
			if all := s.Requests(); len(all) != 1 || all[0].Status != tc.status {
				t.Errorf("record: %+v", all)
			}
		})
	}
}

func TestHold(t *testing.T) {
	s := start(t, devmcp.Options{})
	release := s.Hold("tools/call")
	call := message{"tools/call", `{"name":"whoami","arguments":{},` + meta + `}`, "", modern, good}
	done := make(chan int)
	go func() {
		res, _ := send(t, s, call)
		done <- res.StatusCode
	}()
	if err := s.Await(t.Context(), func() bool { return s.Arrived("tools/call") == 1 }); err != nil {
		t.Fatal(err)
	}
	if res, _ := send(t, s, message{"tools/list", `{` + meta + `}`, "", modern, good}); res.StatusCode != 200 {
		t.Errorf("another method: %d", res.StatusCode)
	}
	if s.Calls("whoami") != 0 {
		t.Error("the held call ran")
	}
	release()
	release()
	if status := <-done; status != 200 || s.Calls("whoami") != 1 {
		t.Errorf("released: %d after %d runs", status, s.Calls("whoami"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Await(ctx, func() bool { return false }); err != context.Canceled {
		t.Errorf("Await = %v", err)
	}
}

// In the modern era a client that goes away cancels the call.
func TestSlowIsCancelled(t *testing.T) {
	s := start(t, devmcp.Options{})
	session, err := connect(t, s, modern)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		s.Await(t.Context(), func() bool { return s.Calls("slow") == 1 })
		cancel()
	}()
	_, err = session.CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"seconds":3600}`)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("call: %v", err)
	}
	if err := s.Await(t.Context(), func() bool { return s.Cancelled() == 1 }); err != nil {
		t.Error(err)
	}
}

// TestMutualTLS: a bound token is good over its certificate alone, another one over
// any or none; the record has what was shown.
func TestMutualTLS(t *testing.T) {
	ours, thumbprint := certificate(t)
	other, otherThumbprint := certificate(t)
	s := start(t, devmcp.Options{MutualTLS: true, Verify: func(token string) (devmcp.Identity, error) {
		who, err := verify(token)
		if token == "token-of-bound" {
			who.Bound = thumbprint
		}
		return who, err
	}})
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.CA) {
		t.Fatal("no certificate of an authority")
	}
	for i, tc := range []struct {
		token  string
		show   []tls.Certificate
		shown  string
		status int
	}{
		{"token-of-bound", ours, thumbprint, 200},
		{"token-of-bound", other, otherThumbprint, 401},
		{"token-of-bound", nil, "", 401},
		{"token-of-user-7", nil, "", 200},
		{"token-of-user-7", other, otherThumbprint, 200},
		{"someone", ours, thumbprint, 401},
	} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: tc.show}}}
		r, err := http.NewRequest("POST", s.URL, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer " + tc.token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"} {
			r.Header.Set(name, value)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if got := s.Requests()[i]; res.StatusCode != tc.status || got.Shown != tc.shown {
			t.Errorf("%s over %q: status %d, shown %q", tc.token, tc.shown, res.StatusCode, got.Shown)
		}
	}
	if n := s.Connections(); n != 6 {
		t.Errorf("%d connections, want 6", n)
	}
}

func certificate(t *testing.T) (_ []tls.Certificate, thumbprint string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	return []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, base64.RawURLEncoding.EncodeToString(sum[:])
}
