package vaulttest

import (
	"context"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// client is the same ground through vault.Client.
func (r *rig) client(t *testing.T) {
	t.Run("holds", r.clientHolds)
	t.Run("credentials", r.clientCredentials)
	t.Run("killed by accessor", r.clientKilled)
	t.Run("approle", r.clientAppRole)
	t.Run("a role with a short life is not ready", r.clientShort)
	t.Run("lapses", r.clientLapses)
	t.Run("leaves nothing", r.clientLeaves)
	t.Run("an epoch for each", r.clientOwn)
	t.Run("16 at a time", r.clientMany)
	t.Run("a failed drop", r.clientFailedDrop)
}

// start runs a Client with a token like the broker's until the test ends.
func (r *rig) start(t *testing.T, change func(*vault.Config)) *vault.Client {
	t.Helper()
	c, _ := r.startUntil(t, change)
	return c
}

func (r *rig) startUntil(t *testing.T, change func(*vault.Config)) (*vault.Client, func()) {
	t.Helper()
	conf := vault.Config{Address: r.Address, Namespace: r.Namespace, Role: "broker-op", Auth: policy.VaultAuth{Method: "token"}}
	change(&conf)
	if conf.Auth.Method == "token" && conf.Token.IsZero() {
		conf.Token = secret.New(r.broker(t).value)
	}
	c, err := vault.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	stop := func() { cancel(); <-ended }
	t.Cleanup(stop)
	return c, stop
}

func (r *rig) ready(t *testing.T, c *vault.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func asItIs(*vault.Config) {}

func (r *rig) clientHolds(t *testing.T) {
	c := r.start(t, asItIs)
	r.ready(t, c)
	token := secret.New("token-of-an-operation")
	h, err := Hold(t.Context(), c, token)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := h.Read(t.Context()); err != nil || !got.Equal(token) {
			t.Errorf("Read = %v", err)
		}
	}
	for range 2 {
		if err := h.Drop(t.Context()); err != nil {
			t.Errorf("Drop = %v", err)
		}
	}
	if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
		t.Errorf("Read after Drop = %v", err)
	}
	if n := c.Pending(); n != 0 {
		t.Errorf("%d holds are pending", n)
	}
}

func (r *rig) clientCredentials(t *testing.T) {
	root := r.RootToken
	r.want(t, 200, root, "PUT", "kv/data/broker/c", document{"data": document{
		"token": "of-version-2", "empty": "", "number": 5, "null": nil, "list": []string{"a"}}})
	r.want(t, 204, root, "PUT", "kv1/broker/c", document{"token": "of-version-1", "number": 5})
	r.want(t, 200, root, "PUT", "suite/kv/data/broker/c", document{"data": document{"token": "of-two-segments"}})
	r.want(t, 200, root, "PUT", "kv/data/broker/groups/c", document{"data": document{"token": "deeper"}})
	r.want(t, 200, root, "PUT", "kv/data/broker/soft", document{"data": document{"token": "x"}})
	r.want(t, 204, root, "DELETE", "kv/data/broker/soft", nil)
	r.want(t, 200, root, "PUT", "kv/data/broker/hard", document{"data": document{"token": "x"}})
	r.want(t, 204, root, "DELETE", "kv/metadata/broker/hard", nil)

	c := r.start(t, asItIs)
	r.ready(t, c)
	for _, row := range []struct {
		ref, value string
		reason     fault.Reason
	}{
		{"vault:kv/broker/c#token", "of-version-2", ""},
		{"vault:kv1/broker/c#token", "of-version-1", ""},
		{"vault:kv/broker/groups/c#token", "deeper", ""},
		{"vault:suite/kv/broker/c#token", "of-two-segments", ""},
		{"vault:suite/kv/broker/absent#token", "", fault.CredentialMissing},
		{"vault:suite/kv/elsewhere#token", "", fault.VaultDenied},
		{"vault:suite/broker/c#token", "", fault.VaultDenied},
		{"vault:kv/kv/broker/c#token", "", fault.VaultDenied},
		{"vault:kv/broker/absent#token", "", fault.CredentialMissing},
		{"vault:kv1/broker/absent#token", "", fault.CredentialMissing},
		{"vault:kv/broker/soft#token", "", fault.CredentialMissing},
		{"vault:kv/broker/hard#token", "", fault.CredentialMissing},
		{"vault:kv/broker/c#absent", "", fault.CredentialMissing},
		{"vault:kv/broker/c#Token", "", fault.CredentialMissing},
		{"vault:kv/broker/c#empty", "", fault.CredentialMissing},
		{"vault:kv/broker/c#number", "", fault.CredentialMissing},
		{"vault:kv/broker/c#null", "", fault.CredentialMissing},
		{"vault:kv/broker/c#list", "", fault.CredentialMissing},
		{"vault:kv1/broker/c#number", "", fault.CredentialMissing},
		{"vault:kv/elsewhere#token", "", fault.VaultDenied},
		{"vault:absent/broker/c#token", "", fault.VaultDenied},
		{"vault:cubbyhole/op/c#token", "", fault.VaultDenied},
	} {
		ref, err := secret.ParseRef(row.ref)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Credential(t.Context(), ref)
		if (err == nil) != (row.reason == "") || err != nil && fault.ReasonOf(err) != row.reason {
			t.Errorf("%s: %v, want %q", row.ref, err, row.reason)
		}
		if got.Reveal() != row.value {
			t.Errorf("%s reads another value", row.ref)
		}
	}
}

