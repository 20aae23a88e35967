package mcpclient

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// readEvents returns all events as "kind:data", and the error that ended them.
func readEvents(r io.Reader) (all []string, _ error) {
	events := newEventReader(r, maxEvent)
	for {
		e, err := events.next()
		if err != nil {
			return all, err
		}
		all = append(all, e.kind+":"+string(e.data))
	}
}

// pieces reads what its strings hold, one string a read.
type pieces []string

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; (*p)[0] == "" {
		*p = (*p)[1:]
	}
	return n, nil
}

// TestEventStream: the framing rules, for every point at which a stream can be
// split.
func TestEventStream(t *testing.T) {
	for _, r := range []struct {
		name, stream string
		want         []string
	}{
		{"LF", "data: a\n\n", []string{"message:a"}},
		{"CRLF", "data: a\r\n\r\n", []string{"message:a"}},
		{"CR", "data: a\r\r", []string{"message:a"}},
		{"mixed", "data: a\r\ndata: b\rdata: c\n\n", []string{"message:a\nb\nc"}},
		{"CR, then LF is one end", "data: a\r\n\rdata: b\r\r", []string{"message:a", "message:b"}},
		{"byte order mark", "\ufeffdata: a\n\n", []string{"message:a"}},
		{"two marks", "\ufeff\ufeffdata: a\n\ndata: b\n\n", []string{"message:b"}},
		{"mark later", "data: a\n\n\ufeffdata: b\n\n", []string{"message:a"}},
		{"one space", "data:  a\n\n", []string{"message: a"}},
		{"no space", "data:a\n\n", []string{"message:a"}},
		{"several lines", "data: {\ndata: }\n\n", []string{"message:{\n}"}},
		{"comment", ": hi\ndata: a\n:\n\n", []string{"message:a"}},
		{"a line without colon", "data\ndata: a\nnonsense\n\n", []string{"message:\na"}},
		{"unknown fields", "id: 1\nretry: 5\nx: y\ndata: a\n\n", []string{"message:a"}},
		{"colon in the value", "data: a: b\n\n", []string{"message:a: b"}},
		{"another kind", "event: ping\ndata: a\n\ndata: b\n\n", []string{"ping:a", "message:b"}},
		{"a kind without data", "event: ping\n\ndata: b\n\n", []string{"message:b"}},
		{"empty data", "data:\n\nid: 1\ndata: \n\n", nil},
		{"not dispatched", "data: a\n\ndata: b\n", []string{"message:a"}},
		{"no line end", "data: a", nil},
		{"many blank lines", "\n\n\ndata: a\n\n\n\n", []string{"message:a"}},
		{"field names match exactly", "Data: a\n data: b\n\n", nil},
	} {
		t.Run(r.name, func(t *testing.T) {
			for at := range len(r.stream) + 1 {
				got, err := readEvents(&pieces{r.stream[:at], r.stream[at:]})
				if diff := cmp.Diff(r.want, got); diff != "" || err != io.EOF {
					t.Fatalf("split at %d: %v (-want +got):\n%s", at, err, diff)
				}
			}
			if got, _ := readEvents(iotest.OneByteReader(strings.NewReader(r.stream))); !cmp.Equal(r.want, got) {
				t.Errorf("byte by byte: %q, want %q", got, r.want)
			}
		})
	}
}

// TestEventWaitsForNothing: an event is there with its blank line. A reader that
// wanted one byte more would wait for the next event.
func TestEventWaitsForNothing(t *testing.T) {
	for _, s := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		r, w := io.Pipe()
		go io.WriteString(w, s)
		if e, err := newEventReader(r, maxEvent).next(); err != nil || string(e.data) != "a" {
			t.Errorf("%q: %q, %v", s, e.data, err)
		}
		w.Close()
	}
}

// maxEvent is the default limit of an event.
var maxEvent = policy.Limits{}.Filled().Event

func TestEventLimit(t *testing.T) {
	overhead := len("data: ") + len("message")
	fits := strings.Repeat("x", maxEvent-overhead)
	if got, err := readEvents(strings.NewReader("data: " + fits + "\n\n")); len(got) != 1 || err != io.EOF {
		t.Errorf("at the limit: %d events, %v", len(got), err)
	}
	for name, s := range map[string]string{
		"a long line":   "data: " + fits + "x\n\n",
		"many lines":    strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", maxEvent/1000) + "\n",
		"a long kind":   "event: " + fits + "\ndata: aaaaaaaaa\n\n",
		"no line end":   strings.Repeat("x", maxEvent+1),
		"a long remark": ":" + strings.Repeat("x", maxEvent+1),
	} {
		if _, err := readEvents(strings.NewReader(s)); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v, want reply_too_large", name, err)
		}
	}
}

func TestCapped(t *testing.T) {
	for size, want := range map[int]error{0: nil, 9: nil, 10: nil, 11: errTooLarge, 99: errTooLarge} {
		b, err := io.ReadAll(capped(strings.NewReader(strings.Repeat("x", size)), 10))
		if err != want && !errors.Is(err, want) || len(b) != min(size, 10) {
			t.Errorf("%d bytes: %d, %v, want %v", size, len(b), err, want)
		}
	}
}

