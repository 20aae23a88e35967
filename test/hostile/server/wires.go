package server

import (
	"fmt"
	"strings"
)

// wires break HTTP, or the connection under it.
var wires = []Behaviour{
	at(call, Both, "never-answers", late, "Runs the tool and says nothing.", works(silent)),
	at(call, Both, "answers-late", late, "Runs the tool and answers when the deadline has passed.", works(after(100*pace, result(good)))),
	at(call, Both, "closes-at-once", lost, "Closes the connection without a byte.", works(raw("", closes))),
	at(call, Both, "resets-at-once", lost, "Resets the connection without a byte.", works(raw("", resets))),
	at(call, Both, "half-head-closes", lost, "Closes the connection in the head.", works(raw("HTTP/1.1 200 OK\r\nContent-", closes))),
	at(call, Both, "half-head-resets", lost, "Resets the connection in the head.", works(raw("HTTP/1.1 200 OK\r\nContent-", resets))),
	at(call, Both, "half-head-stays", late, "Falls silent in the head.", works(raw("HTTP/1.1 200 OK\r\nContent-", stays))),
	at(call, Both, "half-status-line-stays", late, "Falls silent in the status line.", works(raw("HTTP/1.1 2", stays))),
	at(call, Both, "head-only-closes", lost, "Closes the connection behind the head.", works(raw(okJSON+"Content-Length: 9\r\n\r\n", closes))),
	at(call, Both, "half-body-closes", lost, "Closes the connection in the body.", works(mismeasured(+9, closes))),
	at(call, Both, "half-body-resets", lost, "Resets the connection in the body.", works(mismeasured(+9, resets))),
	at(call, Both, "half-body-stays", late, "Falls silent in the body.", works(mismeasured(+9, stays))),
	at(call, Both, "half-chunk-closes", lost, "Closes the connection in a chunk.", works(raw(okJSON+inChunks+"\r\nff\r\n{\"jsonrpc\"", closes))),
	at(call, Both, "last-chunk-missing", lost, "Closes the connection where the last chunk should be.", works(raw(okJSON+inChunks+"\r\n2\r\n{}\r\n", closes))),
	at(call, Both, "drips-head", late, "Sends a head that never ends, byte by byte.", works(drip(pace, "HTTP/1.1 200 OK\r\nX: ", "x"))),
	at(call, Both, "drips-body", late, "Sends a body that never ends, byte by byte.", works(drip(pace, okJSON+"Content-Length: 9999\r\n\r\n", " "))),
	at(call, Both, "drips-chunks", late, "Sends chunks of one byte without an end.", works(drip(pace, okJSON+inChunks+"\r\n", "1\r\n \r\n"))),
	at(call, Both, "drips-error-body", between, "Says 502 and sends the body byte by byte.", works(drip(pace, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n", " "))),
	at(call, Both, "drips-interim-answers", late, "Sends nothing but half an interim answer, byte by byte.", works(drip(pace, "HTTP/1.1 103 Early Hints\r\nLink: ", "x"))),

	at(call, Both, "length-too-short", malformed, "Gives a Content-Length that cuts the answer.", works(mismeasured(-1, closes))),
	at(call, Both, "length-twice", malformed, "Gives two lengths that differ.", works(measured(okJSON+"Content-Length: 3\r\n", reply, "", closes))),
	at(call, Both, "length-signed", malformed, "Gives a length with a sign.", works(raw(okJSON+"Content-Length: +9\r\n\r\n{}       ", closes))),
	at(call, Both, "length-in-hex", malformed, "Gives a length in hex.", works(raw(okJSON+"Content-Length: 0x2\r\n\r\n{}", closes))),
	at(call, Both, "length-negative", malformed, "Gives a negative length.", works(raw(okJSON+"Content-Length: -1\r\n\r\n"+reply, closes))),
	at(call, Both, "length-huge", tooLarge, "Promises 9 exabytes and begins to send them.", works(flood(okJSON+"Content-Length: 9223372036854775807\r\n\r\n", " "))),
	at(call, Both, "transfer-gzip", malformed, "Uses a transfer encoding that nobody offered.", works(raw(okJSON+"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", closes))),
	at(call, Both, "chunk-size-huge", malformed, "Announces a chunk larger than 64 bits can say.", works(raw(okJSON+inChunks+"\r\nFFFFFFFFFFFFFFFFF\r\n{", closes))),
	at(call, Both, "chunk-size-negative", malformed, "Announces a chunk of negative size.", works(raw(okJSON+inChunks+"\r\n-1\r\n{", closes))),
	at(call, Both, "chunk-size-empty", malformed, "Announces a chunk without a size.", works(raw(okJSON+inChunks+"\r\n\r\n{", closes))),
	at(call, Both, "chunk-without-an-end", malformed, "Sends a chunk longer than it said.", works(raw(okJSON+inChunks+"\r\n2\r\n{}{}\r\n0\r\n\r\n", closes))),
	at(call, Both, "chunk-extension-flood", malformed, "Sends bytes in chunks with a thousand times as much beside them.", works(flood(okJSON+inChunks+"\r\n", "1;"+strings.Repeat("x", 1000)+"\r\n \r\n"))),
	at(call, Both, "chunk-extension-endless", malformed, "Sends a chunk extension that does not end.", works(flood(okJSON+inChunks+"\r\n1;", "x"))),
	at(call, Both, "trailer-flood", malformed, "Sends the whole answer and then trailer fields without an end.", works(trailerFlood)),

	at(call, Both, "head-too-large", tooLarge, "Sends a header of more than 64 KiB.", works(measured(okJSON+"X: "+strings.Repeat("x", 65<<10)+"\r\n", reply, "", closes))),
	at(call, Both, "head-endless-lines", tooLarge, "Sends header lines without an end.", works(flood(okJSON, "X: y\r\n"))),
	at(call, Both, "head-endless-line", tooLarge, "Sends a header line without an end.", works(flood(okJSON+"X: ", "x"))),
	at(call, Both, "status-line-endless", tooLarge, "Sends a status line without an end.", works(flood("HTTP/1.1 200 ", "x"))),
	at(call, Both, "interim-flood", malformed, "Sends interim answers without an end.", works(flood("", "HTTP/1.1 103 Early Hints\r\n\r\n"))),
	at(call, Both, "interim-large", tooLarge, "Sends interim answers with large heads.", works(flood("", "HTTP/1.1 103 Early Hints\r\nX: "+strings.Repeat("x", 30<<10)+"\r\n\r\n"))),
	at(call, Both, "header-without-colon", malformed, "Sends a header line without a colon.", works(measured(okJSON+"no colon here\r\n", reply, "", closes))),
	at(call, Both, "header-not-ascii", malformed, "Sends a header name that is not ASCII.", works(measured(okJSON+"X-\xc3\xa9: a\r\n", reply, "", closes))),
	at(call, Both, "not-http", malformed, "Speaks SSH.", works(raw("SSH-2.0-OpenSSH_9.9\r\n\r\n", stays))),
	at(call, Both, "http-0.9", malformed, "Answers with the body alone.", works(raw(reply+"\r\n\r\n", closes))),
	at(call, Both, "http-2", malformed, "Calls itself HTTP/2.0.", works(measured("HTTP/2.0 200 OK\r\nContent-Type: application/json\r\n", reply, "", closes))),
	at(call, Both, "http-2-frames", malformed, "Answers in HTTP/2 frames.", works(raw("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00\r\n\r\n", closes))),
	at(call, Both, "tls-alert", malformed, "Answers with a TLS alert.", works(raw("\x15\x03\x01\x00\x02\x02\x46\r\n\r\n", closes))),
	at(call, Both, "echoes-the-request", malformed, "Sends back a request in place of an answer.", works(raw("POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer $TOKEN\r\n\r\n", closes))),
	at(call, Modern, "unread-413", "refused: status refused", "Says 413 without reading the body, and closes.", say(413, "", "", "Connection", "close")).notReading(),
	at(call, Modern, "unread-silence", late, "Neither reads the body nor says anything.", raw("", deaf)).notReading(),

	at(call, Both, "packed-bomb", malformed, "Sends gzip that unpacks to a thousand times its size.", works(bomb(kindJSON, "gzip", ""))),
	at(call, Both, "packed-bomb-stream", malformed, "Sends an event in gzip that unpacks to a thousand times its size.", works(bomb(kindStream, "gzip", "data: "))),
	at(call, Both, "packed-answer", malformed, "Sends a good answer in gzip, unasked.", works(packed(200, "gzip", reply))),
	at(call, Both, "packed-in-secret", malformed, "Sends a good answer in gzip and does not say so.", works(packed(200, "", reply))),
	at(call, Both, "packed-brotli", malformed, "Says that the body is in br.", works(say(200, kindJSON, reply, "Content-Encoding", "br"))),
	at(call, Both, "packed-twice", malformed, "Says that the body is in identity and gzip.", works(say(200, kindJSON, reply, "Content-Encoding", "identity, gzip"))),

	at(call, Both, "body-endless", tooLarge, "Sends a JSON body without an end.", works(repeated(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"x":"`, "x", -1, ""))),
	at(call, Both, "body-endless-space", tooLarge, "Sends white space without an end behind the answer.", works(repeated(200, kindJSON, reply, " ", -1, ""))),
	at(call, Both, "body-of-64-mebibyte", tooLarge, "Sends a good answer of 64 MiB.", works(repeated(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[],"x":"`, "x", 64<<20, `"}}`))),
	at(call, Both, "body-empty", malformed, "Says 200 with an empty body.", works(body(""))),
	at(call, Both, "no-media-type", malformed, "Names no media type.", works(say(200, "", reply))),
	at(call, Both, "media-type-html", malformed, "Calls the answer HTML.", works(say(200, "text/html", reply))),
	at(call, Both, "media-type-text", malformed, "Calls the answer plain text.", works(say(200, "text/plain; charset=utf-8", reply))),
	at(call, Both, "media-type-broken", malformed, "Names a media type that cannot be read.", works(say(200, "application/json; charset", reply))),
	at(call, Both, "charset-utf-16", malformed, "Names another charset.", works(say(200, "application/json; charset=utf-16", reply))),
	at(call, Both, "charset-twice", malformed, "Names two charsets.", works(say(200, "application/json; charset=utf-8; charset=utf-7", reply))),
}

// trailerFlood sends the whole answer, and then its last chunk does not end.
func trailerFlood(x *exchange) {
	b := x.fill(reply)
	flood(fmt.Sprintf("%s%s\r\n%x\r\n%s\r\n0\r\n", okJSON, inChunks, len(b), b), "X: y\r\n")(x)
}

func (b Behaviour) notReading() Behaviour {
	b.unread = true
	return b
}
