package mcpclient

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// JSON-RPC error codes that have a meaning here.
const (
	codeParse      = -32700
	codeRequest    = -32600
	codeMethod     = -32601
	codeParams     = -32602
	codeHeader     = -32020 // HeaderMismatch
	codeCapability = -32021 // MissingRequiredClientCapability
	codeVersion    = -32022 // UnsupportedProtocolVersion
)

// maxPingID bounds the id of a server's ping, which we have to send back.
const maxPingID = 256

// A reply is the answer to one request: exactly one field is set.
type reply struct {
	result strictjson.Raw // an object
	rpc    *rpcError
}

// An rpcError is a JSON-RPC error. The server's words are only in raw.
type rpcError struct {
	number    int64
	supported []string // protocol versions, in -32022
	raw       strictjson.Raw
}

// code is 0 where there is no error.
func (e *rpcError) code() int64 {
	if e == nil {
		return 0
	}
	return e.number
}

var (
	errMalformed  = fault.New("mcpclient.readReply", fault.ReplyMalformed, "")
	errMismatched = fault.New("mcpclient.readReply", fault.ReplyMismatched, "")
	errTooLarge   = fault.New("mcpclient.readReply", fault.ReplyTooLarge, "")
	errAsked      = fault.New("mcpclient.readReply", fault.ServerAsked, "")
	errEnded      = fault.New("mcpclient.readReply", fault.StreamEnded, "")
)

// A question is what an answer is held against.
type question struct {
	id     strictjson.Raw // as it was sent
	limits policy.Limits
	ping   func(id strictjson.Raw)           // takes a server's ping; nil: it may not ask
	note   func(m map[string]strictjson.Raw) // takes a notification; nil: nobody wants it
}

// readReply reads the answer to q from a response with status 200.
func readReply(h http.Header, body io.Reader, q question) (reply, error) {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return reply{}, errMalformed // we asked for none; a packed body has no honest size
	}
	switch mediaType(h) {
	case "application/json":
		b, err := io.ReadAll(capped(body, q.limits.Body))
		if err != nil {
			return reply{}, err
		}
		return q.answer(b)
	case "text/event-stream":
		return q.read(newEventReader(capped(body, q.limits.Stream), q.limits.Event))
	}
	return reply{}, errMalformed
}

// mediaType returns the type of a body in UTF-8, else "".
func mediaType(h http.Header) string {
	kind, options, err := mime.ParseMediaType(h.Get("Content-Type"))
	if charset, ok := options["charset"]; err != nil || ok && !strings.EqualFold(charset, "utf-8") {
		return ""
	}
	return kind
}

// read returns the first answer on a stream. It does not wait for the stream to
// end: a server may keep it open.
func (q question) read(events *eventReader) (reply, error) {
	for range q.limits.Events {
		e, err := events.next()
		switch {
		case err == io.EOF:
			return reply{}, errEnded
		case err != nil:
			return reply{}, err
		case e.kind != "message":
			continue
		}
		answer, besides, err := q.judge(e.data)
		switch {
		case besides:
			continue
		case err == nil && q.anotherAnswer(events.rest()):
			return reply{}, errMismatched
		}
		return answer, err
	}
	return reply{}, errTooLarge
}

// anotherAnswer looks at what has already come in behind an answer. If there is
// one more, neither can be believed.
func (q question) anotherAnswer(events *eventReader) bool {
	q.note = nil
	if q.ping != nil {
		q.ping = func(strictjson.Raw) {} // nobody waits for an answer of ours any more
	}
	for {
		e, err := events.next()
		if err != nil {
			return false
		}
		if e.kind != "message" {
			continue
		}
		if _, besides, _ := q.judge(e.data); !besides {
			return true
		}
	}
}

// answer reads a body, which must be the answer and nothing else.
func (q question) answer(b []byte) (reply, error) {
	q.note, q.ping = nil, nil
	answer, besides, err := q.judge(b)
	if besides {
		return reply{}, errMalformed
	}
	return answer, err
}

