package subject_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/subject"
)

// TestKinds: each kind of credential gives its own token, and asks for the client's
// key only where a provider is asked.
func TestKinds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		for _, row := range []struct {
			actor, begins, kind string
			keys                int
		}{
			{"user:8", "stored-token-of-user-8", "", 0},
			{"service:nightly", "eyJ", "", 0},
			{"service:file", "token-in-a-file-of-a", "", 0},
			{"user:7", "access-1-", "urn:ietf:params:oauth:token-type:access_token", 1},
		} {
			keys := 0
			got, err := s.Subject(t.Context(), r.decide(row.actor), func(ctx context.Context) (exchange.Key, error) { keys++; return key(ctx) })
			if err != nil || !strings.HasPrefix(got.Token.Reveal(), row.begins) || got.Type != row.kind || keys != row.keys {
				t.Errorf("%s: another token, type %q, after %d keys: %v", row.actor, got.Type, keys, err)
			}
		}
		own, err := policytest.Decide(r.snapshot, "service:nightly", "own", "search")
		r.must(err)
		before := len(r.vault.Requests())
		got, err := s.Subject(t.Context(), own, func(context.Context) (exchange.Key, error) { panic("a key was asked for") })
		if err != nil || !got.Token.IsZero() || got.Type != "" || len(r.vault.Requests()) != before {
			t.Errorf("where the broker itself is the subject: %+v, after %d requests to Vault: %v", got, len(r.vault.Requests())-before, err)
		}
		if _, err := s.Subject(t.Context(), policy.Decision{}, key); fault.ReasonOf(err) != fault.NoGrant {
			t.Errorf("without a decision: %v", err)
		}
	})
}

// TestEnded: a JWT that has ended is not sent. Five seconds are left for clocks that
// do not agree. What is no JWT, nobody can tell.
func TestEnded(t *testing.T) {
	for name, row := range map[string]struct {
		token func(now time.Time) string
		want  fault.Reason
	}{
		"in the future": {func(now time.Time) string { return jwt(map[string]any{"exp": now.Add(time.Second).Unix()}) }, fault.None},
		"four seconds":  {func(now time.Time) string { return jwt(map[string]any{"exp": now.Add(-4 * time.Second).Unix()}) }, fault.None},
		"five seconds":  {func(now time.Time) string { return jwt(map[string]any{"exp": now.Add(-5 * time.Second).Unix()}) }, fault.SubjectExpired},
		"with a fraction": {func(now time.Time) string {
			return jwt(map[string]any{"exp": float64(now.Add(-time.Hour).Unix()) + 0.5})
		}, fault.SubjectExpired},
		"long ago":      {func(time.Time) string { return jwt(map[string]any{"exp": 1}) }, fault.SubjectExpired},
		"never":         {func(time.Time) string { return jwt(map[string]any{"sub": "7"}) }, fault.None},
		"exp is text":   {func(time.Time) string { return jwt(map[string]any{"exp": "1"}) }, fault.None},
		"exp is null":   {func(time.Time) string { return jwt(map[string]any{"exp": nil}) }, fault.None},
		"exp is huge":   {func(time.Time) string { return jwt(map[string]any{"exp": 1e300}) }, fault.None},
		"opaque":        {func(time.Time) string { return "an-opaque-token" }, fault.None},
		"dots":          {func(time.Time) string { return "v1.public.token" }, fault.None},
		"not base64url": {func(time.Time) string { return jwt(map[string]any{"exp": 1})[1:] + "=" }, fault.None},
		"exp twice": {func(time.Time) string {
			return "eyJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1,"exp":9999999999}`)) + ".x"
		}, fault.None},
		"a space":  {func(time.Time) string { return "a token" }, fault.CredentialRejected},
		"too long": {func(time.Time) string { return strings.Repeat("a", 16385) }, fault.CredentialRejected},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.broker()
				token := row.token(time.Now())
				r.vault.PutSecret("kv", "broker/stored", map[string]string{"token": token})
				r.must(os.WriteFile(r.file, []byte(token), 0o600))
				for _, actor := range []string{"user:8", "service:file"} {
					got, err := r.find(s, actor, budget)
					if reasonOf(err) != row.want || (err == nil) != got.Token.Equal(secret.New(token)) {
						t.Errorf("%s: %v, want %q", actor, err, row.want)
					}
				}
			})
		})
	}
}