func (r *rig) clientKilled(t *testing.T) {
	c := r.start(t, asItIs)
	r.ready(t, c)
	h, err := Hold(t.Context(), c, secret.New("token-of-an-operation"))
	if err != nil {
		t.Fatal(err)
	}
	r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": h.Epoch()})
	if _, err := h.Read(t.Context()); fault.ReasonOf(err) != fault.HoldGone {
		t.Errorf("Read = %v", err)
	}
	if err := h.Drop(t.Context()); err != nil {
		t.Errorf("Drop = %v", err)
	}
	r.ready(t, c)
	next, err := Hold(t.Context(), c, secret.New("token-of-the-next"))
	if err != nil {
		t.Fatal(err)
	}
	if next.Epoch() == h.Epoch() {
		t.Error("the next operation holds in the dead epoch")
	}
}

func (r *rig) clientAppRole(t *testing.T) {
	c := r.start(t, func(conf *vault.Config) {
		conf.Auth = policy.VaultAuth{Method: "approle", RoleID: r.roleID, SecretIDFile: r.secretIDFile}
	})
	r.ready(t, c)
	h, err := Hold(t.Context(), c, secret.New("token-of-an-operation"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Read(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.Drop(t.Context()); err != nil {
		t.Error(err)
	}
}

func (r *rig) clientShort(t *testing.T) {
	c := r.start(t, func(conf *vault.Config) { conf.Role = "suite-short" })
	const want = "vault.Ready: vault_not_ready: the minted epoch lives 2s, 75s are needed: set token_explicit_max_ttl on role suite-short"
	eventually(t, 5*time.Second, want, func() bool { err := c.Ready(); return err != nil && err.Error() == want })
}

func (r *rig) clientLeaves(t *testing.T) {
	before := r.Residue()
	c, stop := r.startUntil(t, asItIs)
	r.ready(t, c)
	h, err := Hold(t.Context(), c, secret.New("token-of-an-operation"))
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Residue(); n != before+1 {
		t.Errorf("the residue went from %d to %d by one hold", before, n)
	}
	stop()
	if n := r.Residue(); n != before {
		t.Errorf("%d entries are left", n-before)
	}
	if c.Ready() == nil {
		t.Error("it is ready after its end")
	}
	if err := h.Drop(t.Context()); err != nil {
		t.Errorf("Drop after the end = %v", err)
	}
}

// Hold reserves a hold and puts a token into it, which is there already.
func Hold(ctx context.Context, c *vault.Client, token secret.Text) (*vault.Hold, error) {
	h := c.Reserve(ctx)
	if err := h.Put(ctx, token); err != nil {
		return nil, err
	}
	return h, nil
}