// judge reads one message: it is besides the matter, or it is the answer to q.
func (q question) judge(b []byte) (_ reply, besides bool, _ error) {
	m, err := strictjson.MembersWithin(b, q.limits.Depth) // a batch is an array and refused here
	if err != nil || !isVersion2(m) {
		return reply{}, false, errMalformed
	}
	if method, ok := m["method"]; ok {
		besides, err = q.hear(string(method), m)
		return reply{}, besides, err
	}
	answer, err := q.match(m)
	return answer, false, err
}

// hear takes a message of the server's own: a notification, or a ping where it
// may ask. Any other request is one that no capability of ours allows.
func (q question) hear(method string, m map[string]strictjson.Raw) (besides bool, _ error) {
	id, wantsAnswer := m["id"]
	switch {
	case method[0] != '"':
		return false, errMalformed
	case !wantsAnswer:
		if q.note != nil {
			q.note(m)
		}
		return true, nil
	case method != `"ping"` || q.ping == nil:
		return false, errAsked
	case len(id) > maxPingID || id.Kind() != '"' && id.Kind() != '0':
		return false, errMalformed
	}
	q.ping(id)
	return true, nil
}

// match holds m, which is no request, against q.
func (q question) match(m map[string]strictjson.Raw) (reply, error) {
	result, hasResult := m["result"]
	raw, hasError := m["error"]
	switch {
	case hasResult == hasError:
		return reply{}, errMalformed
	case string(m["id"]) != string(q.id):
		return reply{}, errMismatched // 1 is not "1", and null is nobody's
	case hasError:
		e := parseError(raw)
		if e == nil {
			return reply{}, errMalformed
		}
		return reply{rpc: e}, nil
	case result[0] != '{':
		return reply{}, errMalformed
	}
	return reply{result: result}, nil
}

func isVersion2(m map[string]strictjson.Raw) bool { return string(m["jsonrpc"]) == `"2.0"` }

// parseError returns nil for what is not a JSON-RPC error object.
func parseError(raw strictjson.Raw) *rpcError {
	m := strictjson.Parts(raw)
	code, err := strconv.ParseInt(string(m["code"]), 10, 64)
	if _, ok := text(m["message"]); err != nil || !ok {
		return nil
	}
	e := &rpcError{number: code, raw: raw}
	if supported, ok := texts(strictjson.Parts(m["data"])["supported"]); ok {
		e.supported = supported
	}
	return e
}

// readErrorBody looks for a JSON-RPC error in the body of a bad status. The
// status comes first, so the id does not matter: servers that could not read a
// request have none to give.
func readErrorBody(h http.Header, body io.Reader, l policy.Limits) *rpcError {
	if mediaType(h) != "application/json" {
		return nil
	}
	b, err := io.ReadAll(capped(body, l.ErrorBody))
	if err != nil {
		return nil
	}
	m, err := strictjson.MembersWithin(b, l.Depth)
	if err != nil || !isVersion2(m) {
		return nil
	}
	return parseError(m["error"])
}

// text returns the string that raw is.
func text(raw strictjson.Raw) (s string, ok bool) {
	return s, bytes.HasPrefix(raw, []byte(`"`)) && json.Unmarshal(raw, &s) == nil
}

// texts returns the strings in the array that raw is.
func texts(raw strictjson.Raw) ([]string, bool) {
	var all []string
	items, ok := elements(raw)
	for _, item := range items {
		s, isText := text(item)
		all, ok = append(all, s), ok && isText
	}
	return all, ok
}

// elements returns the elements of the array that raw is, byte for byte.
func elements(raw strictjson.Raw) (all []strictjson.Raw, ok bool) {
	return all, bytes.HasPrefix(raw, []byte("[")) && json.Unmarshal(raw, &all) == nil
}

// capped returns a reader that fails with reply_too_large instead of reading
// byte limit+1.
func capped(r io.Reader, limit int) io.Reader {
	return io.MultiReader(io.LimitReader(r, int64(limit)), tooMuch{r})
}

type tooMuch struct{ r io.Reader }

func (t tooMuch) Read([]byte) (int, error) {
	var one [1]byte
	n, err := io.ReadFull(t.r, one[:])
	if n == 1 {
		return 0, errTooLarge
	}
	return 0, err
}
