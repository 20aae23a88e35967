package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

const planted = "canary-7f3a-never-printed"

type hidden struct{ t secret.Text }
type shown struct {
	T secret.Text `json:"t"`
	P *secret.Text
}
type nested struct {
	h  hidden
	hp *hidden
	l  []secret.Text
	m  map[string]secret.Text
}

// TestNeverPrinted prints a Text in every position under every verb.
func TestNeverPrinted(t *testing.T) {
	text := secret.New(planted)
	h := hidden{text}
	canary.Run(t, func(c *canary.Cage) {
		for name, v := range map[string]any{
			"text": text, "pointer": &text, "hidden": h, "hidden pointer": &h, "shown": shown{text, &text},
			"nested": nested{h, &h, []secret.Text{text}, map[string]secret.Text{"k": text}},
			"slice":  []any{text, h}, "error": fmt.Errorf("with %v: %w", text, errors.New("x")),
		} {
			c.Value(name, v)
			for _, verb := range "vTtbcdoOqxXUeEfFgGsp" {
				c.Bytes(name, fmt.Appendf(nil, "%"+string(verb), v))
				c.Bytes(name, fmt.Appendf(nil, "%+"+string(verb), v))
				c.Bytes(name, fmt.Appendf(nil, "%#"+string(verb), v))
			}
			c.Logger().Info("line", "v", v)
			slog.New(slog.NewTextHandler(c.Writer(), nil)).Info("line", "v", v)
			fmt.Println(v)
		}
	}, planted)
}

func TestReveal(t *testing.T) {
	text := secret.New(planted)
	if text.Reveal() != planted || text.IsZero() {
		t.Error("a Text must reveal its value")
	}
	if zero := (secret.Text{}); zero.Reveal() != "" || !zero.IsZero() || zero.String() != "[secret]" {
		t.Error("the zero Text must be empty and print as any other")
	}
	if !text.Equal(secret.New(planted)) || text.Equal(secret.New(planted+"x")) || text.Equal(secret.Text{}) {
		t.Error("Equal must compare values")
	}
	b, err := json.Marshal(shown{T: text})
	if err != nil || !bytes.Contains(b, []byte(`"t":"[secret]"`)) {
		t.Errorf("json: %s, %v", b, err)
	}
}

func TestParseRef(t *testing.T) {
	for _, ok := range []string{"vault:kv/broker/subjects/7#token", "vault:secret/a#b", "vault:kv/a.b/c-d_e@f#token"} {
		ref, err := secret.ParseRef(ok)
		if err != nil || ref.String() != ok || ref.IsZero() {
			t.Errorf("%q: %v, %v", ok, ref, err)
		}
	}
	for _, bad := range []string{
		"", "vault:", "kv/broker#token", "vault:kv#token", "vault:kv/broker", "vault:kv/broker#", "vault:/a#b", "vault:kv//a#b",
		"vault:kv/../sys/seal#x", "vault:kv/a/..#x", "vault:kv/a/./b#x", "vault:kv/%2e%2e#x", "vault:kv/a?list=true#x", "vault:kv/a#x#y",
		"vault:kv/a b#x", "vault:kv/a\n#x", "vault:kv/ä#x", "vault:kv/a/#x", "VAULT:kv/a#x", "vault:kv/a..b#x",
	} {
		if ref, err := secret.ParseRef(bad); err == nil {
			t.Errorf("%q: accepted as %v", bad, ref)
		}
	}
}

// FuzzParseRef: what is accepted comes back unchanged and holds nothing that a
// URL could read as something else.
func FuzzParseRef(f *testing.F) {
	f.Add("vault:kv/broker/subjects/7#token")
	f.Add("vault:kv/../x#y")
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := secret.ParseRef(s)
		if err != nil {
			return
		}
		if ref.String() != s {
			t.Errorf("%q came back as %q", s, ref)
		}
		if bytes.ContainsAny([]byte(ref.Path()+ref.Field()), "?#% \\\r\n") || bytes.Contains([]byte(ref.Path()), []byte("..")) {
			t.Errorf("%q was accepted", s)
		}
	})
}
