package server

import (
	"strings"
	"time"
)

const pace = 20 * time.Millisecond // between what comes bit by bit

// allowed are odd, and right: a client that refuses them is too strict.
var allowed = []Behaviour{
	at(call, Both, "plain", succeeded, "Answers as its revision says, in JSON.", works(result(good))),
	at(call, Both, "stream", succeeded, "Answers on a stream that ends.", works(events(reply))),
	at(call, Both, "stream-crlf", succeeded, "Ends the lines of a stream in CRLF, as Python servers do.", works(stream("event: message\r\ndata: "+reply+"\r\n\r\n"))),
	at(call, Both, "stream-cr", succeeded, "Ends the lines of a stream in CR.", works(stream("event: message\rdata: "+reply+"\r\r"))),
	at(call, Both, "stream-mixed-line-ends", succeeded, "Ends the lines of a stream each in another way.", works(stream(": a\r\n: b\r: c\ndata: "+reply+"\r\n\r"))),
	at(call, Both, "stream-byte-order-mark", succeeded, "Begins a stream with a byte order mark.", works(stream("\ufeffdata: "+reply+"\n\n"))),
	at(call, Both, "stream-byte-by-byte", succeeded, "Sends a stream one byte at a time.", works(bytewise("\ufeffevent: message\r\ndata: "+reply+"\r\n\r\n"))),
	at(call, Both, "stream-answer-on-many-lines", succeeded, "Spreads the answer over several data lines.", works(stream("data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":$ID,\ndata:\ndata: \"result\":"+good+"\ndata: }\n\n"))),
	at(call, Both, "stream-no-space", succeeded, "Puts no space behind the colon.", works(stream("data:"+reply+"\n\n"))),
	at(call, Both, "stream-odd-fields", succeeded, "Mixes in comments, unknown fields, lines without a colon, a retry time and an id with NUL.", works(stream(":\n: hi\nfoo: bar\nno colon here\nretry: 5x\nid: a\x00b\ndata: "+reply+"\n\n"))),
	at(call, Both, "stream-priming-event", succeeded, "Sends an event with an id and no data first.", works(stream("id: 1\ndata:\n\nid: 2\ndata: "+reply+"\n\n"))),
	at(call, Both, "stream-other-kinds", succeeded, "Sends events of other kinds, with data that is no message.", works(stream("event: keepalive\ndata: {}\n\nevent: endpoint\ndata: /messages\n\nevent: message\ndata: "+reply+"\n\n"))),
	at(call, Both, "stream-stays-open", succeeded, "Answers on a stream and never ends it.", works(open(events(reply)))),
	at(call, Both, "second-answer-late", succeeded, "Answers on a stream, and again a moment later.", works(then(events(reply), 10*pace, "data: "+reply+"\n\n"))),
	at(call, Both, "late-but-in-time", succeeded, "Thinks for a while.", works(after(5*pace, result(good)))),
	at(call, Both, "charset-utf-8", succeeded, "Names the charset UTF-8.", works(say(200, "application/json; charset=UTF-8", reply))),
	at(call, Both, "media-type-in-capitals", succeeded, "Writes the media type in capitals.", works(say(200, "Application/JSON", reply))),
	at(call, Both, "encoding-identity", succeeded, "Says that the body is not encoded.", works(say(200, kindJSON, reply, "Content-Encoding", "identity"))),
	at(call, Both, "members-in-another-order", succeeded, "Puts the id last, and white space between.", works(body(" {\r\n\t\"result\" : "+good+" , \"id\" : $ID , \"jsonrpc\" : \"2.0\" } \n"))),
	at(call, Both, "members-besides", succeeded, "Adds a member to the message that nobody knows.", works(body(`{"jsonrpc":"2.0","id":$ID,"result":`+good+`,"_elapsed":3}`))),
	at(call, Both, "no-result-type", succeeded, "Leaves resultType out, as older servers do.", works(result(`{"content":[{"type":"text","text":"ok"}]}`))),
	at(call, Both, "huge-numbers", succeeded, "Sends numbers that fit no machine type.", works(result(`{"resultType":"complete","content":[],"structuredContent":{"a":1e400,"b":-0.0,"c":`+strings.Repeat("9", 400)+`}}`))),
	at(call, Both, "escaped-nul", succeeded, "Sends an escaped NUL in a string.", works(result(`{"resultType":"complete","content":[{"type":"text","text":"a\u0000b"}]}`))),
	at(call, Both, "terminal-escapes", succeeded, "Sends ANSI escapes, line breaks and bidi marks in a string.", works(result(`{"resultType":"complete","content":[{"type":"text","text":"\u001b[31m\r\n\u202e\u2028"}]}`))),
	at(call, Both, "one-mebibyte", succeeded, "Sends a large answer.", works(repeated(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[{"type":"text","text":"`, "x", 1<<20, `"}]}}`))),
	at(call, Both, "http-1.0", succeeded, "Speaks HTTP/1.0 and ends the body with the connection.", works(raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"+reply, closes))),
	at(call, Both, "ends-with-the-connection", succeeded, "Gives no length and ends the body with the connection.", works(raw(okJSON+"\r\n"+reply, closes))),
	at(call, Both, "interim-answers", succeeded, "Sends 100 and two 103 before the answer.", works(measured("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <$ELSEWHERE>; rel=preload\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"+okJSON, reply, "", closes))),
	at(call, Both, "reason-phrase", succeeded, "Says something of its own behind 200.", works(measured("HTTP/1.1 200 "+Foreign+"\r\nContent-Type: application/json\r\nConnection: close\r\n", reply, "", closes))),
	at(call, Both, "folded-header", succeeded, "Breaks a header over two lines, as was allowed once.", works(measured(okJSON+"X-Folded: a\r\n b\r\n", reply, "", closes))),
	at(call, Both, "chunks-of-one-byte", succeeded, "Sends chunks of one byte.", works(chunked(okJSON, 1, "", ""))),
	at(call, Both, "chunk-extensions", succeeded, "Puts an extension behind each chunk size.", works(chunked(okJSON, 32, ";a=b", ""))),
	at(call, Both, "trailers", succeeded, "Sends trailer fields, one of them named like a header that decides.", works(chunked(okJSON+"Trailer: X-Digest\r\n", 64, "", "X-Digest: 1\r\nContent-Encoding: gzip\r\n"))),
	at(call, Both, "length-and-chunks", succeeded, "Gives a Content-Length besides chunks, which override it.", works(chunked(okJSON+"Content-Length: 7\r\n", 64, "", ""))),
	at(call, Both, "junk-behind-the-answer", succeeded, "Sends a whole second HTTP answer behind the first.", works(measured(keptJSON, reply, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", stays))),
	at(call, Both, "tool-error", "tool error: tool failed", "Says that the tool ran and failed.", works(result(`{"resultType":"complete","isError":true,"content":[{"type":"text","text":"no"}]}`))),
	at(initialize, Legacy, "connection-close-each-time", succeeded, "Closes the connection after each answer, and says so.",
		say(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":`+greeting+`}`, "Mcp-Session-Id", session, "Connection", "close")).
		with(initialized, say(202, "", "", "Connection", "close")).
		with(call, works(say(200, kindJSON, reply, "Connection", "close"))),
	at(initialize, Legacy, "unasked-408", succeeded, "Answers 408 to nothing behind its first answer, as proxies do before they close.",
		measured(keptJSON+"Mcp-Session-Id: "+session+"\r\n", `{"jsonrpc":"2.0","id":$ID,"result":`+greeting+`}`, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", closes)),
}
