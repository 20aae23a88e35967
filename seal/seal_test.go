package seal_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/secret"
)

func newKey() secret.Text {
	raw := make([]byte, 32)
	rand.Read(raw)
	return secret.New(base64.StdEncoding.EncodeToString(raw))
}

func box(t testing.TB, keys ...secret.Text) *seal.Box {
	t.Helper()
	var own []seal.Key
	for _, text := range keys {
		key, err := seal.Own(text)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, key)
	}
	return seal.New(own...)
}

// mustSeal seals what has to be sealed.
func mustSeal(t testing.TB, b *seal.Box, body []byte) []byte {
	t.Helper()
	sealed, err := b.Seal(body, "op")
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// bodies are short, long, already dense, empty, and such that begin like a mark.
func bodies() [][]byte {
	dense := make([]byte, 4096)
	rand.Read(dense)
	return [][]byte{nil, []byte(`{}`), []byte(`{"a":"` + strings.Repeat("canary-text ", 1000) + `"}`), append([]byte(`"`), dense...), []byte(" \t{}\n")}
}

func TestByteForByte(t *testing.T) {
	for name, b := range map[string]*seal.Box{"without a key": box(t), "with one": box(t, newKey()), "with two": box(t, newKey(), newKey()), "zero": {}} {
		for _, body := range bodies() {
			sealed := mustSeal(t, b, body)
			got, err := b.Open(t.Context(), sealed, "op")
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s: %.40q became %.40q, %v", name, body, got, err)
			}
			if len(body) > 10_000 && len(sealed) > len(body)/10 {
				t.Errorf("%s: %d bytes of %d", name, len(sealed), len(body))
			}
			if strings.HasPrefix(name, "with ") && len(body) > 2 && bytes.Contains(sealed, body) {
				t.Errorf("%s: the body can be read", name)
			}
		}
	}
}

// TestKeys: what opens what.
func TestKeys(t *testing.T) {
	old, current := newKey(), newKey()
	body := []byte(`{"content":[]}`)
	byOld := mustSeal(t, box(t, old), body)
	for _, tc := range []struct {
		name   string
		box    *seal.Box
		sealed []byte
		about  string
		want   error // nil: it opens; ErrClosed: no key; others: any error
	}{
		{"its own", box(t, old), byOld, "op", nil},
		{"rotated", box(t, current, old), byOld, "op", nil},
		{"key gone", box(t, current), byOld, "op", seal.ErrClosed},
		{"no key", box(t), byOld, "op", seal.ErrClosed},
		{"about another", box(t, old), byOld, "op2", errors.New("any")},
		{"cut", box(t, old), byOld[:len(byOld)-1], "op", errors.New("any")},
		{"cut in the head", box(t, old), byOld[:4], "op", errors.New("any")},
		{"one bit", box(t, old), flip(byOld, len(byOld)-1), "op", errors.New("any")},
		{"a bit of the nonce", box(t, old), flip(byOld, 10), "op", errors.New("any")},
		{"damaged deflate", box(t), []byte{1, 0xff, 0xff}, "op", errors.New("any")},
		{"from before", box(t, current), body, "op", nil},
	} {
		got, err := tc.box.Open(t.Context(), tc.sealed, tc.about)
		switch {
		case tc.want == nil && (err != nil || !bytes.Equal(got, body)),
			tc.want != nil && (err == nil || got != nil),
			errors.Is(tc.want, seal.ErrClosed) && !errors.Is(err, seal.ErrClosed):
			t.Errorf("%s: %q, %v", tc.name, got, err)
		}
	}
	for _, bad := range []string{"", "short", base64.StdEncoding.EncodeToString(make([]byte, 16)), strings.Repeat("x", 44)} {
		if _, err := seal.Own(secret.New(bad)); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

func FuzzOpen(f *testing.F) {
	key := newKey()
	b := box(f, key)
	for _, body := range bodies() {
		f.Add(mustSeal(f, b, body))
		f.Add(mustSeal(f, box(f), body))
	}
	f.Fuzz(func(t *testing.T, sealed []byte) {
		got, err := b.Open(t.Context(), sealed, "op")
		if err != nil && got != nil {
			t.Errorf("%v with a body", err)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	box := box(b, newKey())
	body := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("a result of the usual kind, ", 70) + `"}]}`)
	b.ReportAllocs()
	for b.Loop() {
		box.Seal(body, "op")
	}
}
