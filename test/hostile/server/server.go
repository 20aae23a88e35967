package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"text/tabwriter"
)

// A Server plays every behaviour at /b/<behaviour>/mcp.
type Server struct {
	URL       string // of the server, without a path
	Elsewhere string // of the second listener

	behaviours map[string]Behaviour
	closing    chan struct{}
	here, away *http.Server
	serving    sync.WaitGroup

	mu      sync.Mutex
	runs    map[string]*Run // behaviour/run
	conns   map[*tracked]bool
	strayed []string
}

// Start listens on addr, host and port, and next to it on a free port.
func Start(addr string) (*Server, error) {
	s := &Server{behaviours: map[string]Behaviour{}, closing: make(chan struct{}), runs: map[string]*Run{}, conns: map[*tracked]bool{}}
	for _, b := range All() {
		s.behaviours[b.Name] = b
	}
	here, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(here.Addr().String())
	away, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		here.Close()
		return nil, err
	}
	s.URL, s.Elsewhere = "http://"+here.Addr().String(), "http://"+away.Addr().String()
	s.here = &http.Server{Handler: s, ConnContext: remember, ErrorLog: quiet}
	s.away = &http.Server{Handler: http.HandlerFunc(s.stray), ConnState: s.connected, ErrorLog: quiet}
	s.serving.Go(func() { s.here.Serve(listener{here, s}) })
	s.serving.Go(func() { s.away.Serve(away) })
	return s, nil
}

// Close ends every answer that is under way, and both listeners.
func (s *Server) Close() {
	close(s.closing)
	s.here.Close()
	s.away.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Conn.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Endpoint is where a run of a behaviour is played.
func (s *Server) Endpoint(behaviour, run string) string {
	return s.URL + "/b/" + behaviour + "/" + run + "/mcp"
}

// Run returns a run of a behaviour; a name that was not used before begins one.
// It is nil for a behaviour that there is not.
func (s *Server) Run(behaviour, name string) *Run {
	b, ok := s.behaviours[behaviour]
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := behaviour + "/" + name
	if s.runs[key] == nil {
		s.runs[key] = &Run{behaviour: b, name: name, played: map[string]int{}, answers: make(chan struct{}, 1024)}
	}
	return s.runs[key]
}

// Strayed returns who came to the second listener.
func (s *Server) Strayed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.strayed...)
}

// Open returns, for every connection that is open, the run that it is of.
func (s *Server) Open() (runs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		runs = append(runs, c.run)
	}
	return runs
}

// ServeHTTP takes /, /b/<behaviour>/mcp, /b/<behaviour>/<run>/mcp and
// /seen/<behaviour>, /seen/<behaviour>/<run>. Below /b/ nothing is refused and
// nothing is sent on: what a client was led to by a redirect is noted.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/":
		s.list(w, r)
	case parts[0] == "seen" && len(parts) == 2:
		s.seen(w, parts[1], "")
	case parts[0] == "seen" && len(parts) == 3:
		s.seen(w, parts[1], parts[2])
	case parts[0] == "b" && len(parts) == 3:
		s.play(w, r, s.Run(parts[1], ""), parts[2])
	case parts[0] == "b" && len(parts) == 4:
		s.play(w, r, s.Run(parts[1], parts[2]), parts[3])
	default:
		http.NotFound(w, r)
	}
}

// play reads a request of a run and has the next step answer it.
func (s *Server) play(w http.ResponseWriter, r *http.Request, run *Run, last string) {
	if run == nil {
		http.NotFound(w, r)
		return
	}
	var m message
	if run.behaviour.unread {
		m.Method = r.Header.Get("Mcp-Method")
	} else {
		text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		json.Unmarshal(text, &m)
	}
	x := run.note(r, m, last)
	x.server, x.w, x.r = s, w, r
	if last != "mcp" {
		say(404, "", "")(x)
		return
	}
	run.next(legOf(r, m))(x)
}

func legOf(r *http.Request, m message) string {
	switch {
	case r.Method != http.MethodPost:
		return r.Method
	case m.Method == "":
		return answer
	}
	return m.Method
}

// list tells what there is, as a table or, to who accepts it, as JSON.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), kindJSON) {
		writeJSON(w, All())
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	for _, b := range All() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", b.Name, b.Era, b.Leg, b.Expect, b.Does)
	}
}

// seen tells what a run saw.
func (s *Server) seen(w http.ResponseWriter, behaviour, name string) {
	run := s.Run(behaviour, name)
	if run == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	writeJSON(w, struct {
		Expect   string    `json:"expect"`
		Requests []Request `json:"requests"`
		Ran      int       `json:"ran"`
		Strayed  []string  `json:"strayed"` // of all runs
	}{run.behaviour.Expect, run.Requests(), run.Ran(), s.Strayed()})
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", kindJSON)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(v)
}

// stray notes who came to the second listener, and for which run.
func (s *Server) stray(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strayed = append(s.strayed, fmt.Sprintf("%s %s, with a credential: %v", r.Method, r.URL.Path, r.Header.Get("Authorization") != ""))
	w.WriteHeader(http.StatusTeapot)
}

func (s *Server) connected(_ net.Conn, state http.ConnState) {
	if state != http.StateNew {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strayed = append(s.strayed, "a connection")
}
