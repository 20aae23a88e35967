package mcpfacade

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/process"
	"onbehalf.internal/broker/strictjson"
)

// maxBody is what a message may weigh, a tool's arguments included.
const maxBody = 256 << 10

// guard stands before everything: hosts, browsers, panics. A panic leaves its type in the
// log, never its value.
func (f *Facade) guard(next http.Handler) http.Handler {
	_, host, _ := strings.Cut(f.Origin, "://")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				process.LogPanic(f.Log, p)
				f.refuse(w, "", fault.New("mcpfacade.guard", fault.InternalError, ""))
			}
		}()
		switch {
		case r.Host != host:
			f.refuse(w, "", fault.New("mcpfacade.guard", fault.HostNotAllowed, "the address must begin with "+f.Origin))
		case r.Header.Get("Origin") != "":
			f.refuse(w, "", fault.New("mcpfacade.guard", fault.HostNotAllowed, "browsers may not call this address"))
		default:
			w.Header().Set("X-Content-Type-Options", "nosniff")
			next.ServeHTTP(w, r)
		}
	})
}

// refuse answers a request that began nothing, as the HTTP API does (RFC 9457). Who needs a
// token is told where to get one (RFC 9728 §5.1), and with which scopes (RFC 6750 §3).
func (f *Facade) refuse(w http.ResponseWriter, server string, err error) {
	e := f.classified(err)
	status := fault.Status(e.Reason)
	challenge := `Bearer resource_metadata="` + f.Origin + metadataPath + serverPath + server + `"`
	if scopes := f.scopes(); len(scopes) > 0 {
		challenge += `, scope="` + strings.Join(scopes, " ") + `"`
	}
	switch {
	case e.Reason == fault.InsufficientScope:
		status = http.StatusForbidden
		w.Header().Set("WWW-Authenticate", challenge+`, error="insufficient_scope"`)
	case e.Reason == fault.CallerUnknown && serverName.MatchString(server):
		w.Header().Set("WWW-Authenticate", challenge)
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", challenge+`, error="invalid_token"`)
	case status == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	case status == http.StatusMethodNotAllowed:
		w.Header().Set("Allow", "POST, DELETE")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"title": strings.ReplaceAll(string(e.Reason), "_", " "), "status": status,
		"kind": e.Kind(), "reason": e.Reason, "detail": e.Detail})
}

// classified is err, or what leaves of one that nobody has classified: that it is ours.
func (f *Facade) classified(err error) *fault.Error {
	var e *fault.Error
	if !errors.As(err, &e) || !e.Reason.Known() {
		f.Log.Error("unclassified error", "type", fmt.Sprintf("%T", err))
		e = fault.New("mcpfacade", fault.InternalError, "")
	}
	return e
}

// A message is what is known of a body before the library reads it.
type message struct {
	modern bool
	method string
	id     strictjson.Raw
}

// readMessage reads a body strictly and puts it back. Nothing is sent but in an answer, so
// there is no stream to open with GET.
func readMessage(w http.ResponseWriter, r *http.Request) (m message, err error) {
	const op = "mcpfacade.readMessage"
	m.modern = r.Header.Get("Mcp-Protocol-Version") >= versions[0]
	switch {
	case r.Method == http.MethodDelete && r.ContentLength == 0:
		return m, nil
	case r.Method != http.MethodPost:
		return m, fault.New(op, fault.MethodNotAllowed, "messages come by POST, and DELETE ends a session")
	case r.Header.Get("Content-Encoding") != "":
		return m, fault.New(op, fault.UnsupportedMedia, "a body with a Content-Encoding is not read")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return m, fault.New(op, fault.RequestTooLarge, fmt.Sprintf("a message is at most %d KiB", maxBody>>10))
	}
	if err != nil {
		return m, fault.New(op, fault.MalformedRequest, "the body did not arrive whole")
	}
	members, err := strictjson.Members(body)
	if err != nil {
		return m, fault.New(op, fault.MalformedRequest, "a message is one JSON object: "+err.Error())
	}
	_, named := strictjson.Parts(strictjson.Parts(members["params"])["_meta"])[mcp.MetaKeyProtocolVersion]
	m.modern, m.id = m.modern || named, members["id"]
	json.Unmarshal(members["method"], &m.method) // what is no text is no method
	r.Body = io.NopCloser(bytes.NewReader(body))
	return m, nil
}

// unknown answers a method that is not offered by the status that 2026-07-28 wants; by its own
// path the library would say 200.
func unknown(w http.ResponseWriter, m message) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(m.id),
		"error": map[string]any{"code": jsonrpc.CodeMethodNotFound, "message": notOffered}})
}

type visitKey struct{}

func withVisit(ctx context.Context, v *visit) context.Context {
	return context.WithValue(ctx, visitKey{}, v)
}

// vouch gives the library what it keeps of a token: whose it is, and with each request the
// visit.
func vouch(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
	v := ctx.Value(visitKey{}).(*visit)
	return &auth.TokenInfo{UserID: v.owner(), Extra: map[string]any{"visit": v}}, nil
}

// visitOf is the visit of the very request that a message came with.
func visitOf(req mcp.Request) *visit { return req.GetExtra().TokenInfo.Extra["visit"].(*visit) }

// metadata says who issues the tokens for an address (RFC 9728): the same for each, also for
// one that no server has.
func (f *Facade) metadata(w http.ResponseWriter, r *http.Request, server string) {
	if r.Method != http.MethodGet {
		f.refuse(w, server, fault.New("mcpfacade.metadata", fault.MethodNotAllowed, ""))
		return
	}
	issuers := []string{}
	for _, t := range f.Policy.Current().Directory.Fronts() {
		issuers = append(issuers, t.Issuer)
	}
	document := map[string]any{"resource": f.resource(server), "authorization_servers": slices.Compact(issuers), "bearer_methods_supported": []string{"header"}}
	if scopes := f.scopes(); len(scopes) > 0 {
		document["scopes_supported"] = scopes
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=300")
	json.NewEncoder(w).Encode(document)
}

// scopes are those that tokens need, by whichever issuer.
func (f *Facade) scopes() (all []string) {
	for _, t := range f.Policy.Current().Directory.Fronts() {
		all = append(all, t.Scopes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
