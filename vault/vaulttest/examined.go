package vaulttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// examined: what a Client finds out about the Vault that it works with, and about its
// own place in it.
func (r *rig) examined(t *testing.T) {
	t.Run("its health", func(t *testing.T) {
		h, err := r.start(t, asItIs).Health(t.Context())
		if err != nil || h.Version == "" || !h.Initialized || h.Sealed || h.Standby || h.Asked.Sub(h.Clock).Abs() > 2*time.Second+h.Took {
			t.Errorf("%+v, %v", h, err)
		}
	})
	t.Run("the login", func(t *testing.T) {
		l, err := r.approle(t).Login(t.Context())
		want := []string{"broker", "broker-oidc", "broker-refresh", "broker-results", "broker-transit"}
		if err != nil || !l.Renewable || l.Uses != 0 || l.Whole != time.Hour || l.Life > l.Whole || l.Life < l.Whole-time.Minute || !slices.Equal(l.Policies, want) {
			t.Errorf("%+v, %v", l, err)
		}
	})
	t.Run("an epoch", r.rehearsed)
	t.Run("the rights that setup.sh gives", r.rightsAsSetUp)
	t.Run("other rights", r.otherRights)
}

func (r *rig) rehearsed(t *testing.T) {
	c := r.start(t, asItIs)
	r.ready(t, c)
	got, err := c.Rehearse(t.Context())
	if err != nil || !lives(got.Life.Seconds(), 75) || got.Orphan || got.Renewable || !slices.Equal(got.Policies, []string{"broker-op"}) || len(got.Odd) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	uncapped := r.start(t, func(conf *vault.Config) { conf.Role = "suite-uncapped" })
	r.ready(t, uncapped)
	if got, err := uncapped.Rehearse(t.Context()); err != nil || !lives(got.Life.Seconds(), 150) {
		t.Errorf("of a role without a cap: %+v, %v", got, err)
	}
	r.want(t, 204, r.RootToken, "PUT", "sys/policies/acl/suite-loose", document{"policy": `
		path "cubbyhole/*" { capabilities = ["create", "read", "update", "list"] }
		path "auth/token/lookup-self" { capabilities = ["read"] }
		path "auth/token/revoke-self" { capabilities = ["update"] }`})
	r.want(t, 204, r.RootToken, "POST", "auth/token/roles/suite-short", document{"allowed_policies": "suite-loose", "orphan": true, "renewable": true,
		"token_no_default_policy": true, "token_explicit_max_ttl": "75s"})
	loose := r.start(t, func(conf *vault.Config) { conf.Role = "suite-short" })
	r.ready(t, loose)
	got, err = loose.Rehearse(t.Context())
	var odd []string
	for _, o := range got.Odd {
		odd = append(odd, o.Step)
	}
	slices.Sort(odd)
	// devvault has no listing; real Vault answers 404 to a list of nothing, and 200 to one of something
	if err != nil || !got.Orphan || !got.Renewable || !slices.Equal(odd, []string{"drop", "list", "look itself up", "put again"}) {
		t.Errorf("of a role that is too loose: %+v, %v", got, err)
	}
}

// uses are what a configuration can have the broker do, and setup.sh has allowed.
func uses(t *testing.T) []vault.Use {
	return []vault.Use{
		{For: "a grant", Read: reference(t, "vault:kv/broker/subjects/7#token")},
		{For: "another field", Read: reference(t, "vault:kv/broker/subjects/7#other")},
		{For: "a client", Read: reference(t, "vault:kv/broker/client#key")},
		{For: "a rotation", Replace: reference(t, "vault:kv/broker/refresh/7#token")},
		{For: "an assertion", Sign: transitRef(t, "vault-transit:transit/"+transitKey)},
		{For: "results", Wrap: transitRef(t, "vault-transit:transit/"+resultsKey)},
		{For: "an issue", Mount: "identity", Role: oidcRole},
	}
}

