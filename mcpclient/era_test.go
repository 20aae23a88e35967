package mcpclient_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

const (
	probe       = "server/discover"
	initialize  = "initialize"
	initialized = "notifications/initialized"
	toolsCall   = "tools/call"
	toolsList   = "tools/list"
)

func supported(versions string) string {
	return `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"","data":{"supported":[` + versions + `]}}}`
}

// TestProbe: what an answer to server/discover says about the server, and
// whether it is remembered.
func TestProbe(t *testing.T) {
	const none = policy.Era("")
	for _, r := range []struct {
		name   string
		answer answer
		era    policy.Era
		cause  fault.Reason // where there is no era
	}{
		{"200, a modern version", result(`{"supportedVersions":["2099-01-01","2026-07-28"]}`), policy.EraModern, ""},
		{"200 on a stream", stream(`{"jsonrpc":"2.0","id":"$ID","result":{"supportedVersions":["2026-07-28"]}}`), policy.EraModern, ""},
		{"200, only legacy versions", result(`{"supportedVersions":["2025-06-18"]}`), policy.EraLegacy, ""},
		{"200, an error", rpcError(`{"code":-32601,"message":""}`), policy.EraLegacy, ""},
		{"200, whatever is asked", result(`{}`), policy.EraLegacy, ""},
		{"400, modern version", status(400, supported(`"2026-07-28"`)), policy.EraModern, ""},
		{"400, legacy version", status(400, supported(`"2025-11-25"`)), policy.EraLegacy, ""},
		{"400, a code of its own", statusCode(400, -32000), policy.EraLegacy, ""},
		{"400, an odd id", status(400, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":""}}`), policy.EraLegacy, ""},
		{"400 alone", status(400, ""), policy.EraLegacy, ""},
		{"404 alone", status(404, ""), policy.EraLegacy, ""},
		{"404, no such method", statusCode(404, -32601), policy.EraLegacy, ""},
		{"405", status(405, ""), policy.EraLegacy, ""},

		{"200, no common version", result(`{"supportedVersions":["2099-01-01"]}`), none, fault.VersionUnsupported},
		{"200, versions that are none", result(`{"supportedVersions":null}`), none, fault.ReplyMalformed},
		{"200, a version that is no string", result(`{"supportedVersions":["2026-07-28",1]}`), none, fault.ReplyMalformed},
		{"200, input_required", result(`{"resultType":"input_required","supportedVersions":["2026-07-28"]}`), none, fault.ReplyMalformed},
		{"400, no common version", status(400, supported(`"2099-01-01"`)), none, fault.VersionUnsupported},
		{"400, header mismatch", statusCode(400, -32020), none, fault.HeaderMismatch},
		{"400, missing capability", statusCode(400, -32021), none, fault.CapabilityMissing},
		{"401", status(401, ""), none, fault.Unauthorized},
		{"403", status(403, ""), none, fault.StatusRefused},
		{"403 insufficient_scope", withHeader("WWW-Authenticate", `Bearer error="insufficient_scope"`, status(403, "")), none, fault.InsufficientScope},
		{"307", withHeader("Location", "/other", status(307, "")), none, fault.Redirected},
		{"429", status(429, ""), none, fault.Intermediary},
		{"500", status(500, ""), none, fault.Intermediary},
		{"503 with an error", statusCode(503, -32603), none, fault.StatusUnclear},
		{"not MCP", raw("text/html", "hello"), none, fault.ReplyMalformed},
		{"cut", cut(""), none, fault.ConnectionLost},
		{"our token", result(`{"supportedVersions":["2026-07-28"],"x":"` + token + `"}`), none, fault.SecretEchoed},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := legacy(result(good))
			s.lines[probe] = []answer{r.answer}
			c, server := mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraAuto)
			rep := call(t, c, server, open())

			path := []string{probe}
			switch r.era {
			case policy.EraModern:
				path = append(path, toolsCall)
			case policy.EraLegacy:
				path = append(path, initialize, initialized, toolsCall)
			}
			if diff := cmp.Diff(path, s.methods()); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
			if rep.Era != r.era {
				t.Errorf("Era = %q, want %q", rep.Era, r.era)
			}
			want := fault.NotSentBecause(r.cause)
			if r.era != none {
				want = fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
			}
			if rep.Outcome != want {
				t.Errorf("Outcome = %+v, want %+v", rep.Outcome, want)
			}

			call(t, c, server, open())
			again := s.count(probe) == 2
			if again == (r.era != none) {
				t.Errorf("probed again: %v", again)
			}
		})
	}
}

