package vaulttest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/vault"
)

// What setup.sh is told to make.
const (
	oidcRole   = "suite-user-7"
	transitKey = "suite-client"
	resultsKey = "suite-results"
)

// approle runs a Client that logs in as a broker does: with every policy that setup.sh
// has given to the role, and with an entity.
func (r *rig) approle(t *testing.T) *vault.Client {
	t.Helper()
	c := r.start(t, func(conf *vault.Config) {
		conf.Auth = policy.VaultAuth{Method: "approle", RoleID: r.roleID, SecretIDFile: r.secretIDFile}
	})
	r.ready(t, c)
	return c
}

// entered is a login's token, for requests that a Client does not make.
func (r *rig) entered(t *testing.T) string {
	t.Helper()
	return issued(t, r.want(t, 200, nobody, "PUT", "auth/approle/login", document{"role_id": r.roleID, "secret_id": r.secretID(t)})).value
}

func reference(t *testing.T, s string) secret.Ref {
	t.Helper()
	ref, err := secret.ParseRef(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func cas(version int, data document) document {
	return document{"options": document{"cas": version}, "data": data}
}

// rotation: a field of a KV version 2 secret is replaced at a known version.
func (r *rig) rotation(t *testing.T) {
	root, login := r.RootToken, r.entered(t)
	const path = "kv/data/broker/refresh/raw"
	r.want(t, 200, root, "PUT", path, document{"data": document{"refresh": "first", "note": "kept"}})
	r.steps(t, "a patch at the version that is there, once",
		step{200, login, "PATCH", path, cas(1, document{"refresh": "second"})}, step{400, login, "PATCH", path, cas(1, document{"refresh": "third"})})
	r.steps(t, "the same for a whole write", step{400, root, "PUT", path, cas(1, document{"refresh": "x"})})
	t.Run("a patch keeps what it does not name and removes what is null", func(t *testing.T) {
		r.want(t, 200, login, "PATCH", path, cas(2, document{"refresh_claim": "somebody"}))
		r.want(t, 200, login, "PATCH", path, cas(3, document{"refresh_claim": nil}))
		s := r.want(t, 200, login, "GET", path, nil)
		fields, _ := at(s.body, "data", "data").(document)
		if s.number("data", "metadata", "version") != 4 || len(fields) != 2 || fields["refresh"] != "second" || fields["note"] != "kept" {
			t.Errorf("version %v with %d fields", s.number("data", "metadata", "version"), len(fields))
		}
	})
	r.steps(t, "a patch makes nothing", step{404, login, "PATCH", "kv/data/broker/refresh/absent", cas(0, document{"refresh": "x"})},
		step{404, login, "GET", "kv/data/broker/refresh/absent", nil})
	r.steps(t, "KV version 1 has no patch", step{405, root, "PATCH", "kv1/broker/one", document{"token": "x"}})
	r.steps(t, "the login replaces what is below refresh/ and does nothing else",
		step{403, login, "PUT", path, cas(4, document{"refresh": "x"})}, step{403, login, "DELETE", path, nil},
		step{403, login, "DELETE", "kv/metadata/broker/refresh/raw", nil},
		step{403, login, "PATCH", "kv/data/broker/subjects/7", cas(1, document{"token": "x"})},
		step{403, login, "PATCH", "kv/data/broker/refresh/a/b", cas(1, document{"token": "x"})},
		step{200, login, "GET", "kv/data/broker/subjects/7", nil})

	c := r.approle(t)
	t.Run("client reads and writes", func(t *testing.T) { r.clientRotates(t, c) })
	t.Run("client refuses", func(t *testing.T) { r.clientRefusesToRotate(t, c) })
	t.Run("of many writers at one version one writes", func(t *testing.T) { r.clientRaces(t, c) })
}

func (r *rig) clientRotates(t *testing.T, c *vault.Client) {
	r.want(t, 200, r.RootToken, "PUT", "kv/data/broker/refresh/c", document{"data": document{"refresh": "first", "note": "kept"}})
	ref := reference(t, "vault:kv/broker/refresh/c#refresh")
	for i, next := range []vault.Version{
		{Value: secret.New("first"), Claim: "somebody"},
		{Value: secret.New("second"), Claim: "somebody"},
		{Value: secret.New("quote\" \u2028 \U0001F511")},
	} {
		before, err := c.ReadVersioned(t.Context(), ref)
		if err != nil || before.Number != i+1 {
			t.Fatalf("it is at version %d, %v", before.Number, err)
		}
		next.Number = before.Number
		said, err := c.WriteCAS(t.Context(), ref, next)
		if err != nil {
			t.Fatal(err)
		}
		there, err := c.ReadVersioned(t.Context(), ref)
		if err != nil || there.Number != i+2 || there.Number != said.Number || there.Claim != next.Claim || said.Claim != next.Claim ||
			!there.Value.Equal(next.Value) || !said.Value.Equal(next.Value) {
			t.Errorf("after a write it is at version %d with claim %q, or has another value: %v", there.Number, there.Claim, err)
		}
	}
	fields, _ := at(r.want(t, 200, r.RootToken, "GET", "kv/data/broker/refresh/c", nil).body, "data", "data").(document)
	if _, claimed := fields["refresh_claim"]; claimed || fields["note"] != "kept" {
		t.Error("a claim was left, or another field is gone")
	}
}

func (r *rig) clientRefusesToRotate(t *testing.T, c *vault.Client) {
	root := r.RootToken
	r.want(t, 200, root, "PUT", "kv/data/broker/refresh/d", document{"data": document{"refresh": "x", "number": 5, "empty": ""}})
	r.want(t, 200, root, "PUT", "kv/data/broker/refresh/soft", document{"data": document{"refresh": "x"}})
	r.want(t, 204, root, "DELETE", "kv/data/broker/refresh/soft", nil)
	r.want(t, 204, root, "PUT", "kv1/broker/d", document{"refresh": "x"})
	for _, row := range []struct {
		ref         string
		version     int
		read, write fault.Reason
	}{
		{"vault:kv/broker/refresh/d#refresh", 2, "", fault.CredentialChanged},
		{"vault:kv/broker/refresh/d#refresh", 0, "", fault.CredentialChanged},
		{"vault:kv/broker/refresh/d#absent", 2, fault.CredentialMissing, fault.CredentialChanged},
		{"vault:kv/broker/refresh/d#number", 2, fault.CredentialMissing, fault.CredentialChanged},
		{"vault:kv/broker/refresh/d#empty", 2, fault.CredentialMissing, fault.CredentialChanged},
		{"vault:kv/broker/refresh/absent#refresh", 1, fault.CredentialMissing, fault.VaultUnexpected},
		{"vault:kv/broker/refresh/soft#refresh", 1, fault.CredentialMissing, fault.VaultUnexpected},
		{"vault:kv/broker/subjects/7#token", 1, "", fault.VaultDenied},
		{"vault:kv/elsewhere#token", 1, fault.VaultDenied, fault.VaultDenied},
	} {
		ref := reference(t, row.ref)
		if _, err := c.ReadVersioned(t.Context(), ref); reasonOf(err) != row.read {
			t.Errorf("%s: ReadVersioned = %v, want %q", row.ref, err, row.read)
		}
		if _, err := c.WriteCAS(t.Context(), ref, vault.Version{Value: secret.New("y"), Number: row.version}); reasonOf(err) != row.write {
			t.Errorf("%s: WriteCAS = %v, want %q", row.ref, err, row.write)
		}
	}
	one := r.start(t, asItIs) // may read what is at kv1/, and patch what is at suite/kv/
	r.ready(t, one)
	r.want(t, 200, root, "PUT", "suite/kv/data/broker/d", document{"data": document{"refresh": "x"}})
	two := reference(t, "vault:suite/kv/broker/d#refresh")
	if v, err := one.ReadVersioned(t.Context(), two); err != nil {
		t.Errorf("below a mount of two segments: ReadVersioned = %v", err)
	} else if _, err := one.WriteCAS(t.Context(), two, vault.Version{Value: secret.New("y"), Number: v.Number}); err != nil {
		t.Errorf("below a mount of two segments: WriteCAS = %v", err)
	}
	if _, err := one.ReadVersioned(t.Context(), reference(t, "vault:kv1/broker/d#refresh")); reasonOf(err) != fault.CredentialUnversioned {
		t.Errorf("in version 1: ReadVersioned = %v", err)
	}
	if _, err := one.WriteCAS(t.Context(), reference(t, "vault:kv1/broker/d#refresh"), vault.Version{Value: secret.New("y"), Number: 1}); reasonOf(err) != fault.CredentialUnversioned {
		t.Errorf("in version 1: WriteCAS = %v", err)
	}
	if got, err := c.ReadVersioned(t.Context(), reference(t, "vault:kv/broker/refresh/d#refresh")); err != nil || got.Number != 1 {
		t.Errorf("what was refused was written: version %d, %v", got.Number, err)
	}
}

func (r *rig) clientRaces(t *testing.T, c *vault.Client) {
	r.want(t, 200, r.RootToken, "PUT", "kv/data/broker/refresh/race", document{"data": document{"refresh": "x"}})
	ref := reference(t, "vault:kv/broker/refresh/race#refresh")
	for version := 1; version <= 5; version++ {
		results := make(chan error, 8)
		var wg sync.WaitGroup
		for range cap(results) {
			wg.Go(func() {
				_, err := c.WriteCAS(context.WithoutCancel(t.Context()), ref, vault.Version{Value: secret.New("y"), Number: version})
				results <- err
			})
		}
		wg.Wait()
		close(results)
		won := 0
		for err := range results {
			if err == nil {
				won++
			} else if reasonOf(err) != fault.CredentialChanged {
				t.Errorf("a lost race: %v", err)
			}
		}
		if won != 1 {
			t.Errorf("at version %d %d writers wrote", version, won)
		}
	}
}

func reasonOf(err error) fault.Reason {
	if err == nil {
		return fault.None
	}
	return fault.ReasonOf(err)
}

// oidc: Vault issues tokens of the login's entity by one role.
func (r *rig) oidc(t *testing.T) {
	login := r.entered(t)
	r.steps(t, "by its role alone", step{200, login, "GET", "identity/oidc/token/" + oidcRole, nil},
		step{403, login, "GET", "identity/oidc/token/another", nil}, step{403, login, "GET", "identity/oidc/role/" + oidcRole, nil},
		step{403, login, "POST", "identity/oidc/role/" + oidcRole, document{"key": "broker", "ttl": "10h"}})
	r.steps(t, "not without an entity", step{400, r.RootToken, "GET", "identity/oidc/token/" + oidcRole, nil})
	r.steps(t, "not by a role that is not there", step{400, r.RootToken, "GET", "identity/oidc/token/absent", nil})

	c := r.approle(t)
	t.Run("client", func(t *testing.T) {
		seen := map[string]bool{}
		for range 2 {
			token, err := c.IssueOIDC(t.Context(), "identity", oidcRole)
			if err != nil {
				t.Fatal(err)
			}
			said := payload(t, token.Reveal())
			life := time.Duration(number(said, "exp")-number(said, "iat")) * time.Second
			if said["sub"] == "" || said["sub"] == nil || life != 5*time.Minute {
				t.Errorf("its sub is %v, it lives %v", said["sub"], life)
			}
			seen[token.Reveal()] = true
		}
		if len(seen) != 2 {
			t.Error("two operations got one token")
		}
	})
	bare := r.start(t, asItIs)
	r.ready(t, bare)
	for name, row := range map[string]struct {
		client      *vault.Client
		mount, role string
		want        fault.Reason
	}{
		"another role":         {c, "identity", "another", fault.VaultDenied},
		"no identity engine":   {c, "kv", oidcRole, fault.VaultDenied},
		"no name":              {c, "identity", "../role/x", fault.CredentialMissing},
		"a mount that is none": {c, "identity/oidc", oidcRole, fault.CredentialMissing},
		"without the policy":   {bare, "identity", oidcRole, fault.VaultDenied},
	} {
		if token, err := row.client.IssueOIDC(t.Context(), row.mount, row.role); reasonOf(err) != row.want || !token.IsZero() {
			t.Errorf("%s: IssueOIDC = %v, want %q", name, err, row.want)
		}
	}
}

func payload(t *testing.T, token string) document {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	var said document
	if err != nil || json.Unmarshal(b, &said) != nil {
		t.Fatal("a token without claims")
	}
	return said
}

func number(d document, name string) float64 { v, _ := d[name].(float64); return v }

// transit: a key signs in Vault, for one algorithm of JWS, and stays there.
func (r *rig) transit(t *testing.T) {
	root, login := r.RootToken, r.entered(t)
	sign := "transit/sign/" + transitKey
	order := document{"input": base64.StdEncoding.EncodeToString([]byte("header.payload")), "marshaling_algorithm": "jws", "hash_algorithm": "sha2-256"}
	r.steps(t, "the login signs with its key and does nothing else", step{200, login, "PUT", sign, order},
		step{403, login, "PUT", "transit/sign/another", order}, step{403, login, "GET", "transit/keys/" + transitKey, nil},
		step{403, login, "PUT", "transit/keys/" + transitKey + "/rotate", document{}}, step{403, login, "GET", "transit/export/signing-key/" + transitKey, nil})
	r.steps(t, "what is no order is 400", step{400, root, "PUT", sign, document{"input": "%"}}, step{400, root, "PUT", "transit/sign/absent", order})

	c := r.start(t, asItIs) // may sign with every key
	r.ready(t, c)
	for _, kind := range []string{"rsa-2048", "ecdsa-p256", "ecdsa-p384", "ed25519"} {
		if r.ask(t, root, "GET", "transit/keys/suite-"+kind, nil).status != 200 {
			r.want(t, 200, root, "POST", "transit/keys/suite-"+kind, document{"type": kind})
		}
		t.Run(kind, func(t *testing.T) { r.clientSigns(t, c, kind) })
	}
	for name, row := range map[string]struct {
		key, alg string
		want     fault.Reason
	}{
		"no key":                {"vault-transit:transit/suite-absent", "ES256", fault.CredentialMissing},
		"no engine":             {"vault-transit:absent/x", "ES256", fault.VaultDenied},
		"HS256":                 {"vault-transit:transit/suite-ecdsa-p256", "HS256", fault.CredentialRejected},
		"none":                  {"vault-transit:transit/suite-ecdsa-p256", "none", fault.CredentialRejected},
		"no alg":                {"vault-transit:transit/suite-ecdsa-p256", "", fault.CredentialRejected},
		"RS256 on a curve":      {"vault-transit:transit/suite-ecdsa-p256", "RS256", fault.CredentialRejected},
		"PS256 on Ed25519":      {"vault-transit:transit/suite-ed25519", "PS256", fault.CredentialRejected},
		"ES256 on another size": {"vault-transit:transit/suite-ecdsa-p384", "ES256", fault.CredentialRejected},
		"ES256 with RSA":        {"vault-transit:transit/suite-rsa-2048", "ES256", fault.CredentialRejected},
	} {
		if got, err := c.Sign(t.Context(), transitRef(t, row.key), row.alg, []byte("header.payload")); reasonOf(err) != row.want || got != nil {
			t.Errorf("%s: Sign = %v, want %q", name, err, row.want)
		}
	}
}

func transitRef(t *testing.T, s string) secret.TransitRef {
	t.Helper()
	ref, err := secret.ParseTransitRef(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// clientSigns holds signatures against the key's public half, also after the key was rotated.
func (r *rig) clientSigns(t *testing.T, c *vault.Client, kind string) {
	input := []byte("header.payload\x00\xff")
	for range 2 {
		public := r.publicKey(t, "suite-"+kind)
		for alg, verifies := range verifiers(public, input) {
			signature, err := c.Sign(t.Context(), transitRef(t, "vault-transit:transit/suite-"+kind), alg, input)
			if err != nil || !verifies(signature) {
				t.Errorf("%s: %d bytes that do not verify, %v", alg, len(signature), err)
			}
		}
		r.want(t, 200, r.RootToken, "POST", "transit/keys/suite-"+kind+"/rotate", document{})
	}
}

func verifiers(public any, input []byte) map[string]func([]byte) bool {
	sum256, sum384 := sha256.Sum256(input), sha512.Sum384(input)
	halves := func(signature []byte) (r, s *big.Int) {
		half := len(signature) / 2
		return new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
	}
	switch public := public.(type) {
	case *rsa.PublicKey:
		return map[string]func([]byte) bool{
			"RS256": func(s []byte) bool { return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum256[:], s) == nil },
			"PS256": func(s []byte) bool {
				return rsa.VerifyPSS(public, crypto.SHA256, sum256[:], s, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
			},
		}
	case ed25519.PublicKey:
		return map[string]func([]byte) bool{"EdDSA": func(s []byte) bool { return ed25519.Verify(public, input, s) }}
	case *ecdsa.PublicKey:
		if public.Curve.Params().BitSize == 384 {
			return map[string]func([]byte) bool{"ES384": func(sig []byte) bool { r, s := halves(sig); return ecdsa.Verify(public, sum384[:], r, s) }}
		}
		return map[string]func([]byte) bool{"ES256": func(sig []byte) bool { r, s := halves(sig); return ecdsa.Verify(public, sum256[:], r, s) }}
	}
	return map[string]func([]byte) bool{"a key of an unknown kind": func([]byte) bool { return false }}
}

// publicKey reads the newest version: PEM, or the 32 bytes of Ed25519 in base64.
func (r *rig) publicKey(t *testing.T, name string) any {
	t.Helper()
	s := r.want(t, 200, r.RootToken, "GET", "transit/keys/"+name, nil)
	keys, _ := at(s.body, "data", "keys").(document)
	newest, _ := keys[big.NewInt(int64(s.number("data", "latest_version"))).String()].(document)
	text, _ := newest["public_key"].(string)
	if block, _ := pem.Decode([]byte(text)); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return ed25519.PublicKey(raw)
}
