package server

const notInitialized = `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`

// discoveries break the first question to a server whose era is not known.
var discoveries = []Behaviour{
	at(discover, Both, "discover-modern", succeeded, "Says that it speaks the modern version, among others.", result(`{"resultType":"complete","supportedVersions":["2099-01-01","2026-07-28"]}`)),
	at(discover, Both, "discover-legacy-only", succeeded, "Says that it speaks legacy versions only.", result(`{"resultType":"complete","supportedVersions":["2025-11-25"]}`)),
	at(discover, Both, "discover-method-unknown", succeeded, "Says -32601 under status 200, as many legacy servers do.", errorInBody(`{"code":-32601,"message":"x"}`)),
	at(discover, Both, "discover-404-method-unknown", succeeded, "Says 404 -32601.", refuse(404, -32601, "null")),
	at(discover, Both, "discover-400-bare", succeeded, "Says 400 without a body.", say(400, "", "")),
	at(discover, Both, "discover-400-not-initialized", succeeded, "Says 400 -32000 with id null, as the TypeScript SDK does.", say(400, kindJSON, notInitialized)),
	at(discover, Both, "discover-400-server-error", succeeded, "Says 400 with the id \"server-error\", as the Python SDK does.", say(400, kindJSON, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"x"}}`)),
	at(discover, Both, "discover-404", succeeded, "Says 404.", say(404, "", "")),
	at(discover, Both, "discover-405", succeeded, "Says 405.", say(405, "", "")),
	at(discover, Both, "discover-version-legacy", succeeded, "Says 400 -32022 and supports legacy versions.", refuse(400, -32022, `{"supported":["2025-11-25"]}`)),
	at(discover, Both, "discover-version-modern", succeeded, "Says 400 -32022 and supports the modern version.", refuse(400, -32022, `{"supported":["2026-07-28"]}`)),
	at(discover, Both, "discover-version-future", notSent+"version unsupported", "Says 400 -32022 and supports versions that nobody knows.", refuse(400, -32022, `{"supported":["2099-01-01"]}`)),
	at(discover, Both, "discover-future-only", notSent+"version unsupported", "Says that it speaks versions that nobody knows.", result(`{"resultType":"complete","supportedVersions":["2099-01-01"]}`)),
	at(discover, Both, "discover-no-versions", succeeded, "Answers like a server that answers whatever it is asked, without a word of versions.", result(`{"resultType":"complete"}`)),
	at(discover, Both, "discover-versions-text", notSent+"reply malformed", "Says what it speaks in a string.", result(`{"resultType":"complete","supportedVersions":"2026-07-28"}`)),
	at(discover, Both, "discover-input-required", notSent+"reply malformed", "Asks for input, which it may not do here.", result(`{"resultType":"input_required","supportedVersions":["2026-07-28"]}`)),
	at(discover, Both, "discover-header-mismatch", notSent+"header mismatch", "Says 400 -32020: it is a modern server.", refuse(400, -32020, "null")),
	at(discover, Both, "discover-capability-missing", notSent+"capability missing", "Says 400 -32021: it is a modern server.", refuse(400, -32021, "null")),
	at(discover, Both, "discover-401", notSent+"unauthorized", "Says 401 and points to metadata on another host.", say(401, "", "", "WWW-Authenticate", `Bearer realm="x"`+metadata)),
	at(discover, Both, "discover-403", notSent+"status refused", "Says 403.", say(403, "", "")),
	at(discover, Both, "discover-429", notSent+"intermediary", "Says 429.", say(429, "", "", "Retry-After", "1")),
	at(discover, Both, "discover-500", notSent+"intermediary", "Says 500.", say(500, "", "")),
	at(discover, Both, "discover-503-with-an-error", notSent+"status unclear", "Says 503 with a JSON-RPC error.", refuse(503, -32601, "null")),
	at(discover, Both, "discover-307", notSent+"redirected", "Redirects to another host.", say(307, "", "", "Location", "$ELSEWHERE")),
	at(discover, Both, "discover-303", notSent+"redirected", "Redirects to another host with 303.", say(303, "", "", "Location", "$ELSEWHERE")),
	at(discover, Both, "discover-202", notSent+"reply malformed", "Says 202.", say(202, "", "")),
	at(discover, Both, "discover-html", notSent+"reply malformed", "Is a web page.", say(200, "text/html", "<html>"+Foreign)),
	at(discover, Both, "discover-other-id", notSent+"reply mismatched", "Answers another request.", body(`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"]}}`)),
	at(discover, Both, "discover-cut", notSent+"connection lost", "Closes the connection.", raw("", closes)),
	at(discover, Both, "discover-endless", notSent+"reply too large", "Lists versions without an end.", repeated(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":{"supportedVersions":["2026-07-28"`, `,"2026-07-28"`, -1, "")),
	at(discover, Both, "discover-hangs", notSent+"wall clock", "Says nothing.", silent),
	at(discover, Both, "discover-token", notSent+"secret echoed", "Names itself like the token.", result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"instructions":"$TOKEN"}`)),
	at(call, Both, "discovered-in-vain", unclear, "Says that it is modern, and is not: 400 -32000 to the call.", say(400, kindJSON, notInitialized)),
	at(call, Both, "discovered-and-gone", between, "Says that it is modern, and 404 to the call.", say(404, "", "")),
}

func hello(version string) string {
	return `{"protocolVersion":` + version + `,"capabilities":{},"serverInfo":{"name":"x","version":"1"}}`
}

// greets answers initialize with its session and a version.
func greets(version string) step {
	return say(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":`+hello(version)+`}`, "Mcp-Session-Id", session)
}

// handshakes break initialize or notifications/initialized.
var handshakes = []Behaviour{
	at(initialize, Legacy, "initialize-older", succeeded, "Answers with an older version that is known.", greets(`"2025-03-26"`)),
	at(initialize, Legacy, "initialize-1999", notSent+"version unsupported", "Answers with a version that nobody knows.", greets(`"1999-01-01"`)),
	at(initialize, Legacy, "initialize-2024", notSent+"version unsupported", "Answers with the version before Streamable HTTP.", greets(`"2024-11-05"`)),
	at(initialize, Legacy, "initialize-modern", notSent+"version unsupported", "Answers with the version that has no handshake.", greets(`"2026-07-28"`)),
	at(initialize, Legacy, "initialize-version-number", notSent+"reply malformed", "Answers with a version that is a number.", greets("20251125")),
	at(initialize, Legacy, "initialize-no-version", notSent+"reply malformed", "Answers without a version.", result(`{"capabilities":{}}`)),
	at(initialize, Legacy, "initialize-version-token", notSent+"secret echoed", "Answers with the token as version.", greets(`"$TOKEN"`)),
	at(initialize, Legacy, "initialize-error", notSent+"server error", "Answers with an error.", errorInBody(`{"code":-32602,"message":"`+Foreign+`"}`)),
	at(initialize, Legacy, "initialize-401", notSent+"unauthorized", "Says 401.", say(401, "", "", "WWW-Authenticate", `Bearer realm="x"`+metadata)),
	at(initialize, Legacy, "initialize-403-scope", notSent+"insufficient scope", "Says 403 insufficient_scope.", say(403, "", "", "WWW-Authenticate", `Bearer error="insufficient_scope", scope="a"`)),
	at(initialize, Legacy, "initialize-404", notSent+"intermediary", "Says 404: it may speak the transport before.", say(404, "", "")),
	at(initialize, Legacy, "initialize-405", notSent+"method refused", "Says 405: it may speak the transport before.", say(405, "", "")),
	at(initialize, Legacy, "initialize-500", notSent+"intermediary", "Says 500.", say(500, "", "")),
	at(initialize, Legacy, "initialize-308", notSent+"redirected", "Redirects to another host.", say(308, "", "", "Location", "$ELSEWHERE")),
	at(initialize, Legacy, "initialize-202", notSent+"reply malformed", "Says 202.", say(202, "", "")),
	at(initialize, Legacy, "initialize-cut", notSent+"connection lost", "Closes the connection.", raw("", closes)),
	at(initialize, Legacy, "initialize-hangs", notSent+"wall clock", "Says nothing.", silent),
	at(initialize, Legacy, "initialize-drips", notSent+"wall clock", "Answers byte by byte and never ends.", drip(pace, okJSON+"Content-Length: 9999\r\n\r\n", " ")),
	at(initialize, Legacy, "initialize-other-id", notSent+"reply mismatched", "Answers another request.", body(`{"jsonrpc":"2.0","id":0,"result":`+greeting+`}`)),
	at(initialize, Legacy, "initialize-stream", succeeded, "Answers on a stream, behind a priming event.", say(200, kindStream, "id: 1\ndata: \n\nevent: message\ndata: {\"result\":"+greeting+",\"jsonrpc\":\"2.0\",\"id\":$ID}\n\n", "Mcp-Session-Id", session)),
	at(initialize, Legacy, "initialize-asks", notSent+"server asked", "Asks for a sample before the handshake is over.", events(sampling)),
	at(initialize, Legacy, "initialize-endless", notSent+"reply too large", "Answers without an end.", repeated(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":{"instructions":"`, "x", -1, "")),

	at(initialized, Legacy, "initialized-200-with-body", succeeded, "Says 200 with a body.", say(200, kindJSON, `{"jsonrpc":"2.0"}`)),
	at(initialized, Legacy, "initialized-204", succeeded, "Says 204.", say(204, "", "")),
	at(initialized, Legacy, "initialized-200-endless", succeeded, "Says 200 with a body that does not end.", repeated(200, "text/plain", "", "x", -1, "")),
	at(initialized, Legacy, "initialized-200-never-ends", succeeded, "Says 200 with a body that never comes.", open(say(200, "", ""))),
	at(initialized, Legacy, "initialized-400", notSent+"intermediary", "Says 400.", say(400, "", "")),
	at(initialized, Legacy, "initialized-401", notSent+"unauthorized", "Says 401.", say(401, "", "")),
	at(initialized, Legacy, "initialized-500", notSent+"intermediary", "Says 500.", say(500, "", "")),
	at(initialized, Legacy, "initialized-307", notSent+"redirected", "Redirects to another host.", say(307, "", "", "Location", "$ELSEWHERE")),
	at(initialized, Legacy, "initialized-hangs", notSent+"wall clock", "Says nothing.", silent),
	at(initialized, Legacy, "initialized-cut", notSent+"connection lost", "Closes the connection.", raw("", closes)),
	at(initialized, Legacy, "initialized-404-once", succeeded, "Loses the session once.", say(404, "", ""), say(202, "", "")),
	at(initialized, Legacy, "initialized-404-for-ever", notSent+"session lost", "Loses every session.", say(404, "", "")),
	at(initialized, Legacy, "initialized-new-session", succeeded, "Names another session behind the handshake.", say(202, "", "", "Mcp-Session-Id", "s-2")),
}

// inSession answers initialize with raw header lines.
func inSession(lines string) step {
	return measured(okJSON+lines, `{"jsonrpc":"2.0","id":$ID,"result":`+greeting+`}`, "", closes)
}

// sessions break the session id.
var sessions = []Behaviour{
	at(initialize, Legacy, "session-none", succeeded, "Has no sessions.", inSession("")),
	at(initialize, Legacy, "session-empty", succeeded, "Names a session with an empty id.", inSession("Mcp-Session-Id:\r\n")),
	at(initialize, Legacy, "session-256", succeeded, "Names a session with 256 characters.", inSession("Mcp-Session-Id: "+letters(256)+"\r\n")),
	at(initialize, Legacy, "session-257", notSent+"reply malformed", "Names a session with 257 characters.", inSession("Mcp-Session-Id: "+letters(257)+"\r\n")),
	at(initialize, Legacy, "session-60-kib", notSent+"reply malformed", "Names a session with 60 KiB.", inSession("Mcp-Session-Id: "+letters(60<<10)+"\r\n")),
	at(initialize, Legacy, "session-space", notSent+"reply malformed", "Names a session with a space.", inSession("Mcp-Session-Id: a b\r\n")),
	at(initialize, Legacy, "session-tab", notSent+"reply malformed", "Names a session with a tab.", inSession("Mcp-Session-Id: a\tb\r\n")),
	at(initialize, Legacy, "session-nul", notSent+"reply malformed", "Names a session with a NUL.", inSession("Mcp-Session-Id: a\x00b\r\n")),
	at(initialize, Legacy, "session-cr", notSent+"reply malformed", "Names a session with a bare CR, and a header of the client's behind it.", inSession("Mcp-Session-Id: a\rX-Injected: 1\r\n")),
	at(initialize, Legacy, "session-lf", succeeded, "Ends the header of the session in a bare LF, which recipients may take for the end of a line.", inSession("Mcp-Session-Id: a\nX-Other: 1\r\n")),
	at(initialize, Legacy, "session-not-ascii", notSent+"reply malformed", "Names a session that is not ASCII.", inSession("Mcp-Session-Id: \xc3\xa9\r\n")),
	at(initialize, Legacy, "session-folded", notSent+"reply malformed", "Breaks the id of a session over two lines.", inSession("Mcp-Session-Id: a\r\n b\r\n")),
	at(initialize, Legacy, "session-two", notSent+"reply malformed", "Names two sessions.", inSession("Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n")),
	at(initialize, Legacy, "session-markup", succeeded, "Names a session with quotes and brackets, which may be.", inSession("Mcp-Session-Id: \"><script>{}%0d%0aX:\r\n")),
	at(initialize, Legacy, "session-token", succeeded, "Names a session like the token.", inSession("Mcp-Session-Id: $TOKEN\r\n")),
	at(call, Legacy, "session-changes", succeeded, "Names another session in the answer to the call.", works(say(200, kindJSON, reply, "Mcp-Session-Id", "s-2"))),
}

func letters(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}