// TestPath: the requests of one operation, and what is on them.
func TestPath(t *testing.T) {
	type leg struct{ method, version, session, mcpMethod, mcpName string }
	for _, r := range []struct {
		name   string
		script *script
		era    policy.Era
		want   []leg
	}{
		{"modern", modern(result(good)), policy.EraModern, []leg{
			{toolsCall, "2026-07-28", "", toolsCall, "search"},
		}},
		{"modern, first contact", modern(result(good)), policy.EraAuto, []leg{
			{probe, "2026-07-28", "", probe, ""},
			{toolsCall, "2026-07-28", "", toolsCall, "search"},
		}},
		{"legacy", legacy(result(good)), policy.EraLegacy, []leg{
			{initialize, "", "", "", ""},
			{initialized, "2025-11-25", "s-1", "", ""},
			{toolsCall, "2025-11-25", "s-1", "", ""},
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			call(t, mcpclient.New(mcpclient.Config{}), r.script.server(t, r.era), open())
			var got []leg
			for _, q := range r.script.asked {
				got = append(got, leg{q.method, q.header.Get("MCP-Protocol-Version"), q.header.Get("Mcp-Session-Id"), q.header.Get("Mcp-Method"), q.header.Get("Mcp-Name")})
				for name, want := range map[string]string{
					"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
					"Accept-Encoding": "identity", "Authorization": "Bearer " + token,
				} {
					if got := q.header[name]; len(got) != 1 || got[0] != want {
						t.Errorf("%s: %s = %q, want %q once", q.method, name, got, want)
					}
				}
				if strings.Contains(q.body, token) {
					t.Errorf("%s: the token is in the body", q.method)
				}
			}
			if diff := cmp.Diff(r.want, got, cmp.AllowUnexported(leg{})); diff != "" {
				t.Errorf("path (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	const who = `{"name":"onbehalf","version":"1.2"}`
	client := mcpclient.New(mcpclient.Config{Name: "onbehalf", Version: "1.2"})
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":` + who + `}`
	for _, r := range []struct {
		name   string
		script *script
		era    policy.Era
		want   []string
	}{
		{"modern", modern(result(good)), policy.EraAuto, []string{
			`{"jsonrpc":"2.0","id":"$ID","method":"server/discover","params":{` + meta + `}}`,
			`{"jsonrpc":"2.0","id":"$ID","method":"tools/call","params":{"name":"a<b","arguments":{"n":1.0,"z":9007199254740993},` + strings.TrimSuffix(meta, "}") + `,"example.org/key":"k"}}}`,
		}},
		{"legacy", legacy(result(good)), policy.EraLegacy, []string{
			`{"jsonrpc":"2.0","id":"$ID","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + who + `}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`,
			`{"jsonrpc":"2.0","id":"$ID","method":"tools/call","params":{"name":"a<b","arguments":{"n":1.0,"z":9007199254740993},"_meta":{"example.org/key":"k"}}}`,
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			talk := client.Open(r.script.server(t, r.era))
			defer talk.Close()
			talk.CallTool(within(t, time.Second), mcpclient.Call{Tool: "a<b", Arguments: []byte(`{"n":1.0,"z":9007199254740993}`), Meta: map[string]string{"example.org/key": "k"}}, open())
			var got []string
			seen := map[string]bool{}
			for _, q := range r.script.asked {
				body := strings.TrimSpace(q.body)
				if q.id != "" {
					prefix, _, _ := strings.Cut(q.id, "-"+q.id[strings.LastIndex(q.id, "-")+1:])
					if len(prefix) != 22 || seen[q.id] {
						t.Errorf("id %q is not 22 characters and a number, or not the first", q.id)
					}
					seen[q.id] = true
					body = strings.Replace(body, q.id, "$ID", 1)
				}
				got = append(got, body)
			}
			if diff := cmp.Diff(r.want, got); diff != "" {
				t.Errorf("bodies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHandshake(t *testing.T) {
	initialized := initialized
	info := func(version string) string { return `{"protocolVersion":"` + version + `","capabilities":{}}` }
	succeeded := fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
	for _, r := range []struct {
		name     string
		method   string
		answers  []answer
		versions []string
		want     fault.Outcome
		path     string
	}{
		{"an older version", initialize, []answer{result(info("2025-03-26"))}, nil, succeeded, "initialize initialized call"},
		{"an older version that is not accepted", initialize, []answer{result(info("2025-03-26"))}, []string{"2025-11-25"}, fault.NotSentBecause(fault.VersionUnsupported), "initialize"},
		{"a version nobody knows", initialize, []answer{result(info("1999-01-01"))}, nil, fault.NotSentBecause(fault.VersionUnsupported), "initialize"},
		{"a modern version", initialize, []answer{result(info("2026-07-28"))}, nil, fault.NotSentBecause(fault.VersionUnsupported), "initialize"},
		{"no version", initialize, []answer{result(`{}`)}, nil, fault.NotSentBecause(fault.ReplyMalformed), "initialize"},
		{"an error", initialize, []answer{rpcError(`{"code":-32602,"message":""}`)}, nil, fault.NotSentBecause(fault.ServerError), "initialize"},
		{"401", initialize, []answer{status(401, "")}, nil, fault.NotSentBecause(fault.Unauthorized), "initialize"},
		{"404", initialize, []answer{status(404, "")}, nil, fault.NotSentBecause(fault.Intermediary), "initialize"},
		{"cut", initialize, []answer{cut("")}, nil, fault.NotSentBecause(fault.ConnectionLost), "initialize"},
		{"on a stream", initialize, []answer{stream(`{"jsonrpc":"2.0","id":"$ID","result":` + info("2025-11-25") + `}`)}, nil, succeeded, "initialize initialized call"},
		{"an empty session id", initialize, []answer{withSession("", result(info("2025-11-25")))}, nil, succeeded, "initialize initialized call"},
		{"a session id of 256", initialize, []answer{withSession(strings.Repeat("x", 256), result(info("2025-11-25")))}, nil, succeeded, "initialize initialized call"},
		{"a session id of 257", initialize, []answer{withSession(strings.Repeat("x", 257), result(info("2025-11-25")))}, nil, fault.NotSentBecause(fault.ReplyMalformed), "initialize"},
		{"a session id with a space", initialize, []answer{withSession("a b", result(info("2025-11-25")))}, nil, fault.NotSentBecause(fault.ReplyMalformed), "initialize"},
		{"our token as session id", initialize, []answer{result(`{"protocolVersion":"2025-11-25","x":"` + token + `"}`)}, nil, fault.NotSentBecause(fault.SecretEchoed), "initialize"},

		{"initialized 200 with a body", initialized, []answer{status(200, `{"jsonrpc":"2.0"}`)}, nil, succeeded, "initialize initialized call"},
		{"initialized 204", initialized, []answer{status(204, "")}, nil, succeeded, "initialize initialized call"},
		{"initialized 200, endless body", initialized, []answer{hang(status(200, ""))}, nil, succeeded, "initialize initialized call"},
		{"initialized 400", initialized, []answer{status(400, "")}, nil, fault.NotSentBecause(fault.Intermediary), "initialize initialized"},
		{"initialized 404 without a session", initialized, []answer{status(404, "")}, nil, fault.NotSentBecause(fault.Intermediary), "initialize initialized"},
		{"session lost once", initialized, []answer{status(404, ""), status(202, "")}, nil, succeeded, "initialize initialized initialize initialized call"},
		{"session lost twice", initialized, []answer{status(404, "")}, nil, fault.NotSentBecause(fault.SessionLost), "initialize initialized initialize initialized"},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := legacy(result(good))
			s.lines[r.method] = r.answers
			if strings.HasSuffix(r.name, "without a session") {
				s.lines[initialize] = []answer{result(info("2025-11-25"))}
			}
			server := s.server(t, policy.EraLegacy)
			server.Versions = r.versions
			rep := call(t, mcpclient.New(mcpclient.Config{}), server, open())
			if rep.Outcome != r.want {
				t.Errorf("Outcome = %+v, want %+v", rep.Outcome, r.want)
			}
			path := strings.NewReplacer("notifications/", "", "tools/", "").Replace(strings.Join(s.methods(), " "))
			if path != r.path {
				t.Errorf("path %q, want %q", path, r.path)
			}
		})
	}
}

func TestSecondInitializeHasNoSession(t *testing.T) {
	s := legacy(result(good))
	s.lines[initialized] = []answer{status(404, ""), status(202, "")}
	call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraLegacy), open())
	if again := s.asked[2]; again.method != initialize || again.header.Get("Mcp-Session-Id") != "" || again.header.Get("Mcp-Protocol-Version") != "" {
		t.Errorf("third leg %s has session %q", again.method, again.header.Get("Mcp-Session-Id"))
	}
}

// TestPins: what the operator declares leaves nothing to find out.
func TestPins(t *testing.T) {
	for _, r := range []struct {
		name     string
		era      policy.Era
		versions []string
		path     string
		cause    fault.Reason
	}{
		{"modern", policy.EraModern, nil, "tools/call", ""},
		{"legacy", policy.EraLegacy, nil, "initialize notifications/initialized tools/call", ""},
		{"only the modern version", policy.EraAuto, []string{"2026-07-28"}, "tools/call", ""},
		{"only legacy versions", policy.EraAuto, []string{"2025-11-25", "2025-06-18"}, "initialize notifications/initialized tools/call", ""},
		{"modern, but not its version", policy.EraModern, []string{"2025-11-25"}, "", fault.VersionUnsupported},
		{"legacy, but not its versions", policy.EraLegacy, []string{"2026-07-28"}, "", fault.VersionUnsupported},
		{"a version that we do not speak", policy.EraAuto, []string{"2024-11-05"}, "", fault.VersionUnsupported},
	} {
		t.Run(r.name, func(t *testing.T) {
			s := legacy(result(good))
			server := s.server(t, r.era)
			server.Versions = r.versions
			rep := call(t, mcpclient.New(mcpclient.Config{}), server, open())
			if path := strings.Join(s.methods(), " "); path != r.path || rep.Outcome.Cause != r.cause {
				t.Errorf("path %q, cause %q, want %q, %q", path, rep.Outcome.Cause, r.path, r.cause)
			}
		})
	}
}

// TestEraIsForgotten: after ten minutes, for another address, and when the
// server no longer answers like one of its era.
func TestEraIsForgotten(t *testing.T) {
	now := time.Now()
	gate := open()
	gate.Credential = func(context.Context, string) (mcpclient.Credential, error) {
		return mcpclient.Credential{ReadAt: now}, nil
	}
	s := modern(result(good))
	c := mcpclient.New(mcpclient.Config{Now: func() time.Time { return now }})
	server := s.server(t, policy.EraAuto)
	probes := func(want int, why string) {
		t.Helper()
		call(t, c, server, gate)
		if n := s.count(probe); n != want {
			t.Errorf("%s: %d probes, want %d", why, n, want)
		}
	}
	probes(1, "first contact")
	probes(1, "remembered")
	now = now.Add(10*time.Minute - 1)
	probes(1, "just before ten minutes")
	now = now.Add(1)
	probes(2, "ten minutes later")

	*server.URL = *server.URL.JoinPath("v2")
	probes(3, "another address")
	server.ID = "other"
	probes(4, "another server")
	server.ID = "records"

	s.lines[toolsCall] = []answer{statusCode(400, -32602), status(404, ""), result(good)}
	probes(4, "arguments that do not fit")
	probes(4, "a refusal like that of another era")
	probes(5, "after it")
}

// TestEraWithinTheDeclaration: what was found does not count when the operator
// has taken it off the list.
func TestEraWithinTheDeclaration(t *testing.T) {
	s := legacy(result(good))
	c, server := mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraAuto)
	call(t, c, server, open())
	server.Versions = []string{"2026-07-28", "2025-06-18"}
	call(t, c, server, open())
	if n := s.count(probe); n != 2 {
		t.Errorf("%d probes, want 2", n)
	}
}

// TestVersionRetry: the one correction of a call inside the same deadline.
func TestVersionRetry(t *testing.T) {
	refusal := status(400, supported(`"2026-07-28"`))
	s := modern(refusal, result(good))
	var credentials, sendings int
	gate := open()
	inner := gate.Credential
	gate.Credential = func(ctx context.Context, leg string) (mcpclient.Credential, error) {
		credentials++
		return inner(ctx, leg)
	}
	gate.Sending = func(context.Context) error { sendings++; return nil }
	rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), gate)
	if rep.Outcome.State != fault.Succeeded || credentials != 2 || sendings != 2 || s.count(toolsCall) != 2 {
		t.Errorf("%+v with %d credentials and %d sendings, want success with 2 and 2", rep.Outcome, credentials, sendings)
	}

	s = modern(refusal)
	rep = call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), open())
	if n := s.count(toolsCall); n != 2 || rep.Outcome != fault.RefusedBecause(fault.VersionUnsupported) {
		t.Errorf("refused for ever: %d calls, %+v, want 2, refused", n, rep.Outcome)
	}

	s = modern(refusal)
	gate = open()
	gate.Sending = func(context.Context) error {
		if s.count(toolsCall) == 1 {
			return fault.New("test", fault.StoreFailed, "")
		}
		return nil
	}
	rep = call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), gate)
	if n := s.count(toolsCall); n != 1 || rep.Outcome != fault.RefusedBecause(fault.VersionUnsupported) || rep.Legs[1].Reason != fault.StoreFailed {
		t.Errorf("second attempt not sent: %d calls, %+v, %+v", n, rep.Outcome, rep.Legs)
	}
}
