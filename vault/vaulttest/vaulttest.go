// Package vaulttest says what the broker needs of a Vault, as cases that run on
// real Vault and on internal/devvault alike. What devvault claims is what is
// tested here; faults that only devvault can bring about are tested beside the
// code that has to survive them.
//
// [Run] first sets the Vault up with deploy/vault/setup.sh, so the cases also hold
// that script: what the broker needs is allowed, and what it does not need is refused.
package vaulttest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/internal/testhttp"
)

// A Target is the Vault to test. It may be used for nothing else meanwhile.
type Target struct {
	Address   string
	RootToken string
	Setup     string     // the folder of setup.sh
	Residue   func() int // entries left in any cubbyhole

	Doors                                                                          // zero: no login over TLS or a socket is tried
	Namespace  string                                                              // all of it happens in this one, which is there; empty: in none
	Namespaces bool                                                                // it has some
	Proxy      func(force bool, roleID, secretIDFile string) (socket, sink string) // starts a Vault Proxy that also writes its token; nil: a small one of our own
}

// Run runs all cases. Each makes the tokens and paths that it needs.
func Run(t *testing.T, target Target) {
	r := prepare(t, target)
	t.Run("hold", r.holds)
	t.Run("epoch", r.epochs)
	t.Run("login", r.logins)
	t.Run("ways", r.ways)
	t.Run("kv", r.kv)
	t.Run("client", r.client)
	t.Run("rotation", r.rotation)
	t.Run("oidc", r.oidc)
	t.Run("transit", r.transit)
	t.Run("data keys", r.dataKeys)
	t.Run("examined", r.examined)
	if n := r.Residue(); n != 0 {
		t.Errorf("%d cubbyhole entries are left", n)
	}
}

// Ways runs the part of it that logs in.
func Ways(t *testing.T, target Target) { prepare(t, target).ways(t) }

func prepare(t *testing.T, target Target) *rig {
	r := &rig{Target: target, secretIDFile: filepath.Join(t.TempDir(), "secret_id")}
	r.setUp(t)
	return r
}

// A rig is a Target that was set up.
type rig struct {
	Target
	roleID       string
	secretIDFile string
}

// Who asks, besides a token itself.
const (
	nobody   = ""
	stranger = "not-a-token-of-this-vault"
)

type document = map[string]any

// A said is an answer.
type said struct {
	status int
	body   document
}

// ask sends one request; a nil body sends none.
func (r *rig) ask(t *testing.T, token, method, path string, body document) said {
	t.Helper()
	return r.askWith(t, nil, token, method, path, body)
}

// askWith sends further headers with it.
func (r *rig) askWith(t *testing.T, more http.Header, token, method, path string, body document) said {
	t.Helper()
	return r.over(t, testhttp.Client, r.Address, more, token, method, path, body)
}

