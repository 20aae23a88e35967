package server

// farewells break the end of a legacy session: DELETE, and the cancellation of a
// call that has no answer.
var farewells = []Behaviour{
	at(deletion, Legacy, "delete-405", succeeded, "Does not let sessions be deleted.", say(405, "", "")),
	at(deletion, Legacy, "delete-404", succeeded, "Does not know the session any more.", say(404, "", "")),
	at(deletion, Legacy, "delete-500", succeeded, "Says 500 to DELETE.", say(500, "", "")),
	at(deletion, Legacy, "delete-401", succeeded, "Says 401 to DELETE.", say(401, "", "", "WWW-Authenticate", `Bearer realm="x"`+metadata)),
	at(deletion, Legacy, "delete-307", succeeded, "Redirects DELETE to another host.", say(307, "", "", "Location", "$ELSEWHERE")),
	at(deletion, Legacy, "delete-cut", succeeded, "Resets the connection at DELETE.", raw("", resets)),
	at(deletion, Legacy, "delete-hangs", succeeded, "Does not answer DELETE.", silent),
	at(deletion, Legacy, "delete-drips", succeeded, "Answers DELETE byte by byte.", drip(pace, "HTTP/1.1 200 OK\r\nX: ", "x")),
	at(deletion, Legacy, "delete-endless-body", succeeded, "Answers DELETE with a body that does not end.", repeated(200, "text/plain", "", "x", -1, "")),
	at(deletion, Legacy, "delete-token", succeeded, "Answers DELETE with the token.", say(200, kindJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"$TOKEN"}}`)),
	at(cancelled, Legacy, "cancelled-and-silent", late, "Takes the cancellation, and leaves the stream of the call open in silence, as the TypeScript SDK does.", say(202, "", "")).with(call, works(open(stream(": working\n\n")))),
	at(cancelled, Legacy, "cancelled-hangs", late, "Answers neither the call nor its cancellation.", silent).with(call, works(silent)),
	at(cancelled, Legacy, "cancelled-and-delete-hang", late, "Answers neither the call, nor its cancellation, nor DELETE.", silent).with(call, works(silent)).with(deletion, silent),
	at(cancelled, Legacy, "cancelled-401", late, "Says 401 to the cancellation.", say(401, "", "")).with(call, works(silent)),
	at(cancelled, Legacy, "cancelled-307", late, "Redirects the cancellation to another host.", say(307, "", "", "Location", "$ELSEWHERE")).with(call, works(silent)),
	at(cancelled, Legacy, "cancelled-cut", late, "Resets the connection at the cancellation.", raw("", resets)).with(call, works(silent)),
}
