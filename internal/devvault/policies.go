package devvault

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// A policy is what a token may do, path by path.
type policy []rule

type rule struct {
	path         string
	capabilities []string
}

var (
	ruleText = regexp.MustCompile(`(?s)path\s+"([^"]*)"\s*\{\s*capabilities\s*=\s*\[([^\]]*)\]\s*\}`)
	comment  = regexp.MustCompile(`(?m)#.*$`)
)

// parsePolicy reads the part of Vault's policy language that we use.
func parsePolicy(hcl string) (p policy) {
	for _, m := range ruleText.FindAllStringSubmatch(comment.ReplaceAllString(hcl, ""), -1) {
		p = append(p, rule{m[1], words(strings.ReplaceAll(m[2], `"`, ""))})
	}
	return p
}

func (s *Server) writePolicy(c call) reply {
	text, _ := c.body["policy"].(string)
	s.policies[c.rest] = parsePolicy(text)
	return done
}

// allowed reports whether the call's token may do what it asks.
func (s *Server) allowed(c call) bool {
	if c.token == nil {
		return false
	}
	if slices.Contains(c.token.policies, "root") {
		return true
	}
	need := map[string]string{http.MethodGet: "read", http.MethodDelete: "delete", "LIST": "list", http.MethodPatch: "patch"}[c.method]
	if need == "" {
		need = "update"
		if s.creates(c) {
			need = "create"
		}
	}
	return slices.Contains(s.capabilities(c.token, c.path), need)
}

// creates reports whether a write makes something that was not there. Engines
// that cannot tell call every write an update, as Vault does.
func (s *Server) creates(c call) bool {
	if path, ok := strings.CutPrefix(c.path, "cubbyhole/"); ok {
		return c.token.cubbyhole[path] == nil
	}
	_, m, below := s.find(c.path)
	return m != nil && m.entries[strings.TrimPrefix(below, "data/")] == nil
}

// capabilities is the union over the token's policies; in each of them the
// most specific rule counts: exact, then "+", then "*".
func (s *Server) capabilities(t *token, path string) (all []string) {
	for _, name := range t.policies {
		best := -1
		var found rule
		for _, r := range s.policies[name] {
			if n := r.match(path); n > best {
				best, found = n, r
			}
		}
		all = append(all, found.capabilities...)
	}
	return all
}

// ownCapabilities says what the call's token may do at some paths.
func (s *Server) ownCapabilities(c call) reply {
	data := document{}
	for _, path := range words(c.body["paths"]) {
		all := s.capabilities(c.token, path)
		switch {
		case slices.Contains(c.token.policies, "root"):
			all = []string{"root"}
		case len(all) == 0:
			all = []string{"deny"}
		}
		slices.Sort(all)
		data[path] = slices.Compact(all)
	}
	return reply{status: http.StatusOK, data: data}
}

// match says how closely r fits: -1 for not at all, more for closer.
func (r rule) match(path string) int {
	if r.path == path {
		return 1 << 20
	}
	if prefix, ok := strings.CutSuffix(r.path, "*"); ok {
		if strings.HasPrefix(path, prefix) {
			return len(prefix)
		}
		return -1
	}
	want, have := strings.Split(r.path, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return -1
	}
	for i := range want {
		if want[i] != "+" && want[i] != have[i] || have[i] == "" {
			return -1
		}
	}
	return 1 << 10
}

// sees reports whether t may do anything below a path.
func (s *Server) sees(t *token, prefix string) bool {
	for _, name := range t.policies {
		if name == "root" {
			return true
		}
		for _, r := range s.policies[name] {
			if strings.HasPrefix(r.path, prefix) {
				return true
			}
		}
	}
	return false
}
