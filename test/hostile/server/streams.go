package server

import "strings"

const note = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + Foreign + `"}}`

// streams break the framing of server-sent events, or their number.
var streams = []Behaviour{
	at(call, Both, "stream-silent", late, "Opens a stream and says nothing.", works(open(stream("")))),
	at(call, Both, "stream-heartbeats", late, "Sends comments for ever.", works(drip(pace, okStream+"\r\n", ": \n\n"))),
	at(call, Both, "stream-notifications-for-ever", late, "Sends a notification every moment, for ever.", works(drip(pace, okStream+"\r\n", "data: "+note+"\n\n"))),
	at(call, Both, "stream-never-dispatched", late, "Sends the answer without the blank line, and keeps the stream open.", works(open(stream("data: "+reply+"\n")))),
	at(call, Both, "stream-drips-the-answer", late, "Sends the answer too slowly.", works(drip(pace, okStream+"\r\ndata: {\"jsonrpc\":\"2.0\",\"x\":\"", "x"))),
	at(call, Both, "stream-ends-empty", ended, "Ends the stream without an event.", works(stream(""))),
	at(call, Both, "stream-ends-after-a-note", ended, "Ends the stream behind a notification.", works(events(note))),
	at(call, Both, "stream-ends-after-progress", ended, "Reports progress and ends the stream.", works(events(progress("$PROGRESS", `"progress":1`)))),
	at(call, Both, "stream-cut-after-progress", lost, "Reports progress and resets the connection.", works(raw(okStream+"\r\ndata: "+progress("$PROGRESS", `"progress":1`)+"\n\n", resets))),
	at(call, Both, "stream-ends-to-be-resumed", ended, "Ends the stream behind an id and a retry time, to be asked again.", works(stream("id: 7\nretry: 10\ndata:\n\n"))),
	at(call, Both, "stream-ends-undispatched", ended, "Ends the stream without the blank line behind the answer.", works(stream("data: "+reply+"\n"))),
	at(call, Both, "stream-cut", lost, "Closes the connection in an event.", works(raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+inChunks+"\r\n6\r\ndata: \r\n", closes))),
	at(call, Both, "stream-reset", lost, "Resets the connection in an event.", works(raw(okStream+"\r\ndata: {", resets))),
	at(call, Both, "stream-endless-line", tooLarge, "Sends a data line without an end.", works(repeated(200, kindStream, "data: ", "x", -1, ""))),
	at(call, Both, "stream-endless-event", tooLarge, "Sends data lines without an end.", works(repeated(200, kindStream, "", "data: x\n", -1, ""))),
	at(call, Both, "stream-endless-field-name", tooLarge, "Sends a field name without an end.", works(repeated(200, kindStream, "", "x", -1, ""))),
	at(call, Both, "stream-endless-comments", tooLarge, "Sends comments as fast as it can.", works(repeated(200, kindStream, "", ": "+strings.Repeat("x", 1000)+"\n", -1, ""))),
	at(call, Both, "stream-endless-blank-lines", tooLarge, "Sends blank lines as fast as it can.", works(repeated(200, kindStream, "", "\n", -1, ""))),
	at(call, Both, "stream-10000-notifications", tooLarge, "Sends ten thousand notifications and then the answer.", works(repeated(200, kindStream, "", "data: "+note+"\n\n", 10_000, "data: "+reply+"\n\n"))),
	at(call, Both, "stream-10000-other-events", tooLarge, "Sends ten thousand events of another kind and then the answer.", works(repeated(200, kindStream, "", "event: tick\ndata: 1\n\n", 10_000, "data: "+reply+"\n\n"))),
	at(call, Both, "stream-not-json", malformed, "Sends an event that is not JSON.", works(events("<html>"+Foreign, reply))),
	at(call, Both, "stream-heartbeat-in-json", malformed, "Sends a heartbeat that is JSON and no message.", works(events(`{"heartbeat":1}`, reply))),
	at(call, Both, "stream-batch", malformed, "Sends the answer in a batch.", works(events("["+reply+"]"))),
	at(call, Both, "stream-two-on-one-event", malformed, "Sends two answers in one event.", works(stream("data: "+reply+"\ndata: "+reply+"\n\n"))),
	at(call, Both, "stream-byte-order-mark-twice", ended, "Begins a stream with two byte order marks, of which one belongs to the field name.", works(stream("\ufeff\ufeffdata: "+reply+"\n\n"))),
	at(call, Both, "stream-two-spaces-and-nul", malformed, "Puts NUL into the data.", works(stream("data:  \x00"+reply+"\n\n"))),
}
