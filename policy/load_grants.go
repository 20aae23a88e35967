package policy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// readGrants returns the grants of a profile by actor: those of the file itself
// and those of its grants_files.
func readGrants(s *section, p *Profile) map[string]*Grant {
	grants := map[string]*Grant{}
	for actor, child := range s.children("grants", actorID) {
		grants[actor] = readGrant(child, p, actor)
	}
	for _, file := range s.grantsFiles() {
		s.l.readGrantsFile(file, p, grants)
	}
	return grants
}

func readGrant(s *section, p *Profile, actor string) *Grant {
	s.need("enabled", "allowed_audiences", "allowed_scopes")
	g := &Grant{
		Actor:            actor,
		Profile:          p.ID,
		Where:            s.where(),
		Enabled:          s.flag("enabled", false),
		Credential:       s.credentialFor(p),
		Subject:          s.text("subject", atMost(256)),
		AllowedAudiences: s.l.shared(s.texts("allowed_audiences", maxAudiences, audience)),
		AllowedScopes:    s.l.shared(s.texts("allowed_scopes", maxScopes, scope)),
		Expires:          s.date("expires"),
		Reason:           s.text("reason", atMost(512)),
		ApprovedBy:       s.text("approved_by", atMost(256)),
	}
	if since := s.date("since"); !since.IsZero() {
		g.Since = since.Format(time.DateOnly)
	}
	s.within("allowed_audiences", g.AllowedAudiences, p.AllowedAudiences, "profile "+quote(p.ID))
	s.within("allowed_scopes", g.AllowedScopes, p.AllowedScopes, "profile "+quote(p.ID))
	return g
}

// credentialFor reads the actor's own credential, or reports that there is one
// where it would not be looked at.
func (s *section) credentialFor(p *Profile) Credential {
	if p.BrokerIsSubject() {
		s.without("in profile "+quote(p.ID)+", whose grant_type is client_credentials: the broker asks for a token of its own", "credential")
		return Credential{Kind: BrokersOwn, Client: p.Client.ID}
	}
	return s.credential("credential")
}

// credential reads what the actor's own credential is: a reference for a stored
// token, or a mapping with one key that names another kind.
func (s *section) credential(key string) (c Credential) {
	s.need(key)
	n, ok := s.find(key)
	switch {
	case !ok:
		return c
	case n.kind != mapping:
		return Credential{Kind: Stored, Ref: s.ref(key)}
	}
	of := s.child(key)
	if of == nil {
		return c
	}
	defer of.end()
	c.Ref = of.ref(string(RefreshToken))
	c.Mount, c.Role = readOIDCRole(of.child(string(VaultOIDC)))
	c.File = of.text(string(File), absolutePath)
	var given []string
	for _, kind := range []CredentialKind{RefreshToken, VaultOIDC, File} {
		if of.has(string(kind)) {
			c.Kind = kind
			given = append(given, string(kind))
		}
	}
	if len(given) != 1 {
		s.report(key, fmt.Sprintf("names %d kinds of credential; name one of refresh_token, vault_oidc, file, or write a reference for a stored token", len(given)))
	}
	return c
}

func readOIDCRole(s *section) (mount, role string) {
	if s == nil {
		return "", ""
	}
	defer s.end()
	s.need("role")
	return s.textOr("mount", "identity", roleName), s.text("role", roleName)
}

// absolutePath accepts the one way to write a path that begins at the root.
func absolutePath(s string) string {
	if !filepath.IsAbs(s) || filepath.Clean(s) != s || len(s) > 4096 {
		return `must be an absolute path without "..", "." or a slash at its end`
	}
	return ""
}

// grantsFiles returns the names of the files that the patterns match, sorted,
// each once.
func (s *section) grantsFiles() []string {
	var files []string
	for _, n := range s.items("grants_files", 64) {
		if !s.isOf(n, "grants_files", text) || !s.fits(n, "grants_files", grantsPattern) {
			continue
		}
		found, err := fs.Glob(os.DirFS(s.l.dir), n.value)
		if err != nil || len(found) == 0 {
			s.reportAt(n.line, "grants_files", quote(n.value)+" matches no file in the folder of the config")
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// grantsPattern is the one place where "*" has a meaning.
func grantsPattern(s string) string {
	if !filepath.IsLocal(s) || !fs.ValidPath(s) || !strings.HasSuffix(s, ".jsonl") {
		return `must be a path below the folder of the config that ends in ".jsonl"`
	}
	return ""
}

func (l *loader) readGrantsFile(file string, p *Profile, grants map[string]*Grant) {
	b, what := l.read(file, maxGrants)
	if what != "" {
		l.problem(file, 0, "", what)
		return
	}
	if len(b) == 0 {
		l.problem(file, 0, "", "is empty; one grant a line is wanted")
	}
	if !l.readable(file, b) {
		return
	}
	line := 0
	for raw := range bytes.Lines(b) {
		line++
		l.readGrantLine(file, line, bytes.TrimRight(raw, "\r\n"), p, grants)
	}
}

func (l *loader) readGrantLine(file string, line int, raw []byte, p *Profile, grants map[string]*Grant) {
	s := l.section(file, line, "", l.parseJSON(file, line, raw)).shaped("profiles.<name>.grants", "<name>")
	if s == nil {
		return
	}
	defer s.end()
	s.need("actor")
	actor := s.text("actor", actorID)
	g := readGrant(s, p, actor)
	if first, twice := grants[actor]; twice && actor != "" {
		s.report("actor", quote(actor)+" has a grant in profile "+quote(p.ID)+" already, at "+first.Where+"; remove one")
		return
	}
	grants[actor] = g
}

// shared returns a list equal to entries that other grants use too.
func (l *loader) shared(entries []string) []string {
	key := strings.Join(entries, "\n")
	if known, ok := l.lists[key]; ok {
		return known
	}
	l.lists[key] = entries
	return entries
}
