package server

// Requests that a server may put to a client that said that it can answer them.
const (
	sampling    = `{"jsonrpc":"2.0","id":"q-1","method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`
	elicitation = `{"jsonrpc":"2.0","id":"q-2","method":"elicitation/create","params":{"mode":"url","url":"$ELSEWHERE","message":"x"}}`
	roots       = `{"jsonrpc":"2.0","id":"q-3","method":"roots/list"}`
	ping        = `{"jsonrpc":"2.0","id":"q-4","method":"ping"}`
)

func progress(of, params string) string {
	return `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + of + `,` + params + `}}`
}

// asides say something besides the answer: questions, pings, progress.
var asides = []Behaviour{
	at(call, Both, "asks-sampling", asked, "Asks for a sample before the answer.", works(events(sampling, reply))),
	at(call, Both, "asks-elicitation", asked, "Asks the user to visit another host.", works(events(elicitation, reply))),
	at(call, Both, "asks-roots", asked, "Asks for roots, and waits for them.", works(answered(events(roots), 1, "data: "+reply+"\n\n"))),
	at(call, Both, "asks-with-our-id", asked, "Asks under the id of the call.", works(events(`{"jsonrpc":"2.0","id":$ID,"method":"roots/list"}`, reply))),
	at(call, Both, "asks-in-the-body", asked, "Asks in place of an answer.", works(body(`{"jsonrpc":"2.0","id":$ID,"method":"ping"}`))),
	at(call, Both, "asks-with-a-result", asked, "Asks, with a result in the question.", works(body(`{"jsonrpc":"2.0","id":$ID,"method":"x","result":`+good+`}`))),
	at(call, Modern, "pings-modern", asked, "Pings, where nobody may ask.", works(events(ping, reply))),
	at(call, Legacy, "pings", succeeded, "Pings and waits for the answer.", works(answered(events(ping), 1, "data: "+reply+"\n\n"))),
	at(call, Legacy, "pings-with-number", succeeded, "Pings with id 0 and waits for the answer.", works(answered(events(`{"jsonrpc":"2.0","id":0,"method":"ping"}`), 1, "data: "+reply+"\n\n"))),
	at(call, Legacy, "pings-and-refuses-the-answer", succeeded, "Pings and says 401 to the answer.", works(answered(events(ping), 1, "data: "+reply+"\n\n"))).with(answer, say(401, "", "", "WWW-Authenticate", "Bearer"+metadata[1:])),
	at(call, Legacy, "pings-and-redirects-the-answer", succeeded, "Pings and redirects the answer.", works(answered(events(ping), 1, "data: "+reply+"\n\n"))).with(answer, say(307, "", "", "Location", "$ELSEWHERE")),
	at(call, Legacy, "pings-and-hangs-the-answer", succeeded, "Pings and does not say that the answer came.", works(answered(events(ping), 1, "data: "+reply+"\n\n"))).with(answer, silent),
	at(call, Legacy, "pings-and-cuts-the-answer", succeeded, "Pings and resets the connection of the answer.", works(answered(events(ping), 1, "data: "+reply+"\n\n"))).with(answer, raw("", resets)),
	at(call, Legacy, "pings-for-ever", late, "Pings for ever and never answers.", works(drip(pace, okStream+"\r\n", "data: "+ping+"\n\n"))),
	at(call, Legacy, "pings-10000", tooLarge, "Pings ten thousand times and then answers.", works(repeated(200, kindStream, "", "data: "+ping+"\n\n", 10_000, "data: "+reply+"\n\n"))),
	at(call, Legacy, "pings-without-version", malformed, "Pings without saying JSON-RPC 2.0.", works(events(`{"id":1,"method":"ping"}`, reply))),

	at(call, Both, "notes-first", succeeded, "Sends log messages, list changes and a cancellation of the call before the answer.", works(events(note, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$ID}}`, reply))),
	at(call, Both, "note-without-version", malformed, "Sends a notification without saying JSON-RPC 2.0.", works(events(`{"method":"x"}`, reply))),
	at(call, Both, "progress-unasked", succeeded, "Reports progress that nobody asked for.", works(events(progress(`"t"`, `"progress":1`), reply))),
	at(call, Both, "progress", succeeded, "Reports progress: 1, 2 of 2.", works(events(progress("$PROGRESS", `"progress":1,"message":"one"`), progress("$PROGRESS", `"progress":2,"total":2`), reply))),
	at(call, Both, "progress-backwards", succeeded, "Reports progress that goes back and stands still: 5, 3, 5, 7.", works(events(progress("$PROGRESS", `"progress":5`), progress("$PROGRESS", `"progress":3`), progress("$PROGRESS", `"progress":5`), progress("$PROGRESS", `"progress":7`), reply))),
	at(call, Both, "progress-of-another", succeeded, "Reports progress under another token.", works(events(progress(`"x"`, `"progress":1`), progress("1", `"progress":1`), progress("null", `"progress":1`), reply))),
	at(call, Both, "progress-no-number", succeeded, "Reports progress that is no finite number.", works(events(progress("$PROGRESS", `"progress":"1"`), progress("$PROGRESS", `"progress":1e999`), progress("$PROGRESS", `"progress":null`), progress("$PROGRESS", `"total":1`), reply))),
	at(call, Both, "progress-with-token", succeeded, "Reports progress with the token in its message.", works(events(progress("$PROGRESS", `"progress":1,"message":"a $TOKEN b"`), progress("$PROGRESS", `"progress":2,"message":"$TOKEN_ESCAPED"`), reply))),
	at(call, Both, "progress-large-message", succeeded, "Reports progress with a message of 100 KiB.", works(repeated(200, kindStream, "data: "+`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$PROGRESS,"progress":1,"message":"`, "é", 50<<10, "\"}}\n\ndata: "+reply+"\n\n"))),
	at(call, Both, "progress-flood", tooLarge, "Reports the same progress ten thousand times and then answers.", works(repeated(200, kindStream, "", "data: "+progress("$PROGRESS", `"progress":1`)+"\n\n", 10_000, "data: "+reply+"\n\n"))),
	at(call, Both, "progress-for-ever", late, "Reports progress for ever.", works(drip(pace, okStream+"\r\n", "data: "+progress("$PROGRESS", `"progress":1`)+"\n\n"))),
}