func (r *rig) rightsAsSetUp(t *testing.T) {
	rights, err := r.approle(t).Rights(t.Context(), uses(t))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, right := range rights {
		if len(right.Lacks()) > 0 || len(right.Excess()) > 0 {
			t.Errorf("%+v", right)
		}
		if paths[right.Path] {
			t.Errorf("%s is there twice", right.Path)
		}
		paths[right.Path] = true
	}
	for _, path := range []string{"kv/data/broker/subjects/7", "kv/metadata/broker/subjects/7", "transit/sign/" + transitKey, "transit/keys/" + resultsKey, "identity/oidc/token/" + oidcRole} {
		if !paths[path] {
			t.Errorf("%s was not asked for", path)
		}
	}
}

// otherRights: a login with less, with more, with everything, and one that may not ask.
func (r *rig) otherRights(t *testing.T) {
	r.want(t, 204, r.RootToken, "PUT", "sys/policies/acl/suite-wide", document{"policy": `
		path "sys/capabilities-self" { capabilities = ["update"] }
		path "auth/token/create/*" { capabilities = ["create", "update"] }
		path "auth/token/lookup-self" { capabilities = ["read"] }
		path "kv/data/+/+/+" { capabilities = ["read", "update"] }
		path "transit/sign/+" { capabilities = ["update"] }`})
	rights, err := r.as(t, "suite-wide").Rights(t.Context(), uses(t))
	if err != nil {
		t.Fatal(err)
	}
	lacks, excess := map[string]string{}, map[string]string{}
	for _, right := range rights {
		path := right.Pattern()
		if l := right.Lacks(); len(l) > 0 {
			lacks[path] = strings.Join(l, " ")
		}
		if e := right.Excess(); len(e) > 0 {
			excess[path] = strings.Join(e, " ")
		}
	}
	for path, want := range map[string]string{"auth/token/renew-self": "update", "auth/token/revoke-self": "update", "kv/data/broker/client": "read",
		"kv/data/broker/refresh/7": "patch", "transit/decrypt/" + resultsKey: "update", "identity/oidc/token/" + oidcRole: "read"} {
		if lacks[path] != want {
			t.Errorf("%s: it lacks %q, want %q", path, lacks[path], want)
		}
	}
	for path, want := range map[string]string{"auth/token/create/broker-op": "create", "auth/token/create/ANY": "create update", "kv/data/broker/subjects/7": "update",
		"kv/data/ANY/subjects/7": "read update", "transit/sign/ANY": "update", "transit/sign/" + transitKey: "", "sys/seal": ""} {
		if excess[path] != want {
			t.Errorf("%s: %q is too much, want %q", path, excess[path], want)
		}
	}

	if r.Namespace == "" { // no other has a root
		rights, err = r.as(t, "root").Rights(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, right := range rights {
			if !slices.Equal(right.Has, []string{"root"}) {
				t.Errorf("root has %q at %s", right.Has, right.Path)
			}
		}
	}
	r.want(t, 204, r.RootToken, "PUT", "sys/policies/acl/suite-mute", document{"policy": `
		path "auth/token/create/broker-op" { capabilities = ["update"] }
		path "auth/token/lookup-self" { capabilities = ["read"] }`})
	if _, err := r.as(t, "suite-mute").Rights(t.Context(), nil); fault.ReasonOf(err) != fault.VaultDenied {
		t.Errorf("one that may not ask: %v", err)
	}
}

// as runs a Client that logs in with a token of one policy.
func (r *rig) as(t *testing.T, policy string) *vault.Client {
	t.Helper()
	token := issued(t, r.want(t, 200, r.RootToken, "POST", "auth/token/create", document{
		"policies": []string{policy}, "no_default_policy": true, "ttl": "1h", "no_parent": true}))
	c := r.start(t, func(conf *vault.Config) { conf.Token = secret.New(token.value) })
	r.ready(t, c)
	return c
}
