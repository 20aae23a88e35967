package mcpclient_test

import (
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret/canary"
)

// TestClassify has a row for every line of classify and for every way in which
// an answer can be none. Whatever the row, the call was sent once, and nothing
// of the server's text or of the token is in the report, but for the result.
func TestClassify(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the target of a redirect was asked")
	}))
	defer elsewhere.Close()
	redirect := func(code int) answer {
		return withHeader("Location", elsewhere.URL, status(code, ""))
	}
	challenge := func(code int, value string) answer {
		return withHeader("WWW-Authenticate", value, status(code, ""))
	}
	const reply = `{"jsonrpc":"2.0","id":"$ID","result":` + good + `}`
	const foreign = "server-text-that-must-not-travel"

	refused, doubt := fault.RefusedBecause, fault.Doubt
	peer := func(s fault.State, r fault.Ran, cause fault.Reason) fault.Outcome {
		return fault.Outcome{State: s, Ran: r, Evidence: fault.EvidencePeer, Cause: cause}
	}
	succeeded := peer(fault.Succeeded, fault.RanYes, fault.None)

	type row struct {
		name   string
		answer answer
		want   fault.Outcome
	}
	modernRows := []row{
		{"result", result(good), succeeded},
		{"result, resultType complete", result(`{"content":[],"resultType":"complete"}`), succeeded},
		{"result, isError false", result(`{"content":[],"isError":false}`), succeeded},
		{"result on a stream", stream(reply), succeeded},
		{"result, charset", raw("application/json; charset=UTF-8", reply), succeeded},
		{"result, members in another order", raw("application/json", `{"result":`+good+`,"id":"$ID","jsonrpc":"2.0"}`), succeeded},
		{"result, identity encoding", withHeader("Content-Encoding", "identity", result(good)), succeeded},
		{"result after notifications", stream(`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, reply), succeeded},
		{"result after events of other kinds", raw("text/event-stream", ": hi\n\nevent: keepalive\ndata: {}\n\nid: 1\ndata:\n\ndata: "+reply+"\n\n"), succeeded},
		{"result, then the stream stays open", hang(stream(reply)), succeeded},
		{"tool error", result(`{"content":[],"isError":true}`), peer(fault.ToolError, fault.RanYes, fault.ToolFailed)},
		{"rpc error", rpcError(`{"code":-32602,"message":"` + foreign + `"}`), peer(fault.RPCError, fault.RanUnknown, fault.ServerError)},
		{"rpc error on a stream", stream(`{"jsonrpc":"2.0","id":"$ID","error":{"code":1,"message":""}}`), peer(fault.RPCError, fault.RanUnknown, fault.ServerError)},

		{"401", status(401, ""), refused(fault.Unauthorized)},
		{"401 with a challenge", challenge(401, `Bearer error="invalid_token"`), refused(fault.Unauthorized)},
		{"403", status(403, ""), refused(fault.StatusRefused)},
		{"403 insufficient_scope", challenge(403, `Bearer error="insufficient_scope", scope="a b"`), refused(fault.InsufficientScope)},
		{"403 with our token as the scope", challenge(403, `Bearer error="insufficient_scope", scope="a `+token+`"`), refused(fault.InsufficientScope)},
		{"403 with our token in hex", challenge(403, `Bearer error="insufficient_scope", scope="`+hex.EncodeToString([]byte(token))+`"`), refused(fault.InsufficientScope)},
		{"400 version, and what is no list of them", status(400, supported(`"2026-07-28",7`)), refused(fault.VersionUnsupported)},
		{"405", status(405, ""), refused(fault.MethodRefused)},
		{"406", status(406, ""), refused(fault.StatusRefused)},
		{"411", status(411, ""), refused(fault.StatusRefused)},
		{"413", status(413, ""), refused(fault.StatusRefused)},
		{"414", status(414, ""), refused(fault.StatusRefused)},
		{"415", status(415, ""), refused(fault.StatusRefused)},
		{"431", status(431, ""), refused(fault.StatusRefused)},
		{"400 header mismatch", statusCode(400, -32020), refused(fault.HeaderMismatch)},
		{"400 missing capability", statusCode(400, -32021), refused(fault.CapabilityMissing)},
		{"400 version", statusCode(400, -32022), refused(fault.VersionUnsupported)},
		{"400 invalid request", statusCode(400, -32600), refused(fault.StatusRefused)},
		{"400 no such method", statusCode(400, -32601), refused(fault.MethodRefused)},
		{"400 parse error", statusCode(400, -32700), refused(fault.StatusRefused)},
		{"404 no such method", statusCode(404, -32601), refused(fault.MethodRefused)},
		{"301", redirect(301), refused(fault.Redirected)},
		{"307", redirect(307), refused(fault.Redirected)},
		{"308", redirect(308), refused(fault.Redirected)},

		{"302", redirect(302), doubt(fault.Redirected)},
		{"303", redirect(303), doubt(fault.Redirected)},
		{"304", status(304, ""), doubt(fault.Redirected)},
		{"400 alone", status(400, ""), doubt(fault.Intermediary)},
		{"400 invalid params", statusCode(400, -32602), doubt(fault.StatusUnclear)},
		{"400 a code of the server's own", statusCode(400, -32000), doubt(fault.StatusUnclear)},
		{"400 not an error object", status(400, `{"jsonrpc":"2.0","error":{"code":"-32020","message":"x"}}`), doubt(fault.Intermediary)},
		{"400 not version 2.0", status(400, `{"jsonrpc":"1.0","error":{"code":-32020,"message":"x"}}`), doubt(fault.Intermediary)},
		{"400 endless body", status(400, `{"a":"`+strings.Repeat("x", 64<<10)+`"}`), doubt(fault.Intermediary)},
		{"404 alone", status(404, ""), doubt(fault.Intermediary)},
		{"408", status(408, ""), doubt(fault.Intermediary)},
		{"409", status(409, ""), doubt(fault.Intermediary)},
		{"425", status(425, ""), doubt(fault.Intermediary)},
		{"429", status(429, ""), doubt(fault.Intermediary)},
		{"499", status(499, ""), doubt(fault.Intermediary)},
		{"500", status(500, ""), doubt(fault.Intermediary)},
		{"500 with an error", statusCode(500, -32603), doubt(fault.StatusUnclear)},
		{"500 the version that is spoken", status(500, supported(`"2026-07-28"`)), doubt(fault.StatusUnclear)},
		{"503 a refusing code proves nothing here", statusCode(503, -32601), doubt(fault.StatusUnclear)},
		{"503 foreign text", status(503, foreign), doubt(fault.Intermediary)},
		{"202", status(202, ""), doubt(fault.ReplyMalformed)},
		{"204", status(204, ""), doubt(fault.ReplyMalformed)},

		{"no head", cut(""), doubt(fault.ConnectionLost)},
		{"half a head", cut("HTTP/1.1 200 OK\r\nContent-"), doubt(fault.ConnectionLost)},
		{"half a body", cut("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"), doubt(fault.ConnectionLost)},
		{"half a stream", cut("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n"), doubt(fault.ConnectionLost)},
		{"not HTTP", cut("SSH-2.0-OpenSSH\r\n\r\n"), doubt(fault.ReplyMalformed)},
		{"stream without an answer", raw("text/event-stream", ""), doubt(fault.StreamEnded)},
		{"stream, event not dispatched", raw("text/event-stream", "data: "+reply+"\n"), doubt(fault.StreamEnded)},

		{"empty body", raw("application/json", ""), doubt(fault.ReplyMalformed)},
		{"null", raw("application/json", "null"), doubt(fault.ReplyMalformed)},
		{"not JSON", raw("application/json", "<html>"+foreign), doubt(fault.ReplyMalformed)},
		{"other media type", raw("text/html", reply), doubt(fault.ReplyMalformed)},
		{"no media type", raw("", reply), doubt(fault.ReplyMalformed)},
		{"other charset", raw("application/json; charset=utf-16", reply), doubt(fault.ReplyMalformed)},
		{"packed", withHeader("Content-Encoding", "gzip", result(good)), doubt(fault.ReplyMalformed)},
		{"two documents", raw("application/json", reply+reply), doubt(fault.ReplyMalformed)},
		{"a batch", raw("application/json", "["+reply+"]"), doubt(fault.ReplyMalformed)},
		{"a member twice", raw("application/json", `{"jsonrpc":"2.0","id":"$ID","id":"$ID","result":{}}`), doubt(fault.ReplyMalformed)},
		{"a member in other case", raw("application/json", `{"jsonrpc":"2.0","id":"$ID","Result":`+good+`}`), doubt(fault.ReplyMalformed)},
		{"jsonrpc 1.0", raw("application/json", `{"jsonrpc":"1.0","id":"$ID","result":`+good+`}`), doubt(fault.ReplyMalformed)},
		{"no jsonrpc", raw("application/json", `{"id":"$ID","result":`+good+`}`), doubt(fault.ReplyMalformed)},
		{"result and error", raw("application/json", `{"jsonrpc":"2.0","id":"$ID","result":{},"error":{"code":1,"message":""}}`), doubt(fault.ReplyMalformed)},
		{"neither", raw("application/json", `{"jsonrpc":"2.0","id":"$ID"}`), doubt(fault.ReplyMalformed)},
		{"invalid UTF-8", result("{\"content\":[],\"x\":\"\xff\"}"), doubt(fault.ReplyMalformed)},
		{"result null", result(`null`), doubt(fault.ReplyMalformed)},
		{"result an array", result(`[]`), doubt(fault.ReplyMalformed)},
		{"error null", rpcError(`null`), doubt(fault.ReplyMalformed)},
		{"error without code", rpcError(`{"message":"x"}`), doubt(fault.ReplyMalformed)},
		{"error code not an integer", rpcError(`{"code":1.5,"message":"x"}`), doubt(fault.ReplyMalformed)},
		{"error without message", rpcError(`{"code":1}`), doubt(fault.ReplyMalformed)},
		{"nested too deep", result(`{"content":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`), doubt(fault.ReplyMalformed)},
		{"a notification as the body", raw("application/json", `{"jsonrpc":"2.0","method":"x"}`), doubt(fault.ReplyMalformed)},
		{"a notification with a result", raw("application/json", `{"jsonrpc":"2.0","method":"x","result":`+good+`}`), doubt(fault.ReplyMalformed)},
		{"a notification without version", stream(`{"method":"x"}`, reply), doubt(fault.ReplyMalformed)},
		{"a heartbeat that is no message", stream(`{"heartbeat":1}`, reply), doubt(fault.ReplyMalformed)},

		{"another id", raw("application/json", `{"jsonrpc":"2.0","id":"x","result":`+good+`}`), doubt(fault.ReplyMismatched)},
		{"id null", raw("application/json", `{"jsonrpc":"2.0","id":null,"result":`+good+`}`), doubt(fault.ReplyMismatched)},
		{"id a number", raw("application/json", `{"jsonrpc":"2.0","id":1,"result":`+good+`}`), doubt(fault.ReplyMismatched)},
		{"no id", raw("application/json", `{"jsonrpc":"2.0","result":`+good+`}`), doubt(fault.ReplyMismatched)},
		{"id with a space", raw("application/json", `{"jsonrpc":"2.0","id":"$ID ","result":`+good+`}`), doubt(fault.ReplyMismatched)},
		{"another id first", stream(`{"jsonrpc":"2.0","id":"x","result":{}}`, reply), doubt(fault.ReplyMismatched)},
		{"two answers", stream(reply, reply), doubt(fault.ReplyMismatched)},
		{"two answers, the second with another id", stream(reply, `{"jsonrpc":"2.0","id":"x","result":{}}`), doubt(fault.ReplyMismatched)},

		{"server asks", stream(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`, reply), doubt(fault.ServerAsked)},
		{"a ping, which this era does not have", stream(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, reply), doubt(fault.ServerAsked)},
		{"server asks with our id", stream(`{"jsonrpc":"2.0","id":"$ID","method":"roots/list"}`), doubt(fault.ServerAsked)},
		{"server asks in the body", raw("application/json", `{"jsonrpc":"2.0","id":"$ID","method":"ping"}`), doubt(fault.ServerAsked)},

		{"body too large", result(`{"content":[],"x":"` + strings.Repeat("x", 2<<20) + `"}`), doubt(fault.ReplyTooLarge)},
		{"event too large", stream(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`), doubt(fault.ReplyTooLarge)},
		{"too many events", raw("text/event-stream", strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n", 1001)), doubt(fault.ReplyTooLarge)},
		{"stream too large", raw("text/event-stream", strings.Repeat(":"+strings.Repeat("x", 1<<20)+"\n", 9)), doubt(fault.ReplyTooLarge)},

		{"input_required", result(`{"resultType":"input_required","content":null}`), doubt(fault.UnsupportedContinuation)},
		{"task", result(`{"resultType":"task","content":[]}`), doubt(fault.UnsupportedContinuation)},
		{"task of 2025-11-25", result(`{"task":{"taskId":"1"}}`), doubt(fault.UnsupportedContinuation)},
		{"unknown resultType", result(`{"resultType":"zzz","content":[]}`), doubt(fault.ReplyMalformed)},
		{"resultType null", result(`{"resultType":null,"content":[]}`), doubt(fault.ReplyMalformed)},
		{"content null", result(`{"content":null}`), doubt(fault.ReplyMalformed)},
		{"no content", result(`{}`), doubt(fault.ReplyMalformed)},
		{"isError a string", result(`{"content":[],"isError":"true"}`), doubt(fault.ReplyMalformed)},

		{"token in the result", result(`{"content":[],"x":"` + token + `"}`), peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed)},
		{"token in a tool error", result(`{"content":[],"isError":true,"x":"` + token + `"}`), peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed)},
		{"token in base64", result(`{"content":[],"x":"` + base64.StdEncoding.EncodeToString([]byte("a"+token)) + `"}`), peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed)},
		{"token in hex", result(`{"content":[],"x":"` + strings.ToUpper(hex.EncodeToString([]byte(token))) + `"}`), peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed)},
		{"token, escaped", result(`{"content":[],"x":"\u0063` + token[1:] + `"}`), peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed)},
		{"token in an error", rpcError(`{"code":1,"message":"","data":"` + token + `"}`), peer(fault.RPCError, fault.RanUnknown, fault.SecretEchoed)},
	}
	legacyRows := []row{
		{"result", result(good), succeeded},
		{"a ping in the body", raw("application/json", `{"jsonrpc":"2.0","id":"$ID","method":"ping"}`), doubt(fault.ServerAsked)},
		{"a ping without an id that can be sent back", stream(`{"jsonrpc":"2.0","id":null,"method":"ping"}`, reply), doubt(fault.ReplyMalformed)},
		{"a ping with a long id", stream(`{"jsonrpc":"2.0","id":"`+strings.Repeat("x", 255)+`","method":"ping"}`, reply), doubt(fault.ReplyMalformed)},
		{"server asks", stream(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, reply), doubt(fault.ServerAsked)},
		{"404 with a session", status(404, ""), doubt(fault.SessionLost)},
		{"404 with a session, no such method", statusCode(404, -32601), doubt(fault.SessionLost)},
		{"400 session unknown", statusCode(400, -32000), doubt(fault.StatusUnclear)},
		{"400 version", statusCode(400, -32022), refused(fault.VersionUnsupported)},
		{"400 version, the one that is spoken", status(400, supported(`"2025-11-25"`)), refused(fault.VersionUnsupported)},
	}
	run := func(t *testing.T, s *script, era policy.Era, want fault.Outcome) {
		canary.Run(t, func(c *canary.Cage) {
			rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, era), open())
			if diff := cmp.Diff(want, rep.Outcome); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if n := s.count("tools/call"); n != 1 {
				t.Errorf("tools/call was sent %d times, want once", n)
			}
			answered := want.Evidence == fault.EvidencePeer && want.State != fault.PeerRefused && want.Cause != fault.SecretEchoed
			if (rep.Result != nil) != answered {
				t.Errorf("Result = %.80s, want one: %v", rep.Result, answered)
			}
			rep.Result = nil
			c.Value("report", rep)
		}, token, foreign)
	}
	for _, r := range modernRows {
		t.Run("modern/"+r.name, func(t *testing.T) { run(t, modern(r.answer), policy.EraModern, r.want) })
	}
	for _, r := range legacyRows {
		t.Run("legacy/"+r.name, func(t *testing.T) { run(t, legacy(r.answer), policy.EraLegacy, r.want) })
	}
}

func TestResultKeepsItsBytes(t *testing.T) {
	for _, r := range []string{
		`{"content":[ ],  "n":1.0e2,"z":9007199254740993,"a":"<&>\/\u00e9"}`,
		`{"isError":true,"content":[{"type":"text","text":"é"}]}`,
	} {
		for _, answer := range []answer{result(r), stream(`{"jsonrpc":"2.0","id":"$ID","result":` + r + `}`)} {
			s := modern(answer)
			if rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), open()); string(rep.Result) != r {
				t.Errorf("Result = %s, want %s", rep.Result, r)
			}
		}
	}
	e := `{"code":-1, "message":"no","data":{"b":1,"a":2}}`
	s := modern(rpcError(e))
	if rep := call(t, mcpclient.New(mcpclient.Config{}), s.server(t, policy.EraModern), open()); string(rep.Result) != e {
		t.Errorf("Result = %s, want %s", rep.Result, e)
	}
}
