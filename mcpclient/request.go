package mcpclient

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
	"onbehalf.internal/broker/trace"
)

// The methods we send. They name the legs, too.
const (
	methodDiscover    = "server/discover"
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodList        = "tools/list"
	methodCall        = "tools/call"
	methodCancelled   = "notifications/cancelled"

	methodPing   = "ping"   // our answer to one
	methodDelete = "delete" // not JSON-RPC: the end of a session is an HTTP method
)

// maxCredential is far above any token that a server's header limit lets through.
const maxCredential = 16 << 10

// A message is one message of ours, before it has an id.
type message struct {
	method        string
	name          string // the tool, for Mcp-Name
	mirrored      []header
	params        params
	meta          map[string]string // what _meta says besides
	wantsProgress bool
	notification  bool           // it has no id and no answer
	answers       strictjson.Raw // the id of a request of the server's that it answers; nil: it answers none
	place         trace.Context  // in a trace, as the server is told; zero: it is told none
}

// params are all parameters that we ever send.
type params struct {
	Name            string          `json:"name,omitempty"`
	Arguments       strictjson.Raw  `json:"arguments,omitempty"`
	Cursor          *string         `json:"cursor,omitempty"` // "" is a cursor
	RequestID       strictjson.Raw  `json:"requestId,omitempty"`
	Reason          string          `json:"reason,omitempty"`
	ProtocolVersion string          `json:"protocolVersion,omitempty"`
	Capabilities    *struct{}       `json:"capabilities,omitempty"`
	ClientInfo      *implementation `json:"clientInfo,omitempty"`
	Meta            strictjson.Raw  `json:"_meta,omitempty"`
}

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// meta says with every request of the stateless era what the handshake said
// once before. No capability is declared: a server may ask us for nothing.
type meta struct {
	Version       string          `json:"io.modelcontextprotocol/protocolVersion,omitempty"`
	Capabilities  *struct{}       `json:"io.modelcontextprotocol/clientCapabilities,omitempty"`
	Client        *implementation `json:"io.modelcontextprotocol/clientInfo,omitempty"`
	ProgressToken strictjson.Raw  `json:"progressToken,omitempty"`
	TraceParent   string          `json:"traceparent,omitempty"`
	TraceState    string          `json:"tracestate,omitempty"`
}

// placeOf is where in a trace the leg of m stands. A server of the modern era is told
// so in _meta, under names without a prefix (SEP-414, in 2026-07-28). One whose era is
// not known yet, and one of the legacy era, is told nothing.
func (c *Conversation) placeOf(m message) trace.Context {
	if c.call.Trace.IsZero() || c.speaks.era != policy.EraModern || m.method == methodDiscover {
		return trace.Context{}
	}
	return c.call.Trace.Child()
}

// newRequest puts m and the credential into one HTTP request and returns the id.
func (c *Conversation) newRequest(m message, cred Credential) (_ *http.Request, id strictjson.Raw, _ error) {
	verb, body := http.MethodPost, io.Reader(nil)
	switch {
	case m.method == methodDelete:
		verb = http.MethodDelete
	case m.answers != nil:
		body = strings.NewReader(`{"jsonrpc":"2.0","id":` + string(m.answers) + `,"result":{}}`)
	default:
		if !m.notification {
			id = c.ids.next()
		}
		body = c.encode(m, id)
	}
	req, err := http.NewRequest(verb, c.server.URL.String(), body)
	if err != nil {
		panic("broker: internal error: a server's URL makes no request")
	}
	c.setHeaders(req.Header, m)
	return req, id, cred.put(req.Header)
}

func (c *Conversation) encode(m message, id strictjson.Raw) *bytes.Buffer {
	m.params.Meta = c.meta(m, id)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // arguments go out as they came in
	if err := e.Encode(struct {
		JSONRPC string         `json:"jsonrpc"`
		ID      strictjson.Raw `json:"id,omitempty"`
		Method  string         `json:"method"`
		Params  params         `json:"params"`
	}{"2.0", id, m.method, m.params}); err != nil {
		panic("broker: internal error: a message of ours is not JSON")
	}
	return &b
}

// meta is the _meta of m; nil for none.
func (c *Conversation) meta(m message, id strictjson.Raw) strictjson.Raw {
	var said meta
	if c.speaks.era == policy.EraModern {
		said = meta{Version: c.speaks.version, Capabilities: &struct{}{}, Client: c.client.implementation()}
	}
	if m.wantsProgress {
		said.ProgressToken = id
	}
	if !m.place.IsZero() { // only in the modern era, see placeOf
		said.TraceParent, said.TraceState = m.place.Parent(), m.place.State
	}
	if said.Version == "" && said.ProgressToken == nil && m.meta == nil {
		return nil
	}
	raw, err := json.Marshal(said)
	for _, name := range slices.Sorted(maps.Keys(m.meta)) {
		if err == nil {
			raw, err = strictjson.With(raw, name, m.meta[name])
		}
	}
	if err != nil {
		panic("broker: internal error: a _meta of ours is not JSON, or has a name twice")
	}
	return raw
}

func (c *Conversation) setHeaders(h http.Header, m message) {
	if m.method != methodDelete {
		h.Set("Content-Type", "application/json") // bare: some servers answer 415 to a charset
	}
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("User-Agent", c.client.conf.Name+"/"+c.client.conf.Version)
	if c.speaks.version != "" {
		h.Set("Mcp-Protocol-Version", c.speaks.version)
	}
	if c.session != "" {
		h.Set("Mcp-Session-Id", c.session)
	}
	if c.speaks.era == policy.EraModern {
		h.Set("Mcp-Method", m.method)
		if m.name != "" {
			h.Set("Mcp-Name", headerValue(m.name))
		}
		for _, mirrored := range m.mirrored {
			h.Set(mirrored.name, headerValue(mirrored.value))
		}
	}
}

func (c *Client) implementation() *implementation {
	return &implementation{c.conf.Name, c.conf.Version}
}

// put writes the credential into h. It refuses one that is not one line of
// visible characters, which could end the header and begin another, and a
// header that the protocol uses.
func (cred Credential) put(h http.Header) error {
	value := cred.Value.Reveal()
	switch {
	case cred.Header == "" && value == "":
		return nil
	case cred.Header == "", h.Get(cred.Header) != "", len(value) > maxCredential, !visible(value):
		return fault.New("mcpclient.put", fault.CredentialRejected, "")
	case http.CanonicalHeaderKey(cred.Header) == "Authorization":
		value = "Bearer " + value // RFC 6750 §2.1
	}
	h.Set(cred.Header, value)
	return nil
}

// visible reports whether s is one or more of the characters 0x21 to 0x7E.
func visible(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// headerValue writes a name so that a header can carry it (2026-07-28, Streamable
// HTTP, "Value Encoding"): as it is if it is visible ASCII with inner spaces, else in
// base64. What begins like the encoded form is encoded as well.
func headerValue(s string) string {
	const begin, end = "=?base64?", "?="
	plain := !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
	if plain && s == strings.TrimSpace(s) && !strings.HasPrefix(s, begin) {
		return s
	}
	return begin + base64.StdEncoding.EncodeToString([]byte(s)) + end
}
