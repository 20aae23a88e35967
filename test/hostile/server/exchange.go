package server

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An exchange is one request and the way to answer it.
type exchange struct {
	server *Server
	run    *Run
	number int // of the request in its run

	id, previous, progress string // as they stand in JSON
	token                  string

	w http.ResponseWriter
	r *http.Request
}

// A step answers one request.
type step func(x *exchange)

// message is as much of a request as scripts need.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// fill puts what belongs to this request into a text of a script.
func (x *exchange) fill(text string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	escaped := ""
	for _, c := range []byte(x.token) {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	return strings.NewReplacer(
		"$ID", x.id, "$PREVIOUS", x.previous, "$PROGRESS", x.progress,
		"$ELSEWHERE", x.server.Elsewhere+"/"+x.run.behaviour.Name+"/"+x.run.name,
		"$NUMBER", strconv.Itoa(x.number),
		"$TOKEN_HEX", hex.EncodeToString([]byte(x.token)),
		"$TOKEN_UPPER", strings.ToUpper(hex.EncodeToString([]byte(x.token))),
		"$TOKEN_BASE64", base64.StdEncoding.EncodeToString([]byte("Bearer "+x.token+"\n")),
		"$TOKEN_URL64", base64.RawURLEncoding.EncodeToString([]byte(x.token)),
		"$TOKEN_ESCAPED", escaped,
		"$TOKEN", x.token,
	).Replace(text)
}

// pause waits, and reports whether the client is still there.
func (x *exchange) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.r.Context().Done():
		return false
	case <-x.server.closing:
		return false
	}
}

// take takes the connection over.
func (x *exchange) take() net.Conn {
	conn, _, err := x.w.(http.Hijacker).Hijack()
	if err != nil {
		panic("hostile: the connection cannot be taken over: " + err.Error())
	}
	return conn
}

const (
	kindJSON   = "application/json"
	kindStream = "text/event-stream"
)

// say answers with a status and a text; headers are names and values in turn.
func say(status int, kind, text string, headers ...string) step {
	return func(x *exchange) {
		x.head(status, kind, headers)
		io.WriteString(x.w, x.fill(text))
	}
}

func (x *exchange) head(status int, kind string, headers []string) {
	h := x.w.Header()
	h["Content-Type"] = nil // do not guess one
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], x.fill(headers[i+1]))
	}
	x.w.WriteHeader(status)
}

func body(text string) step { return say(200, kindJSON, text) }

func result(r string) step { return body(`{"jsonrpc":"2.0","id":$ID,"result":` + r + `}`) }

func errorInBody(e string) step { return body(`{"jsonrpc":"2.0","id":$ID,"error":` + e + `}`) }

// refuse answers with a bad status and an error code in the body.
func refuse(status, code int, data string) step {
	return say(status, kindJSON, fmt.Sprintf(`{"jsonrpc":"2.0","id":$ID,"error":{"code":%d,"message":"%s","data":%s}}`, code, Foreign, data))
}

// stream sends a text as it stands, as server-sent events.
func stream(text string) step { return say(200, kindStream, text) }

// events sends each message as an event.
func events(messages ...string) step {
	return stream("data: " + strings.Join(messages, "\n\ndata: ") + "\n\n")
}

// works has the tool run before the answer.
func works(s step) step {
	return func(x *exchange) {
		x.run.ranAt(x.number)
		s(x)
	}
}

// after answers when d has gone by, if the client still waits.
func after(d time.Duration, s step) step {
	return func(x *exchange) {
		if x.pause(d) {
			s(x)
		}
	}
}

// open begins an answer and never ends it.
func open(s step) step {
	return func(x *exchange) {
		s(x)
		x.w.(http.Flusher).Flush()
		silent(x)
	}
}

// then goes on with the same answer, d later.
func then(s step, d time.Duration, more string) step {
	return func(x *exchange) {
		s(x)
		x.w.(http.Flusher).Flush()
		if x.pause(d) {
			io.WriteString(x.w, x.fill(more))
		}
	}
}

// answered waits for the client's answers to n requests of the server in the
// middle of an answer.
func answered(s step, n int, more string) step {
	return func(x *exchange) {
		s(x)
		x.w.(http.Flusher).Flush()
		for range n {
			select {
			case <-x.run.answers:
			case <-x.r.Context().Done():
				return
			}
		}
		io.WriteString(x.w, x.fill(more))
	}
}

// silent says nothing until the client has gone.
func silent(x *exchange) {
	select {
	case <-x.r.Context().Done():
	case <-x.server.closing:
	}
}

const block = 32 << 10

// repeated sends first, n times unit and last; for n < 0 it does not end.
func repeated(status int, kind, first, unit string, n int, last string) step {
	return func(x *exchange) {
		x.head(status, kind, nil)
		io.WriteString(x.w, x.fill(first))
		unit := x.fill(unit)
		each := max(1, block/len(unit))
		piece := strings.Repeat(unit, each)
		for sent := 0; n < 0 || sent < n; sent += each {
			if n >= 0 && n-sent < each {
				piece = piece[:(n-sent)*len(unit)]
			}
			if _, err := io.WriteString(x.w, piece); err != nil {
				return
			}
		}
		io.WriteString(x.w, x.fill(last))
	}
}

// bytewise sends a text as server-sent events, one byte at a time.
func bytewise(text string) step {
	return func(x *exchange) {
		x.head(200, kindStream, nil)
		for _, b := range []byte(x.fill(text)) {
			x.w.Write([]byte{b})
			x.w.(http.Flusher).Flush()
		}
	}
}

// bomb sends what never ends and is a thousandth of its size on the wire.
func bomb(kind, encoding, first string) step {
	return func(x *exchange) {
		x.head(200, kind, []string{"Content-Encoding", encoding})
		packed, _ := gzip.NewWriterLevel(x.w, gzip.BestSpeed)
		io.WriteString(packed, x.fill(first))
		piece := make([]byte, block)
		for {
			if _, err := packed.Write(piece); err != nil {
				return
			}
		}
	}
}

// packed sends a text in gzip, and says so if encoding does.
func packed(status int, encoding, text string) step {
	return func(x *exchange) {
		var headers []string
		if encoding != "" {
			headers = []string{"Content-Encoding", encoding}
		}
		x.head(status, kindJSON, headers)
		w := gzip.NewWriter(x.w)
		io.WriteString(w, x.fill(text))
		w.Close()
	}
}