// TestIssued: what Vault issues has to be a token of this moment.
func TestIssued(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		later, now := time.Now().Add(time.Minute).Unix(), time.Now().Unix()
		for name, row := range map[string]struct {
			token string
			want  fault.Reason
		}{
			"as it should be": {jwt(map[string]any{"sub": "entity", "exp": later}), fault.None},
			"no sub":          {jwt(map[string]any{"exp": later}), fault.CredentialRejected},
			"sub is a number": {jwt(map[string]any{"sub": 7, "exp": later}), fault.CredentialRejected},
			"no exp":          {jwt(map[string]any{"sub": "entity"}), fault.CredentialRejected},
			"exp is now":      {jwt(map[string]any{"sub": "entity", "exp": now}), fault.CredentialRejected},
			"opaque":          {"an-opaque-token", fault.CredentialRejected},
		} {
			r.vault.Fail("GET", "identity/", 1, devvault.Failure{Status: 200, Body: fmt.Sprintf(`{"data":{"token":%q}}`, row.token)})
			if _, err := r.find(s, "service:nightly", budget); reasonOf(err) != row.want {
				t.Errorf("%s: %v, want %q", name, err, row.want)
			}
		}
		first, _ := r.find(s, "service:nightly", budget)
		second, _ := r.find(s, "service:nightly", budget)
		if first.Token.IsZero() || first.Token.Equal(second.Token) {
			t.Error("two operations got one token, or none")
		}
	})
}

// TestFile: what may be a token in a file, and what is refused.
func TestFile(t *testing.T) {
	put := func(text string, mode os.FileMode) func(string) error {
		return func(path string) error {
			os.Remove(path)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	link := func(text string) func(string) error {
		return func(path string) error { // as a projected token is laid out
			target := filepath.Join(filepath.Dir(path), "..data")
			return cmpErr(os.WriteFile(target, []byte(text), 0o644), os.Remove(path), os.Symlink(target, path))
		}
	}
	for name, row := range map[string]struct {
		make func(path string) error
		want fault.Reason
		says string
	}{
		"plain":            {put("tok", 0o400), fault.None, ""},
		"a line":           {put("tok\n", 0o600), fault.None, ""},
		"a line of DOS":    {put("tok\r\n", 0o644), fault.None, ""},
		"a link":           {link("tok\n"), fault.None, ""},
		"two lines":        {put("tok\n\n", 0o600), fault.CredentialRejected, "not a token"},
		"the group writes": {put("tok", 0o620), fault.CredentialRejected, "chmod go-w"},
		"all write":        {put("tok", 0o602), fault.CredentialRejected, "chmod go-w"},
		"empty":            {put("", 0o600), fault.CredentialMissing, "is empty"},
		"a line end":       {put("\n", 0o600), fault.CredentialMissing, "is empty"},
		"absent":           {os.Remove, fault.CredentialMissing, "does not exist"},
		"a folder":         {func(p string) error { return cmpErr(os.Remove(p), os.Mkdir(p, 0o700)) }, fault.CredentialRejected, "not a regular file"},
		"a pipe":           {func(p string) error { return cmpErr(os.Remove(p), syscall.Mkfifo(p, 0o600)) }, fault.CredentialRejected, "not a regular file"},
		"most":             {put(strings.Repeat("t", 16384)+"\r\n", 0o600), fault.None, ""},
		"one more":         {put(strings.Repeat("t", 16385), 0o600), fault.CredentialRejected, "16384"},
		"a gigabyte":       {func(p string) error { return os.Truncate(p, 1<<30) }, fault.CredentialRejected, "16384"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				s := r.broker()
				r.must(row.make(r.file))
				got, err := r.find(s, "service:file", budget)
				if reasonOf(err) != row.want || err != nil && !strings.Contains(err.Error(), row.says) {
					t.Errorf("%v, want %q: …%s…", err, row.want, row.says)
				}
				if err == nil && strings.Trim(got.Token.Reveal(), "tok") != "" {
					t.Error("more than the token was read")
				}
			})
		})
	}
}

// It is read anew each time: what keeps it fresh replaces it.
func TestAFileIsReadEachTime(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.broker()
		for _, token := range []string{"the-first-token", "the-second-token"} {
			r.must(os.WriteFile(r.file, []byte(token), 0o600))
			if got, err := r.find(s, "service:file", budget); err != nil || got.Token.Reveal() != token {
				t.Errorf("%s: another was read, %v", token, err)
			}
		}
	})
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestSendable: a token is visible ASCII of a bounded length; every byte is
// tried.
func TestSendable(t *testing.T) {
	for b := range 256 {
		want := b > ' ' && b < 0x7f
		if got := subject.Sendable(secret.New("tok" + string([]byte{byte(b)}) + "en")); got != want {
			t.Errorf("byte %#x: %t", b, got)
		}
	}
	for length, want := range map[int]bool{0: false, 1: true, 16384: true, 16385: false} {
		if got := subject.Sendable(secret.New(strings.Repeat("a", length))); got != want {
			t.Errorf("length %d: %t", length, got)
		}
	}
}
