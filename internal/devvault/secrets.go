package devvault

import (
	"net/http"
	"strconv"
	"strings"
)

// The longest string that Vault takes in JSON by default.
const maxString = 1 << 20

// A mount is one KV engine.
type mount struct {
	version int
	entries map[string]*entry
}

// An entry is one secret. In version 1 there is one version of it; in version 2
// a nil document is a deleted version, which Vault keeps.
type entry struct{ versions []document }

func newMount(version int) *mount { return &mount{version, map[string]*entry{}} }

func (m *mount) put(path string, data document) {
	e := m.entries[path]
	if e == nil || m.version == 1 {
		e = &entry{}
		m.entries[path] = e
	}
	e.versions = append(e.versions, clone(data))
}

// find splits a path into a mount and what is below it; a mount of another kind, or
// none, is the first segment.
func (s *Server) find(path string) (name string, m *mount, below string) {
	for name, m := range s.mounts {
		if rest, ok := strings.CutPrefix(path+"/", name+"/"); ok {
			return name, m, strings.TrimSuffix(rest, "/")
		}
	}
	name, below, _ = strings.Cut(path, "/")
	return name, nil, below
}

func (s *Server) readMount(c call) reply {
	name, m, _ := s.find(c.rest)
	if m == nil || c.token == nil || !s.sees(c.token, name+"/") {
		return said(http.StatusForbidden, "preflight capability check returned 403")
	}
	return reply{status: http.StatusOK, data: document{"type": "kv", "path": name + "/",
		"options": document{"version": strconv.Itoa(m.version)}}}
}

func (s *Server) configureMount(c call) reply {
	m := s.mounts[c.rest]
	switch {
	case s.transits[c.rest] != nil || c.body["type"] == "transit":
		return s.configureTransitMount(c)
	case c.method == http.MethodGet && m == nil:
		return said(http.StatusBadRequest, "No secret engine mount at "+c.rest+"/")
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, data: document{"type": "kv", "options": document{"version": strconv.Itoa(m.version)}}}
	case m != nil:
		return said(http.StatusBadRequest, "path is already in use at "+c.rest+"/")
	}
	version := 1
	if options, ok := c.body["options"].(document); ok && options["version"] == "2" {
		version = 2
	}
	s.mounts[c.rest] = newMount(version)
	return done
}

// mounted is what an engine at a mount answers.
func (s *Server) mounted(c call) reply {
	name, m, below := s.find(c.path)
	switch {
	case s.transits[name] != nil:
		return s.transits[name].serve(c, below)
	case m == nil:
		return said(http.StatusNotFound, "no handler for route")
	case tooLong(c.body):
		return said(http.StatusInternalServerError, "JSON string value exceeds allowed length")
	case m.version == 1:
		return m.serve1(c, below)
	}
	kind, path, _ := strings.Cut(below, "/")
	switch {
	case kind == "data":
		return m.serve2(c, path)
	case kind == "metadata" && c.method == http.MethodDelete:
		delete(m.entries, path)
		return done
	}
	return absent
}

func (m *mount) serve1(c call, path string) reply {
	switch e := m.entries[path]; {
	case c.method == http.MethodDelete:
		delete(m.entries, path)
	case c.method == http.MethodPatch:
		return said(http.StatusMethodNotAllowed, "unsupported operation")
	case c.method != http.MethodGet:
		m.put(path, c.body)
	case e == nil:
		return absent
	default:
		return reply{status: http.StatusOK, data: e.versions[0]}
	}
	return done
}

func (m *mount) serve2(c call, path string) reply {
	e := m.entries[path]
	switch c.method {
	case http.MethodGet:
		if e == nil {
			return absent
		}
		n := len(e.versions)
		data := document{"data": e.versions[n-1], "metadata": document{"version": n}}
		if e.versions[n-1] == nil {
			return reply{status: http.StatusNotFound, data: data} // a deleted version: 404 with a body
		}
		return reply{status: http.StatusOK, data: data}
	case http.MethodDelete:
		if e != nil {
			e.versions[len(e.versions)-1] = nil
		}
		return done
	}
	return m.write2(c, path, e)
}

// write2 makes the next version: the data as given, or those of the newest
// version with a merge patch applied.
func (m *mount) write2(c call, path string, e *entry) reply {
	data, ok := c.body["data"].(document)
	patch := c.method == http.MethodPatch
	switch {
	case patch && c.media != "application/merge-patch+json":
		return said(http.StatusUnsupportedMediaType, "PATCH requires Content-Type of application/merge-patch+json")
	case !ok:
		return said(http.StatusBadRequest, "no data provided")
	case patch && (e == nil || e.newest() == nil):
		return reply{status: http.StatusNotFound, bare: true}
	case !e.at(c.body["options"]):
		return said(http.StatusBadRequest, "check-and-set parameter did not match the current version")
	}
	if patch {
		data = merge(e.newest(), data)
	}
	m.put(path, data)
	return reply{status: http.StatusOK, data: document{"version": len(m.entries[path].versions)}}
}

func (e *entry) newest() document { return e.versions[len(e.versions)-1] }

// at reports whether a write may follow e, which is nil before the first version.
func (e *entry) at(options any) bool {
	said, _ := options.(document)
	cas, ok := said["cas"].(float64)
	number := 0
	if e != nil {
		number = len(e.versions)
	}
	return !ok || int(cas) == number
}

// merge applies the part of RFC 7396 that flat documents need.
func merge(old, change document) document {
	merged := clone(old)
	for k, v := range change {
		if v == nil {
			delete(merged, k)
		} else {
			merged[k] = v
		}
	}
	return merged
}

func (s *Server) cubbyhole(c call) reply {
	switch data := c.token.cubbyhole[c.rest]; {
	case tooLong(c.body):
		return said(http.StatusInternalServerError, "JSON string value exceeds allowed length")
	case c.method == http.MethodDelete:
		delete(c.token.cubbyhole, c.rest)
	case c.method != http.MethodGet:
		c.token.cubbyhole[c.rest] = clone(c.body)
	case data == nil:
		return absent
	default:
		return reply{status: http.StatusOK, data: data}
	}
	return done
}

func tooLong(d document) bool {
	for _, v := range stringsIn(d) {
		if len(v) > maxString {
			return true
		}
	}
	return false
}