func TestParseChallenge(t *testing.T) {
	long := strings.Repeat("x", maxScope)
	for _, r := range []struct {
		values []string
		want   Challenge
	}{
		{nil, Challenge{}},
		{[]string{"Bearer"}, Challenge{}},
		{[]string{`Bearer error="invalid_token"`}, Challenge{Error: "invalid_token"}},
		{[]string{`bearer ERROR=invalid_token`}, Challenge{Error: "invalid_token"}},
		{[]string{`Bearer realm="a, b", error="insufficient_scope", scope="x y:z"`}, Challenge{"insufficient_scope", "x y:z"}},
		{[]string{`Bearer error = "insufficient_scope" , scope = "x"`}, Challenge{"insufficient_scope", "x"}},
		{[]string{`Basic realm="a", Bearer error="invalid_token"`}, Challenge{Error: "invalid_token"}},
		{[]string{`Basic realm="a"`, `Bearer error="invalid_token"`}, Challenge{Error: "invalid_token"}},
		{[]string{`Bearer error="invalid_token", Digest scope="x"`}, Challenge{Error: "invalid_token"}},
		{[]string{`Bearer scope="a", scope="b"`}, Challenge{Scope: "a"}},
		{[]string{`Bearer scope="` + long + `"`}, Challenge{Scope: long}},
		{[]string{`Bearer resource_metadata="https://elsewhere.example/x", error="invalid_token"`}, Challenge{Error: "invalid_token"}},

		{[]string{`Bearer error="other"`}, Challenge{}},
		{[]string{`Bearer error="invalid_token\"x"`}, Challenge{}},
		{[]string{`Bearer error="invalid_token`}, Challenge{}},
		{[]string{`Basic error="invalid_token"`}, Challenge{}},
		{[]string{`Basic realm="Bearer error=invalid_token"`}, Challenge{}},
		{[]string{`Bearer scope="` + long + `x"`}, Challenge{}},
		{[]string{`Bearer scope="é"`}, Challenge{}},
		{[]string{`Bearer scope="a\\b"`}, Challenge{}},
		{[]string{"Bearer scope=\"a\x1b[31m\""}, Challenge{}},
	} {
		if got := parseChallenge(r.values); got != r.want {
			t.Errorf("%.80q: %+v, want %+v", r.values, got, r.want)
		}
	}
}

func TestHeaderValue(t *testing.T) {
	for in, want := range map[string]string{
		"search":         "search",
		"a b":            "a b",
		"a<b~!":          "a<b~!",
		" a":             "=?base64?IGE=?=",
		"a ":             "=?base64?YSA=?=",
		"é":              "=?base64?w6k=?=",
		"a\nb":           "=?base64?YQpi?=",
		"a\tb":           "=?base64?YQli?=",
		"=?base64?YQ==?": "=?base64?PT9iYXNlNjQ/WVE9PT8=?=",
		"":               "",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("headerValue(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzHeaderValue: what a server decodes is the name, and no name can end the
// header.
func FuzzHeaderValue(f *testing.F) {
	for _, s := range []string{"a", " a", "é", "=?base64?YQ==?=", "\r\nX: 1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v := headerValue(s)
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' }) || v != strings.TrimSpace(v) {
			t.Fatalf("headerValue(%q) = %q", s, v)
		}
		if encoded, ok := strings.CutPrefix(v, "=?base64?"); ok {
			b, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(encoded, "?="))
			if v = string(b); err != nil {
				t.Fatal(err)
			}
		}
		if v != s {
			t.Errorf("%q comes back as %q", s, v)
		}
	})
}

// FuzzEventStream: how a stream is split does not matter, and what is read is in
// the stream.
func FuzzEventStream(f *testing.F) {
	f.Add("event: x\r\ndata: a\r\n\r\n: c\n\ndata:b\r\r", 7)
	f.Add("\ufeffdata: {\ndata: }\n\n", 1)
	f.Fuzz(func(t *testing.T, s string, at int) {
		whole, wholeErr := readEvents(strings.NewReader(s))
		at = max(0, min(at, len(s)))
		split, splitErr := readEvents(&pieces{s[:at], s[at:]})
		if !cmp.Equal(whole, split) || wholeErr != splitErr {
			t.Fatalf("split at %d: %q, %v, else %q, %v", at, split, splitErr, whole, wholeErr)
		}
		for _, e := range whole {
			data, ok := strings.CutPrefix(e, "message:")
			if !ok {
				continue // a kind is any text, with colons
			}
			for line := range strings.SplitSeq(data, "\n") {
				if !strings.Contains(s, line) {
					t.Errorf("%q is not in the stream", line)
				}
			}
		}
	})
}

