package vault

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
)

// A Use is what the configuration has the broker do in Vault by its login: one of
// these, for what For says.
type Use struct {
	For         string     // "profiles.company.client.key"
	Read        secret.Ref // a credential
	Replace     secret.Ref // one that is also replaced, see [Client.WriteCAS]
	Sign, Wrap  secret.TransitRef
	Mount, Role string // of the identity engine: a token that it issues
}

// A Right is what the login may do at a path of Vault, beside what it needs to do there.
type Right struct {
	For        string // what needs it; "": nothing does
	Path       string
	Needs, Has []string // capabilities, sorted; Has is empty where Vault denies everything
}

// Lacks is what it needs and may not do, Excess what it may do and does not need.
func (r Right) Lacks() []string  { return without(r.Needs, r.Has) }
func (r Right) Excess() []string { return without(r.Has, r.Needs) }

// Pattern is the path, with ANY in the place of a name that nobody uses.
func (r Right) Pattern() string { return unused.ReplaceAllLiteralString(r.Path, "ANY") }

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}

const rightsAtOnce = 100 // paths in one request

// Rights asks Vault what the login may do: at the paths of these uses, at those of the
// broker's own work, and at paths beside them where it needs nothing. It fails with
// vault_denied where the login may not ask (sys/capabilities-self).
//
// Vault is asked, and no policy is read: which of its rules counts, Vault knows.
func (c *Client) Rights(ctx context.Context, uses []Use) (rights []Right, err error) {
	err = c.asLogin(ctx, "vault.Rights", func(l *login) error {
		rights = c.ownRights()
		for _, u := range uses {
			more, err := c.rightsOf(ctx, l, u)
			if err != nil {
				return err
			}
			rights = append(rights, more...)
		}
		rights = onePerPath(rights)
		for some := range slices.Chunk(rights, rightsAtOnce) {
			if err := c.capabilities(ctx, l, some); err != nil {
				return err
			}
		}
		return nil
	})
	return rights, err
}

// ownRights are those of the login whatever the configuration says: it mints by one
// role, looks after itself, and that is all.
func (c *Client) ownRights() []Right {
	needs := func(path string, capabilities ...string) Right {
		return Right{For: "the broker itself", Path: path, Needs: capabilities}
	}
	return append([]Right{
		needs("auth/token/create/"+c.role, "update"),
		needs("auth/token/lookup-self", "read"),
		needs("auth/token/renew-self", "update"),
		needs("auth/token/revoke-self", "update"),
		needs("sys/capabilities-self", "update"),
	}, unneeded("auth/token/create", "auth/token/create-orphan", "auth/token/create/"+madeUp(), "auth/token/roles/"+c.role,
		"auth/token/revoke-accessor", "cubbyhole/op/"+madeUp(), "identity/entity", "sys/auth/"+madeUp(), "sys/audit/"+madeUp(),
		"sys/mounts/"+madeUp(), "sys/policies/acl/"+madeUp(), "sys/raw/"+madeUp(), "sys/seal")...)
}

func unneeded(paths ...string) (rights []Right) {
	for _, p := range paths {
		rights = append(rights, Right{Path: p})
	}
	return rights
}

// madeUp is a name that nobody uses: what is allowed for it is allowed for any.
func madeUp() string { return "nobody-" + strings.ToLower(rand.Text()) }

var unused = regexp.MustCompile(`nobody-[a-z2-7]{26}`)

func (c *Client) rightsOf(ctx context.Context, l *login, u Use) ([]Right, error) {
	switch {
	case !u.Read.IsZero():
		return c.kvRights(ctx, l, u.For, u.Read, "read")
	case !u.Replace.IsZero():
		return c.kvRights(ctx, l, u.For, u.Replace, "patch", "read")
	case !u.Sign.IsZero():
		return transitRights(u.For, u.Sign, "export/signing-key", "sign"), nil
	case !u.Wrap.IsZero():
		return transitRights(u.For, u.Wrap, "export/encryption-key", "datakey/plaintext", "decrypt"), nil
	}
	at := u.Mount + "/oidc/"
	return append([]Right{{For: u.For, Path: at + "token/" + u.Role, Needs: []string{"read"}}},
		unneeded(at+"token/"+madeUp(), at+"role/"+u.Role)...), nil
}

// kvRights: a credential is used where it lies, and no other folder is read.
func (c *Client) kvRights(ctx context.Context, l *login, what string, ref secret.Ref, needs ...string) ([]Right, error) {
	e, err := c.engine(ctx, l, ref)
	if reason := fault.ReasonOf(err); reason == fault.VaultDenied || reason == fault.VaultUnexpected { // Vault hides mounts from who may do nothing there
		return []Right{{For: what, Path: ref.Path(), Needs: needs}}, nil
	}
	if err != nil {
		return nil, err
	}
	rights := []Right{{For: what, Path: e.path(ref), Needs: needs}}
	below := strings.TrimPrefix(ref.Path(), e.mount+"/")
	root := strings.TrimSuffix(e.path(ref), below)
	if _, rest, deep := strings.Cut(below, "/"); deep {
		rights = append(rights, unneeded(root+madeUp()+"/"+rest)...)
	}
	if e.version == 2 {
		rights = append(rights, unneeded(e.mount+"/metadata/"+below, e.mount+"/delete/"+below, e.mount+"/destroy/"+below)...)
	}
	return rights, nil
}

// transitRights: with this key, and with no other, these things are done; it is not
// seen and not changed.
func transitRights(what string, key secret.TransitRef, export string, does ...string) (rights []Right) {
	for _, do := range does {
		at := key.Mount() + "/" + do + "/"
		rights = append(rights, Right{For: what, Path: at + key.Key(), Needs: []string{"update"}})
		rights = append(rights, unneeded(at+madeUp())...)
	}
	return append(rights, unneeded(key.Mount()+"/keys/"+key.Key(), key.Mount()+"/"+export+"/"+key.Key())...)
}

// onePerPath joins what is needed at a path for more than one thing.
func onePerPath(rights []Right) (joined []Right) {
	at := map[string]int{}
	for _, r := range rights {
		i, known := at[r.Path]
		if !known {
			at[r.Path] = len(joined)
			joined = append(joined, r)
			continue
		}
		j := &joined[i]
		if j.For == "" {
			j.For = r.For
		}
		j.Needs = append(j.Needs, without(r.Needs, j.Needs)...)
		slices.Sort(j.Needs)
	}
	return joined
}

// capabilities fills in what the login may do.
func (c *Client) capabilities(ctx context.Context, l *login, rights []Right) error {
	const op = "vault.Rights"
	paths := make([]string, len(rights))
	for i, r := range rights {
		paths[i] = r.Path
	}
	body, err := json.Marshal(map[string][]string{"paths": paths})
	if err != nil {
		return err
	}
	a, err := c.plain(ctx, http.MethodPost, "sys/capabilities-self", l.token, body)
	if err := answered(op, a, err); err != nil {
		return err
	}
	data := a.object("data")
	for i := range rights {
		var has []string
		if json.Unmarshal(data[rights[i].Path], &has) != nil || len(has) == 0 {
			return fault.New(op, fault.VaultUnexpected, "an answer without the capabilities of a path")
		}
		slices.Sort(has)
		rights[i].Has = without(has, []string{"deny"})
	}
	return nil
}
