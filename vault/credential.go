package vault

import (
	"context"
	"fmt"
	"net/http"

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
	version, err := c.version(ctx, l, ref.Mount())
	if err != nil {
		return secret.Text{}, err
	}
	path := ref.Mount() + "/" + ref.Path()
	if version == 2 {
		path = ref.Mount() + "/data/" + ref.Path()
	}
	a, err := c.plain(ctx, http.MethodGet, path, l.token, nil)
	switch {
	case err != nil:
		return secret.Text{}, unanswered(op, err)
	case a.status == http.StatusNotFound: // also a deleted version, whatever the body says
		c.forgetMount(ref.Mount()) // or the mount is another one than it was
		return secret.Text{}, missing(ref)
	case a.status != http.StatusOK:
		return secret.Text{}, unwanted(op, a)
	}
	value, ok := field(a, version, ref.Field())
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

// version returns the version of the KV engine at a mount. It is asked for once.
func (c *Client) version(ctx context.Context, l *login, mount string) (int, error) {
	const op = "vault.mount"
	c.mu.Lock()
	known := c.mounts[mount]
	c.mu.Unlock()
	if known != 0 {
		return known, nil
	}
	a, err := read(ctx, l.client, "sys/internal/ui/mounts/"+mount)
	switch {
	case err != nil:
		return 0, unanswered(op, err)
	case a.status != http.StatusOK:
		return 0, unwanted(op, a)
	}
	data := a.object("data")
	kind, _ := member[string](data, "type")
	path, _ := member[string](data, "path")
	if kind != "kv" || path != mount+"/" {
		return 0, fault.New(op, fault.VaultUnexpected, fmt.Sprintf("%q is no mount of a KV engine", mount))
	}
	version := 1 // an engine from before there were versions has no options
	if v, _ := member[string](a.object("data", "options"), "version"); v == "2" {
		version = 2
	}
	c.mu.Lock()
	c.mounts[mount] = version
	c.mu.Unlock()
	return version, nil
}

func (c *Client) forgetMount(mount string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mounts, mount)
}
