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
	"onbehalf.internal/broker/strictjson"
)

// What an answer may be, in bytes. One more is too much.
const (
	maxBody      = 2 << 20 // one JSON document: a body, or one event of a stream
	maxStream    = 8 << 20 // a stream, with everything on it that is not the answer
	maxErrorBody = 64 << 10
	maxEvents    = 1000 // of one stream
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

// readReply reads the answer to the request id from a response with status 200.
func readReply(resp *http.Response, id string) (reply, error) {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return reply{}, errMalformed // we asked for none; a packed body has no honest size
	}
	switch mediaType(resp.Header) {
	case "application/json":
		body, err := io.ReadAll(capped(resp.Body, maxBody))
		if err != nil {
			return reply{}, err
		}
		return parseReply(body, id)
	case "text/event-stream":
		return readStream(newEventReader(capped(resp.Body, maxStream)), id)
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

// readStream returns the first answer on a stream. It does not wait for the
// stream to end: a server may keep it open.
func readStream(events *eventReader, id string) (reply, error) {
	for range maxEvents {
		e, err := events.next()
		switch {
		case err == io.EOF:
			return reply{}, errEnded
		case err != nil:
			return reply{}, err
		case e.kind != "message" || passedOver(e.data):
			continue
		}
		answer, err := parseReply(e.data, id)
		if err == nil && anotherAnswer(events.rest()) {
			return reply{}, errMismatched
		}
		return answer, err
	}
	return reply{}, errTooLarge
}

// passedOver reports whether b is a message that needs nothing from us: a
// notification, or a ping. A ping wants an answer, but whoever asks whether we
// are there knows it when the operation ends.
func passedOver(b []byte) bool {
	m, err := strictjson.Members(b)
	if err != nil || !isVersion2(m) {
		return false
	}
	method, named := text(m["method"])
	_, wantsAnswer := m["id"]
	return named && (!wantsAnswer || method == "ping")
}

// anotherAnswer looks at what has already come in behind an answer. If there is
// one more, neither can be believed.
func anotherAnswer(events *eventReader) bool {
	for {
		e, err := events.next()
		if err != nil {
			return false
		}
		if e.kind == "message" && !passedOver(e.data) {
			return true
		}
	}
}

// parseReply reads one message, which must be the answer to the request id.
func parseReply(b []byte, id string) (reply, error) {
	m, err := strictjson.Members(b) // a batch is an array and refused here
	if err != nil || !isVersion2(m) {
		return reply{}, errMalformed
	}
	_, isMethod := m["method"]
	gotID, hasID := m["id"]
	result, hasResult := m["result"]
	raw, hasError := m["error"]
	switch {
	case isMethod && hasID:
		return reply{}, errAsked
	case isMethod || hasResult == hasError:
		return reply{}, errMalformed
	case string(gotID) != `"`+id+`"`:
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
	m, err := strictjson.Members(raw)
	if err != nil {
		return nil
	}
	code, err := strconv.ParseInt(string(m["code"]), 10, 64)
	if _, ok := text(m["message"]); err != nil || !ok {
		return nil
	}
	e := &rpcError{number: code, raw: raw}
	if data, err := strictjson.Members(m["data"]); err == nil {
		e.supported, _ = texts(data["supported"])
	}
	return e
}

// readErrorBody looks for a JSON-RPC error in the body of a bad status. The
// status comes first, so the id does not matter: servers that could not read a
// request have none to give.
func readErrorBody(resp *http.Response) *rpcError {
	if mediaType(resp.Header) != "application/json" {
		return nil
	}
	body, err := io.ReadAll(capped(resp.Body, maxErrorBody))
	if err != nil {
		return nil
	}
	m, err := strictjson.Members(body)
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
func capped(r io.Reader, limit int64) io.Reader {
	return io.MultiReader(io.LimitReader(r, limit), tooMuch{r})
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
