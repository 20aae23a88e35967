package server

const echoed = "succeeded: secret echoed"

// results break what is in the result, or put the token into it.
var results = []Behaviour{
	at(call, Both, "result-null", malformed, "Sends null for the result.", works(result("null"))),
	at(call, Both, "result-array", malformed, "Sends an array for the result.", works(result("[]"))),
	at(call, Both, "result-text", malformed, "Sends a string for the result.", works(result(`"ok"`))),
	at(call, Both, "result-empty", malformed, "Sends a result without content.", works(result("{}"))),
	at(call, Both, "content-null", malformed, "Sends null for the content.", works(result(`{"content":null}`))),
	at(call, Both, "content-object", malformed, "Sends an object for the content.", works(result(`{"content":{"type":"text","text":"ok"}}`))),
	at(call, Both, "is-error-text", malformed, "Says isError in quotes.", works(result(`{"content":[],"isError":"false"}`))),
	at(call, Both, "is-error-null", malformed, "Says null for isError.", works(result(`{"content":[],"isError":null}`))),
	at(call, Both, "type-zzz", malformed, "Says a resultType that nobody knows.", works(result(`{"resultType":"zzz","content":[]}`))),
	at(call, Both, "type-in-capitals", malformed, "Says resultType Complete.", works(result(`{"resultType":"Complete","content":[]}`))),
	at(call, Both, "type-null", malformed, "Says null for resultType.", works(result(`{"resultType":null,"content":[]}`))),
	at(call, Both, "type-task", continuation, "Makes a task of the call, unasked.", works(result(`{"resultType":"task","taskId":"1","status":"working","content":[]}`))),
	at(call, Both, "type-task-legacy", continuation, "Makes a task of the call as in 2025-11-25, unasked.", works(result(`{"task":{"taskId":"1","status":"working"}}`))),
	at(call, Both, "type-input-required", continuation, "Asks for input that the client has not offered.", works(result(`{"resultType":"input_required","content":null,"inputRequests":{"a":{"method":"elicitation/create","params":{"url":"$ELSEWHERE"}}}}`))),
	at(call, Both, "type-input-required-state-only", continuation, "Asks to come again with a state.", works(result(`{"resultType":"input_required","requestState":"$TOKEN_HEX"}`))),

	at(call, Both, "links-elsewhere", succeeded, "Puts links to another host into the result.", works(result(`{"resultType":"complete","content":[{"type":"resource_link","uri":"$ELSEWHERE/file","name":"x"},{"type":"text","text":"![x]($ELSEWHERE/i.png)"}],"_meta":{"icons":[{"src":"$ELSEWHERE/icon"}]}}`))),
	at(call, Both, "token-in-result", echoed, "Puts the token into the result.", works(result(`{"content":[{"type":"text","text":"Bearer $TOKEN"}]}`))),
	at(call, Both, "token-in-result-on-a-stream", echoed, "Puts the token into the result on a stream.", works(events(`{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"x":"$TOKEN"}}`))),
	at(call, Both, "token-in-member-name", echoed, "Names a member of the result like the token.", works(result(`{"content":[],"$TOKEN":1}`))),
	at(call, Both, "token-in-tool-error", echoed, "Puts the token into a tool error.", works(result(`{"isError":true,"content":[{"type":"text","text":"$TOKEN"}]}`))),
	at(call, Both, "token-in-hex", echoed, "Puts the token into the result in hex.", works(result(`{"content":[],"x":"$TOKEN_HEX"}`))),
	at(call, Both, "token-in-upper-hex", echoed, "Puts the token into the result in upper-case hex.", works(result(`{"content":[],"x":"$TOKEN_UPPER"}`))),
	at(call, Both, "token-in-base64", echoed, "Puts the header into the result in base64.", works(result(`{"content":[],"x":"$TOKEN_BASE64"}`))),
	at(call, Both, "token-in-base64url", echoed, "Puts the token into the result in base64url.", works(result(`{"content":[],"x":"$TOKEN_URL64"}`))),
	at(call, Both, "token-in-escapes", echoed, "Puts the token into the result in escapes.", works(result(`{"content":[],"x":"$TOKEN_ESCAPED"}`))),
	at(call, Both, "token-in-error-message", "rpc error: secret echoed", "Puts the token into the message of an error.", works(errorInBody(`{"code":1,"message":"$TOKEN"}`))),
	at(call, Both, "token-in-error-data", "rpc error: secret echoed", "Puts the token into the data of an error.", works(errorInBody(`{"code":1,"message":"","data":{"header":"$TOKEN_BASE64"}}`))),
	at(call, Both, "token-in-a-header", succeeded, "Puts the token into a header.", works(say(200, kindJSON, reply, "X-Debug", "$TOKEN", "Set-Cookie", "t=$TOKEN"))),
	at(call, Both, "token-in-reason-phrase", between, "Puts the token behind the status.", works(raw("HTTP/1.1 500 $TOKEN\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", closes))),
	at(call, Both, "token-in-error-body", unclear, "Puts the token into the body of a 500.", works(refuse(500, -32603, `"$TOKEN"`))),
	at(call, Both, "token-in-notification", succeeded, "Puts the token into a notification.", works(events(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"$TOKEN"}}`, reply))),
	at(call, Both, "token-in-a-malformed-body", malformed, "Puts the token into what is no JSON.", works(body("<html>$TOKEN"))),
}
