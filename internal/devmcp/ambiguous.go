package devmcp

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// goesOn has drop do its job when the caller has given up.
const goesOn = "goes_on"

// endings are the ways, besides a dropped connection, to have worked and to leave
// the caller in doubt of it.
var endings = map[string]func(w http.ResponseWriter, r *http.Request, id json.RawMessage){
	"202": says(http.StatusAccepted, ""), // and nothing ever after
	"303": func(w http.ResponseWriter, r *http.Request, _ json.RawMessage) {
		http.Redirect(w, r, "/done", http.StatusSeeOther)
	},
	"504":      says(http.StatusGatewayTimeout, ""), // as something between says it
	"400":      says(http.StatusBadRequest, invalid),
	"invalid":  says(http.StatusOK, invalid),
	"other_id": says(http.StatusOK, `{"jsonrpc":"2.0","id":"of-another","result":{"content":[]}}`),
	"ends":     streams, // a stream, without the answer
	"cut": func(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
		streams(w, r, id)
		panic(http.ErrAbortHandler)
	},
	"late": late,
	goesOn: late,
}

// invalid is what servers say when a tool has run and its output is not what its
// schema promises.
const invalid = `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"the output is not what the schema says"}}`

// Endings are what drop takes as its argument then.
func Endings() []string { return slices.Sorted(maps.Keys(endings)) }

// ambiguous answers a call of drop that says how it is to end, and reports whether
// r is one. It takes the SDK's place, for who has begun an answer cannot give another.
func (s *Server) ambiguous(w http.ResponseWriter, r *http.Request) bool {
	m := peek(r)
	var args arguments
	if m.Method != "tools/call" || m.Params.Name != "drop" || json.Unmarshal(m.Params.Arguments, &args) != nil {
		return false
	}
	end, known := endings[args.Then]
	if !known {
		return false
	}
	s.note(func() { s.calls["drop"]++ })
	if args.Then == goesOn {
		<-r.Context().Done()
	}
	s.note(func() { s.jobs[args.Job]++ })
	end(w, r, m.ID)
	return true
}

// says answers with a status and a JSON body, in which $ID is the id of the request.
func says(status int, body string) func(http.ResponseWriter, *http.Request, json.RawMessage) {
	return func(w http.ResponseWriter, _ *http.Request, id json.RawMessage) {
		if body == "" {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, strings.Replace(body, "$ID", string(id), 1))
	}
}

// streams begins a stream and says that it works.
func streams(w http.ResponseWriter, _ *http.Request, _ json.RawMessage) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, ": working\n\n")
	http.NewResponseController(w).Flush()
}

// late answers when the caller has gone.
func late(w http.ResponseWriter, r *http.Request, id json.RawMessage) {
	<-r.Context().Done()
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, id)
}
