package vault

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// Credential reads one field of a KV secret, of either version. It fails with
// credential_missing for what is absent, deleted, empty or not a string, else
// with a vault_ reason. Nothing is kept.
func (c *Client) Credential(ctx context.Context, ref secret.Ref) (value secret.Text, err error) {
	err = c.asLogin(ctx, "vault.Credential", func(l *login) error {
		value, err = c.credential(ctx, l, ref)
		return err
	})
	return value, err
}

func (c *Client) credential(ctx context.Context, l *login, ref secret.Ref) (secret.Text, error) {
	const op = "vault.Credential"
	e, err := c.engine(ctx, l, ref)
	if err != nil {
		return secret.Text{}, err
	}
	a, err := c.plain(ctx, http.MethodGet, e.path(ref), l.token, nil)
	switch {
	case err != nil:
		return secret.Text{}, unanswered(op, err)
	case a.status == http.StatusNotFound: // also a deleted version, whatever the body says
		c.forgetMount(e.mount) // or the mount is another one than it was
		return secret.Text{}, missing(ref)
	case a.status != http.StatusOK:
		return secret.Text{}, unwanted(op, a)
	}
	value, ok := field(a, e.version, ref.Field())
	if !ok {
		return secret.Text{}, missing(ref)
	}
	return secret.New(value), nil
}

func missing(ref secret.Ref) error {
	return fault.New("vault.Credential", fault.CredentialMissing, fmt.Sprintf("%q is not there, or not a text", ref))
}

// field finds a field in the answer of a KV engine. In version 2 the fields are
// one level deeper, and null in a deleted version.
func field(a answer, version int, name string) (value string, ok bool) {
	path := []string{"data"}
	if version == 2 {
		path = []string{"data", "data"}
	}
	value, ok = member[string](a.object(path...), name)
	return value, ok && value != ""
}

// An engine is a KV engine: where it is mounted, and which version it has.
type engine struct {
	mount   string
	version int
}

// path is where a secret is read, and in version 2 also written.
func (e engine) path(ref secret.Ref) string {
	if e.version == 2 {
		return e.mount + "/data" + strings.TrimPrefix(ref.Path(), e.mount)
	}
	return ref.Path()
}

// engine returns the KV engine that a reference leads to. Vault is asked once for
// each: which part of a path is the mount only Vault knows. No mount lies below
// another, so a known one that a path begins with is the one.
func (c *Client) engine(ctx context.Context, l *login, ref secret.Ref) (engine, error) {
	const op = "vault.mount"
	if known := c.knownEngine(ref.Path()); known.version != 0 {
		return known, nil
	}
	a, err := read(ctx, l.client, "sys/internal/ui/mounts/"+ref.Path())
	if err := answered(op, a, err); err != nil {
		return engine{}, err
	}
	data := a.object("data")
	kind, _ := member[string](data, "type")
	path, _ := member[string](data, "path")
	found, ends := strings.CutSuffix(path, "/")
	if kind != "kv" || !ends || !mount.MatchString(found) || !strings.HasPrefix(ref.Path(), path) {
		return engine{}, fault.New(op, fault.VaultUnexpected, fmt.Sprintf("%q does not lead to a KV engine", ref))
	}
	e := engine{found, 1} // one from before there were versions has no options
	if v, _ := member[string](a.object("data", "options"), "version"); v == "2" {
		e.version = 2
	}
	c.mu.Lock()
	c.mounts[e.mount] = e.version
	c.mu.Unlock()
	return e, nil
}

func (c *Client) knownEngine(path string) engine {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range path {
		if path[i] == '/' && c.mounts[path[:i]] != 0 {
			return engine{path[:i], c.mounts[path[:i]]}
		}
	}
	return engine{}
}

func (c *Client) forgetMount(mount string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mounts, mount)
}