// FuzzReply: an accepted reply says what was asked for, with its bytes
// unchanged, and exactly one thing.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":"i","result":{"a":[1.0, null]}}`,
		`{"jsonrpc":"2.0","id":"i","error":{"code":-32022,"message":"","data":{"supported":["x"]}}}`,
		`{"jsonrpc":"2.0","id":"i","method":"ping"}`,
		`[{"jsonrpc":"2.0","id":"i","result":{}}]`,
		`{"jsonrpc":"2.0","id":"i","result":[]}`,
	} {
		f.Add([]byte(s))
	}
	q := question{id: strictjson.Raw(`"i"`), limits: policy.Limits{}.Filled()}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := q.answer(b)
		if err != nil {
			if r.result != nil || r.rpc != nil {
				t.Fatal("refused and accepted")
			}
			return
		}
		part := r.result
		if r.rpc != nil {
			part = r.rpc.raw
		}
		switch {
		case (r.result == nil) == (r.rpc == nil):
			t.Error("not exactly one of result and error")
		case !utf8.Valid(b) || !bytes.Contains(b, part) || part[0] != '{':
			t.Errorf("%q is not an object of %q", part, b)
		case !bytes.Contains(b, []byte(`"i"`)) || !bytes.Contains(b, []byte(`"2.0"`)):
			t.Errorf("no id or version in %q", b)
		}
	})
}

// FuzzEraVerdict: whatever answers server/discover, what is spoken next is
// allowed; and a status that is no verdict gives none.
func FuzzEraVerdict(f *testing.F) {
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":"i","result":{"supportedVersions":["2026-07-28"]}}`))
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":"i","result":{}}`))
	f.Add(200, []byte(`{"jsonrpc":"2.0","id":"i","error":{"code":-32601,"message":""}}`))
	f.Add(400, []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"","data":{"supported":["2025-06-18","1999-01-01"]}}}`))
	f.Add(404, []byte{})
	f.Add(503, []byte(`{}`))
	c := New(Config{}).Open(&policy.Server{URL: &url.URL{Scheme: "https", Host: "mcp.test"}})
	accepted := []string{versionModern, "2025-06-18"}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 {
			return // package egress lets none through
		}
		resp := &http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{"Content-Type": {"application/json"}}}
		e := reading{m: message{method: methodDiscover}, limits: c.limits}.read(resp, question{id: strictjson.Raw(`"i"`), limits: c.limits})
		d, after := judgeProbe(e, accepted)
		switch {
		case d.known() && (!slices.Contains(accepted, d.version) || (d.version == versionModern) != (d.era == policy.EraModern)):
			t.Errorf("%d %q: speaks %+v", status, body, d)
		case d.known() && !slices.Contains([]int{200, 400, 404, 405}, status):
			t.Errorf("%d %q: a verdict, %+v", status, body, d)
		case !d.known() && classify(after.beforehand()).Cause == fault.None:
			t.Errorf("%d %q: neither a verdict nor a reason", status, body)
		}
	})
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer realm="a", error="insufficient_scope", scope="x y"`)
	f.Add(`Basic a=b, bearer error=invalid_token`)
	f.Fuzz(func(t *testing.T, s string) {
		c := parseChallenge([]string{s})
		if c.Error != "" && c.Error != errorInvalidToken && c.Error != errorInsufficientScope {
			t.Errorf("error %q", c.Error)
		}
		if c.Scope != scopeOf(c.Scope) {
			t.Errorf("scope %q", c.Scope)
		}
	})
}

func TestEchoes(t *testing.T) {
	const value = "tok/en+with-b64_Chars~"
	std, url := base64.StdEncoding.EncodeToString, base64.RawURLEncoding.EncodeToString
	for _, r := range []struct {
		doc, value string
		want       bool
	}{
		{`{"a":"x` + value + `y"}`, value, true},
		{`{"a":"tok\/en+with-b64_Chars~"}`, value, true},
		{`{"a":"` + hex.EncodeToString([]byte("x"+value)) + `"}`, value, true},
		{`{"a":"` + std([]byte(value)) + `"}`, value, true},
		{`{"a":"` + std([]byte("x"+value+"y")) + `"}`, value, true},
		{`{"a":"` + std([]byte("xy"+value+"yz")) + `"}`, value, true},
		{`{"a":"` + url([]byte("xyz"+value)) + `"}`, value, true},
		{`{"a":"` + value[1:] + `"}`, value, false},
		{`{"a":"seven77"}`, "seven77", false},
		{`{"a":"eight888"}`, "eight888", true},
		{`{"a":""}`, "", false},
		{"", value, false},
	} {
		if got := echoes([]byte(r.doc), secret.New(r.value)); got != r.want {
			t.Errorf("%q in %s: %v, want %v", r.value, r.doc, got, r.want)
		}
	}
}

// TestClassifyNothing: an ending that no line expects is in doubt.
func TestClassifyNothing(t *testing.T) {
	if got := classify(ending{sent: true, status: 200}); got != fault.Doubt(fault.InternalError) {
		t.Errorf("%+v", got)
	}
}

func TestMediaType(t *testing.T) {
	for in, want := range map[string]string{
		"application/json":                    "application/json",
		"Application/JSON; charset=UTF-8":     "application/json",
		"text/event-stream;charset=\"utf-8\"": "text/event-stream",
		"application/json; charset=latin1":    "",
		"application/json; charset=":          "",
		"":                                    "",
		"/":                                   "",
	} {
		if got := mediaType(http.Header{"Content-Type": {in}}); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
