package server

import "fmt"

// statuses answer the call with a status that proves something, or nothing.
var statuses = append(bareStatuses(), []Behaviour{
	at(call, Both, "redirect-301", "refused: redirected", "Redirects to another host with 301.", say(301, "", "", "Location", "$ELSEWHERE")),
	at(call, Both, "redirect-302", "unknown: redirected", "Runs the tool and redirects to another host with 302.", works(say(302, "", "", "Location", "$ELSEWHERE"))),
	at(call, Both, "redirect-303", "unknown: redirected", "Runs the tool and redirects to another host with 303.", works(say(303, "", "", "Location", "$ELSEWHERE"))),
	at(call, Both, "redirect-307", "refused: redirected", "Redirects to another host with 307.", say(307, "", "", "Location", "$ELSEWHERE")),
	at(call, Both, "redirect-308", "refused: redirected", "Redirects to another host with 308.", say(308, "", "", "Location", "$ELSEWHERE")),
	at(call, Both, "redirect-300", "unknown: redirected", "Offers a choice of other hosts with 300.", works(say(300, "", "", "Location", "$ELSEWHERE"))),
	at(call, Both, "redirect-303-with-an-answer", "unknown: redirected", "Runs the tool and redirects with 303, with a good answer in the body.", works(say(303, kindJSON, reply, "Location", "$ELSEWHERE"))),
	at(call, Both, "redirect-304", "unknown: redirected", "Says that nothing has changed, to a POST.", works(say(304, "", ""))),
	at(call, Both, "redirect-same-host", "refused: redirected", "Redirects to another path of its own with 307.", say(307, "", "", "Location", "moved")),
	at(call, Both, "redirect-with-an-answer", "refused: redirected", "Redirects with 308, with a good answer in the body.", say(308, kindJSON, reply, "Location", "$ELSEWHERE")),
	at(call, Both, "redirect-nowhere", "refused: redirected", "Redirects with 307 to what is no URL.", say(307, "", "", "Location", "http://[::1/%zz")),

	at(call, Both, "refresh-header", succeeded, "Asks for a reload of another host in a header.", works(say(200, kindJSON, reply, "Refresh", "0; url=$ELSEWHERE", "Content-Location", "$ELSEWHERE", "Alt-Svc", `h2="elsewhere.test:443"`))),

	at(call, Both, "status-500-with-an-error", unclear, "Runs the tool and says 500, with a JSON-RPC error.", works(refuse(500, -32603, "null"))),
	at(call, Both, "status-503-no-such-method", unclear, "Says 503, with a code that would be a refusal under 400.", works(refuse(503, -32601, "null"))),
	at(call, Both, "status-400-bare", between, "Says 400 without a body.", works(say(400, "", ""))),
	at(call, Both, "status-400-html", between, "Says 400 with a page of a proxy.", works(say(400, "text/html", "<html>"+Foreign))),
	at(call, Both, "status-400-invalid-params", unclear, "Runs the tool and says 400 -32602, since its output is invalid.", works(refuse(400, -32602, "null"))),
	at(call, Both, "status-400-own-code", unclear, "Runs the tool and says 400 with a code of its own.", works(refuse(400, -32000, "null"))),
	at(call, Both, "status-400-code-as-text", between, "Says 400 with a code that is no number.", works(say(400, kindJSON, `{"jsonrpc":"2.0","id":$ID,"error":{"code":"-32020","message":"x"}}`))),
	at(call, Both, "status-400-endless-body", between, "Says 400 with a JSON body that does not end.", works(repeated(400, kindJSON, `{"jsonrpc":"2.0","error":{"code":-32020,"message":"`, "x", -1, ""))),
	at(call, Both, "status-400-packed-body", between, "Says 400 with a code of the refusal list, in gzip, unasked.", works(packed(400, "gzip", `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"x"}}`))),
	at(call, Both, "status-400-batch", between, "Says 400 with a batch of errors.", works(say(400, kindJSON, `[{"jsonrpc":"2.0","id":$ID,"error":{"code":-32600,"message":"x"}}]`))),
	at(call, Both, "status-500-body-never-comes", between, "Says 500 and promises a body that never comes.", works(raw("HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{", stays))),
	at(call, Both, "status-999", between, "Says 999.", works(raw("HTTP/1.1 999 "+Foreign+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", closes))),
	at(call, Both, "status-101", malformed, "Switches to another protocol.", works(raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", stays))),
	at(call, Both, "status-099", malformed, "Says 099.", works(raw("HTTP/1.1 099 Low\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", closes))),
	at(call, Both, "status-206-with-an-answer", malformed, "Runs the tool and says 206 with an answer.", works(say(206, kindJSON, reply, "Content-Range", "bytes 0-1/2"))),
	at(call, Modern, "status-404-modern", between, "Says 404 without a body, without sessions.", works(say(404, "", ""))),
	at(call, Legacy, "status-404-session", "unknown: session lost", "Says 404 to a session that it has given, after the tool ran.", works(say(404, "", ""))),
	at(call, Legacy, "status-404-session-no-such-method", "unknown: session lost", "Says 404 -32601 to a session that it has given.", works(refuse(404, -32601, "null"))),
	at(call, Legacy, "status-400-session-unknown", unclear, "Says 400 -32000, \"no valid session\", as the TypeScript SDK does.", works(refuse(400, -32000, "null"))),
	at(call, Both, "works-then-504", between, "Runs the tool, and a proxy says 504.", works(say(504, "", ""))),
	at(call, Both, "works-then-504-html", between, "Runs the tool, and a proxy says 504 with a page.", works(say(504, "text/html", "<html>"+Foreign))),
	at(call, Both, "works-then-202-and-silence", malformed, "Runs the tool, says 202 and begins a body that never comes.", works(open(say(202, "", "")))),
	at(call, Both, "works-then-202-with-an-answer", malformed, "Runs the tool and says 202 with a good answer in the body.", works(say(202, kindJSON, reply))),
	at(call, Both, "works-then-202-stream", malformed, "Runs the tool, says 202 and opens a stream in silence.", works(open(say(202, kindStream, "")))),
}...)

// bareStatuses are statuses without a body: refusals, and those that a proxy
// gives as well.
func bareStatuses() (all []Behaviour) {
	for _, code := range []int{406, 411, 413, 414, 415, 431} {
		all = append(all, at(call, Both, fmt.Sprint("status-", code), "refused: status refused", fmt.Sprintf("Says %d.", code), say(code, "", "")))
	}
	for _, code := range []int{402, 408, 409, 410, 421, 422, 425, 429, 451, 499, 500, 501, 502, 503, 504, 520} {
		all = append(all, at(call, Both, fmt.Sprint("status-", code), between, fmt.Sprintf("Runs the tool and says %d without a body.", code), works(say(code, "", "", "Retry-After", "0"))))
	}
	for _, code := range []int{201, 202, 203, 204, 205} {
		all = append(all, at(call, Both, fmt.Sprint("status-", code), malformed, fmt.Sprintf("Runs the tool and says %d.", code), works(say(code, "", ""))))
	}
	return append(all, at(call, Both, "status-405", "refused: method refused", "Says 405.", say(405, "", "", "Allow", "GET")))
}

const metadata = `, resource_metadata="$ELSEWHERE/.well-known/oauth-protected-resource", authorization_uri="$ELSEWHERE"`

// refusals say in words that the call was not taken up.
var refusals = []Behaviour{
	at(call, Both, "status-401", "refused: unauthorized", "Says 401 without a challenge.", say(401, "", "")),
	at(call, Both, "status-401-metadata", "refused: unauthorized", "Says 401 and points to metadata on another host.", say(401, "", "", "WWW-Authenticate", `Bearer realm="x"`+metadata)),
	at(call, Both, "status-401-invalid-token", "refused: unauthorized", "Says 401 invalid_token, for ever.", say(401, "", "", "WWW-Authenticate", `Bearer error="invalid_token", error_description="`+Foreign+`"`+metadata)),
	at(call, Both, "status-401-basic", "refused: unauthorized", "Says 401 and asks for a password.", say(401, "", "", "WWW-Authenticate", `Basic realm="`+Foreign+`", Negotiate`)),
	at(call, Both, "status-401-challenge-flood", "refused: unauthorized", "Says 401 with 500 challenges.", say(401, "", "", floodOfChallenges()...)),
	at(call, Both, "status-401-though-it-ran", "refused: unauthorized", "Runs the tool and says 401: nobody can tell.", works(say(401, "", ""))).lying(),
	at(call, Both, "status-403", "refused: status refused", "Says 403 without a challenge.", say(403, "", "")),
	at(call, Both, "status-403-insufficient-scope", "refused: insufficient scope", "Says 403 insufficient_scope and points to metadata on another host.", say(403, "", "", "WWW-Authenticate", `Bearer error="insufficient_scope", scope="records.read records.write"`+metadata)),
	at(call, Both, "status-403-token-in-scope", "refused: insufficient scope", "Asks for a scope that is the token.", say(403, "", "", "WWW-Authenticate", `Bearer error="insufficient_scope", scope="records.read $TOKEN"`)),
	at(call, Both, "status-403-token-in-scope-hex", "refused: insufficient scope", "Asks for a scope that is the token in hex.", say(403, "", "", "WWW-Authenticate", `Bearer error="insufficient_scope", scope="$TOKEN_HEX"`)),
	at(call, Both, "status-403-scope-injection", "refused: insufficient scope", "Asks for a scope with quotes in it, which no scope has.", say(403, "", "", "WWW-Authenticate", `Bearer error="insufficient_scope", scope="a\" onload=\"`+Foreign+`"`)),

	at(call, Both, "code-parse-error", "refused: status refused", "Says 400 -32700.", refuse(400, -32700, "null")),
	at(call, Both, "code-invalid-request", "refused: status refused", "Says 400 -32600.", refuse(400, -32600, "null")),
	at(call, Both, "code-no-such-method", "refused: method refused", "Says 400 -32601.", refuse(400, -32601, "null")),
	at(call, Modern, "code-no-such-method-404", "refused: method refused", "Says 404 -32601.", refuse(404, -32601, "null")),
	at(call, Both, "code-capability-missing", "refused: capability missing", "Says 400 -32021.", refuse(400, -32021, `{"requiredCapabilities":{"sampling":{}}}`)),
	at(call, Modern, "code-version-for-ever", "refused: version unsupported", "Says 400 -32022 for ever, and that it supports what was sent.", refuse(400, -32022, `{"supported":["2026-07-28"]}`)),
	at(call, Modern, "code-version-once", succeeded, "Says 400 -32022 once, and that it supports what was sent.", refuse(400, -32022, `{"supported":["2026-07-28"]}`), works(result(good))),
	at(call, Modern, "code-version-other", "refused: version unsupported", "Says 400 -32022 and supports other versions.", refuse(400, -32022, `{"supported":["2099-01-01","2025-11-25"]}`)),
	at(call, Modern, "code-version-no-list", "refused: version unsupported", "Says 400 -32022 without a list.", refuse(400, -32022, `null`)),
	at(call, Modern, "code-version-list-of-numbers", "refused: version unsupported", "Says 400 -32022 with a list that holds a number.", refuse(400, -32022, `{"supported":["2026-07-28",1]}`)),
	at(call, Modern, "code-header-for-ever", "refused: header mismatch", "Says 400 -32020 for ever; its list of tools asks for no header.", refuse(400, -32020, "null")),
	at(call, Modern, "code-header-then-listed", succeeded, "Says 400 -32020 until the header comes that its list of tools asks for.", refuse(400, -32020, "null"), works(result(good))).with(list, annotated),
	at(call, Modern, "code-header-listed-and-refused", "refused: header mismatch", "Says 400 -32020 for ever; its list of tools asks for a header.", refuse(400, -32020, "null")).with(list, annotated),
	at(call, Modern, "code-header-list-hangs", "refused: header mismatch", "Says 400 -32020, and then does not answer tools/list.", refuse(400, -32020, "null")).with(list, silent),
	at(call, Legacy, "code-version-legacy", "refused: version unsupported", "Says 400 -32022 in a session.", refuse(400, -32022, `{"supported":["2025-11-25"]}`)),
}

var annotated = result(`{"resultType":"complete","tools":[{"name":"search","inputSchema":{"type":"object","properties":{"q":{"type":"string","x-mcp-header":"Q"}}}}],"ttlMs":0,"cacheScope":"private"}`)

func (b Behaviour) lying() Behaviour {
	b.Lies = true
	return b
}

func floodOfChallenges() (headers []string) {
	for range 500 {
		headers = append(headers, "WWW-Authenticate", `Bearer error="invalid_token"`+`, x="y"`)
	}
	return headers
}