// over sends it by another client to another door.
func (r *rig) over(t *testing.T, client *http.Client, address string, more http.Header, token, method, path string, body document) said {
	t.Helper()
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, address+"/v1/"+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, more)
	req.Header.Set("X-Vault-Request", "true")
	if r.Namespace != "" {
		req.Header.Set("X-Vault-Namespace", r.Namespace)
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	if token != nobody {
		req.Header.Set("X-Vault-Token", token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	s := said{status: resp.StatusCode}
	if resp.StatusCode == http.StatusNoContent {
		if len(b) != 0 {
			t.Errorf("%s %s: 204 with a body", method, path)
		}
		return s
	}
	if method == http.MethodPatch && s.status == http.StatusNotFound && len(b) == 0 {
		return s // the one answer without a body
	}
	if json.Unmarshal(b, &s.body) != nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		t.Errorf("%s %s: %d without JSON", method, path, resp.StatusCode)
	}
	if _, ok := s.body["errors"].([]any); !ok && s.body["data"] == nil && s.status >= 400 {
		t.Errorf("%s %s: %d without errors", method, path, resp.StatusCode)
	}
	return s
}

// want asks and fails the test unless the status is the right one.
func (r *rig) want(t *testing.T, status int, token, method, path string, body document) said {
	t.Helper()
	s := r.ask(t, token, method, path, body)
	if s.status != status {
		t.Fatalf("%s %s is answered %d, want %d", method, path, s.status, status)
	}
	return s
}

// at walks down a document.
func at(d document, path ...string) any {
	var v any = d
	for _, name := range path {
		m, _ := v.(document)
		v = m[name]
	}
	return v
}

func (s said) text(path ...string) string { v, _ := at(s.body, path...).(string); return v }

func (s said) number(path ...string) float64 {
	if v, ok := at(s.body, path...).(float64); ok {
		return v
	}
	return -1
}

// lives reports whether a token was given the seconds it should live. Vault counts
// them from the whole second in which it made the token, and tells one less where
// that second ended before its answer.
func lives(told, seconds float64) bool { return told == seconds || told == seconds-1 }

var roleIDLine = regexp.MustCompile(`(?m)^role_id: (\S+)$`)

func (r *rig) setUp(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(r.Setup, "setup.sh"), "-a", r.secretIDFile,
		"-r", "-o", oidcRole, "-t", transitKey, "-s", resultsKey)
	cmd.Env = append(os.Environ(), "VAULT_ADDR="+r.Address, "VAULT_TOKEN="+r.RootToken, "VAULT_NAMESPACE="+r.Namespace)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("setup.sh: %v\n%s", err, out)
	}
	if m := roleIDLine.FindSubmatch(out); m != nil {
		r.roleID = string(m[1])
	}
	if r.roleID == "" {
		t.Fatalf("setup.sh does not say the role_id:\n%s", out)
	}

	root := r.RootToken
	if r.ask(t, root, "GET", "sys/mounts/kv1", nil).status != 200 {
		r.want(t, 204, root, "POST", "sys/mounts/kv1", document{"type": "kv", "options": document{"version": "1"}})
	}
	if r.ask(t, root, "GET", "sys/mounts/suite/kv", nil).status != 200 {
		r.want(t, 204, root, "POST", "sys/mounts/suite/kv", document{"type": "kv", "options": document{"version": "2"}})
	}
	// What the cases need besides: KV version 1, a mount of two segments, keys of every kind,
	// and roles that are set up badly.
	r.want(t, 204, root, "PUT", "sys/policies/acl/suite", document{"policy": `
		path "kv1/broker/+" { capabilities = ["read"] }
		path "suite/kv/data/broker/+" { capabilities = ["read", "patch"] }
		path "transit/sign/+" { capabilities = ["update"] }
		path "transit/datakey/plaintext/+" { capabilities = ["update"] }
		path "transit/decrypt/+" { capabilities = ["update"] }
		path "auth/token/create/suite-short" { capabilities = ["update"] }
		path "auth/token/create/suite-brief" { capabilities = ["update"] }
		path "auth/token/create/suite-lapsing" { capabilities = ["update"] }
		path "auth/token/create/suite-uncapped" { capabilities = ["update"] }
		path "auth/token/create/suite-absent" { capabilities = ["update"] }`})
	short := document{"allowed_policies": "broker-op", "orphan": false, "renewable": false,
		"token_no_default_policy": true, "token_explicit_max_ttl": "2s"}
	r.want(t, 204, root, "POST", "auth/token/roles/suite-short", short)
	short["token_explicit_max_ttl"] = "4s"
	r.want(t, 204, root, "POST", "auth/token/roles/suite-brief", short)
	short["token_explicit_max_ttl"] = "5s"
	r.want(t, 204, root, "POST", "auth/token/roles/suite-lapsing", short)
	delete(short, "token_explicit_max_ttl")
	r.want(t, 204, root, "POST", "auth/token/roles/suite-uncapped", short)
}

// A token with its accessor.
type token struct{ value, accessor string }

// broker makes a login token with the broker's policy and the suite's.
func (r *rig) broker(t *testing.T) token {
	t.Helper()
	return issued(t, r.want(t, 200, r.RootToken, "POST", "auth/token/create", document{
		"policies": []string{"broker", "suite"}, "no_default_policy": true, "ttl": "1h", "no_parent": true}))
}

// epoch mints as the broker does.
func (r *rig) epoch(t *testing.T, parent token, role string) token {
	t.Helper()
	return issued(t, r.want(t, 200, parent.value, "PUT", "auth/token/create/"+role, document{"explicit_max_ttl": "75s"}))
}

func issued(t *testing.T, s said) token {
	t.Helper()
	made := token{s.text("auth", "client_token"), s.text("auth", "accessor")}
	if made.value == "" || made.accessor == "" {
		t.Fatal("a token was made that has no value or no accessor")
	}
	return made
}

// eventually waits for what Vault does by itself, with a limit.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(limit)
	for !ok() {
		select {
		case <-poll.C:
		case <-late:
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
