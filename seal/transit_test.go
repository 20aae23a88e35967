package seal_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/seal"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
)

// A keeper is what Vault is for a Box: it wraps by giving a name, and knows what it
// gave.
type keeper struct {
	made, unwrapped atomic.Int32
	err             error         // of both, if not nil
	takes           time.Duration // each answer
	mu              sync.Mutex
	longest         int // bytes that were to be unwrapped
	keys            map[string]secret.Text
}

func newKeeper() *keeper { return &keeper{keys: map[string]secret.Text{}} }

func (k *keeper) key(name string) seal.Key {
	return seal.InVault(seal.Transit{Name: name,
		DataKey: func(context.Context) (secret.Text, string, error) {
			n := k.made.Add(1)
			time.Sleep(k.takes)
			if k.err != nil {
				return secret.Text{}, "", k.err
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			wrapped := name + ":" + strings.Repeat("w", int(n))
			k.keys[wrapped] = newKey()
			return k.keys[wrapped], wrapped, nil
		},
		Unwrap: func(ctx context.Context, wrapped string) (secret.Text, error) {
			k.unwrapped.Add(1)
			if err := k.wait(ctx); err != nil {
				return secret.Text{}, err
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.longest = max(k.longest, len(wrapped))
			plain, ok := k.keys[wrapped]
			if k.err == nil && !ok {
				return plain, fault.New("keeper", fault.CredentialMissing, "")
			}
			return plain, k.err
		}})
}

// wait is as long as an answer takes, or as ctx lasts.
func (k *keeper) wait(ctx context.Context) error {
	select {
	case <-time.After(k.takes):
		return nil
	case <-ctx.Done():
		return fault.New("keeper", fault.VaultUnreachable, "given up")
	}
}

// process is a Box that has what it needs to seal.
func process(t testing.TB, keys ...seal.Key) *seal.Box {
	t.Helper()
	b := seal.New(keys...)
	if err := b.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEnvelope: what another process sealed opens, byte for byte, and only about
// the same.
func TestEnvelope(t *testing.T) {
	k := newKeeper()
	b := process(t, k.key("a"))
	for _, body := range bodies() {
		sealed := mustSeal(t, b, body)
		for name, box := range map[string]*seal.Box{"its own": b, "another process": seal.New(k.key("a")), "behind another key": seal.New(k.key("b"), k.key("a"))} {
			if got, err := box.Open(t.Context(), sealed, "op"); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s: %.40q became %.40q, %v", name, body, got, err)
			}
		}
		if len(body) > 2 && bytes.Contains(sealed, body) {
			t.Error("the body can be read")
		}
	}
	body := []byte(`{"content":[]}`)
	sealed := mustSeal(t, b, body)
	for name, row := range map[string]struct {
		box    *seal.Box
		sealed []byte
		about  string
		closed bool
	}{
		"no key":                     {box(t), sealed, "op", true},
		"a key of ours":              {box(t, newKey()), sealed, "op", true},
		"another key in Vault":       {seal.New(k.key("b")), sealed, "op", true},
		"Vault does not know it":     {seal.New(newKeeper().key("a")), sealed, "op", true},
		"another name for it":        {b, flip(sealed, 12), "op", true},
		"about another":              {b, sealed, "op2", false},
		"cut":                        {b, sealed[:len(sealed)-1], "op", false},
		"cut in the id":              {b, sealed[:4], "op", false},
		"cut in the length":          {b, sealed[:10], "op", false},
		"cut in the data key":        {b, sealed[:12], "op", false},
		"cut after the data key":     {b, sealed[:14], "op", false},
		"no data key":                {b, append(bytes.Clone(sealed[:9]), 0, 0), "op", false},
		"one bit":                    {b, flip(sealed, len(sealed)-1), "op", false},
		"as if it was a key of ours": {b, append([]byte{2}, sealed[1:]...), "op", true},
	} {
		got, err := row.box.Open(t.Context(), row.sealed, row.about)
		if err == nil || got != nil || errors.Is(err, seal.ErrClosed) != row.closed {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestVaultIsAway: its reason comes back, nothing is sealed, and later it works.
func TestVaultIsAway(t *testing.T) {
	k := newKeeper()
	key := k.key("a")
	sealed := mustSeal(t, process(t, k.key("a")), []byte("{}"))
	b := seal.New(key, k.key("b"))
	k.err = fault.New("keeper", fault.VaultSealed, "")
	if err := b.Ready(t.Context()); fault.ReasonOf(err) != fault.VaultSealed {
		t.Errorf("Ready = %v", err)
	}
	if got, err := b.Seal([]byte("{}"), "op"); err == nil || got != nil {
		t.Errorf("Seal = %q, %v", got, err)
	}
	if got, err := b.Open(t.Context(), sealed, "op"); fault.ReasonOf(err) != fault.VaultSealed || errors.Is(err, seal.ErrClosed) || got != nil {
		t.Errorf("Open = %q, %v", got, err)
	}
	k.err = nil
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := b.Open(t.Context(), sealed, "op"); err != nil || string(got) != "{}" {
		t.Errorf("Open = %q, %v", got, err)
	}
	for _, bad := range []secret.Text{{}, secret.New("short")} {
		b := seal.New(seal.InVault(seal.Transit{DataKey: func(context.Context) (secret.Text, string, error) { return bad, "w", nil }}))
		if err := b.Ready(t.Context()); fault.ReasonOf(err) != fault.VaultUnexpected {
			t.Errorf("a data key that is none: %v", err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("w", 1025)} {
		b := seal.New(seal.InVault(seal.Transit{DataKey: func(context.Context) (secret.Text, string, error) { return newKey(), bad, nil }}))
		if err := b.Ready(t.Context()); fault.ReasonOf(err) != fault.VaultUnexpected {
			t.Errorf("a wrapped one of %d bytes: %v", len(bad), err)
		}
	}
}

// TestOneQuestionForAll: who wants the same at one time waits for one answer, each as
// long as it likes, and the answer comes to the others when the first one leaves.
func TestOneQuestionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		k.takes = time.Second
		sealed := mustSeal(t, process(t, k.key("a")), []byte("{}"))
		b := seal.New(k.key("a"))
		for what, do := range map[string]func(context.Context) error{
			"Ready": b.Ready,
			"Open":  func(ctx context.Context) error { _, err := b.Open(ctx, sealed, "op"); return err },
		} {
			first, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
			errs := make(chan error, 64)
			go func() { errs <- do(first) }()
			synctest.Wait()
			for range 63 {
				go func() { errs <- do(t.Context()) }()
			}
			if err := <-errs; fault.ReasonOf(err) != fault.VaultUnreachable {
				t.Errorf("%s: who left: %v", what, err)
			}
			leave()
			for range 63 {
				if err := <-errs; err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		if k.made.Load() != 2 || k.unwrapped.Load() != 1 { // one to seal with, one for all
			t.Errorf("%d data keys were made, %d unwrapped", k.made.Load(), k.unwrapped.Load())
		}
	})
}

// TestDataKeyIsReplaced: after a day, without anybody waiting; while Vault is away the
// old one goes on, and Vault is asked once a minute.
func TestDataKeyIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper()
		b := process(t, k.key("a"))
		first := mustSeal(t, b, []byte("{}"))
		begin := func(after time.Duration, made int32) {
			t.Helper()
			time.Sleep(after)
			began := time.Now()
			if err := b.Ready(t.Context()); err != nil || !time.Now().Equal(began) {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			synctest.Wait()
			if got := k.made.Load(); got != made {
				t.Errorf("%d data keys were asked for, want %d", got, made)
			}
			mustSeal(t, b, []byte("{}"))
		}
		begin(24*time.Hour-1, 1)
		k.err = fault.New("keeper", fault.VaultUnreachable, "")
		begin(1, 2)
		begin(time.Minute-1, 2)
		begin(1, 3)
		k.err = nil
		begin(time.Minute, 4)
		begin(24*time.Hour-1, 4)
		k.takes = time.Second
		begin(1, 5)
		for range 2 { // its own, of days ago: asked for once
			if got, err := b.Open(t.Context(), first, "op"); err != nil || string(got) != "{}" || k.unwrapped.Load() != 1 {
				t.Errorf("%q, %v, %d unwrapped", got, err, k.unwrapped.Load())
			}
		}
		time.Sleep(24 * time.Hour)
		if _, err := b.Open(t.Context(), first, "op"); err != nil || k.unwrapped.Load() != 2 {
			t.Errorf("a day later: %v, %d unwrapped", err, k.unwrapped.Load())
		}
	})
}

// TestDataKeysAreBounded: more than are remembered open all the same.
func TestDataKeysAreBounded(t *testing.T) {
	k := newKeeper()
	var all [][]byte
	for range 300 {
		all = append(all, mustSeal(t, process(t, k.key("a")), []byte("{}")))
	}
	b := seal.New(k.key("a"))
	for range 2 {
		for _, sealed := range all {
			if _, err := b.Open(t.Context(), sealed, "op"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := k.unwrapped.Load(); n != 300+300-256 {
		t.Errorf("%d were unwrapped", n)
	}
}

// TestDataKeysAreNotPrinted: a Box shows none, nor does an error.
func TestDataKeysAreNotPrinted(t *testing.T) {
	k := newKeeper()
	b := process(t, k.key("a"))
	canary.Run(t, func(cage *canary.Cage) {
		for _, plain := range k.keys {
			cage.Plant(plain.Reveal())
		}
		cage.Value("box", *b)
		_, err := b.Open(t.Context(), flip(mustSeal(t, b, []byte("{}")), 30), "op")
		cage.Value("error", err)
	})
}

// What is in the file is whatever it is: a body opens whole or not at all, and Vault
// is asked for nothing longer than a data key.
func FuzzOpenEnvelope(f *testing.F) {
	k := newKeeper()
	b := process(f, k.key("a"))
	for _, body := range bodies() {
		f.Add(mustSeal(f, b, body))
	}
	another := mustSeal(f, process(f, k.key("a")), []byte("{}"))
	f.Add(another)
	f.Add(append(append(another[:9:9], 0x04, 0x01), make([]byte, 2000)...)) // a data key of 1025 bytes
	f.Fuzz(func(t *testing.T, sealed []byte) {
		got, err := b.Open(t.Context(), sealed, "op")
		if err != nil && got != nil {
			t.Errorf("%v with a body", err)
		}
		if k.longest > 1024 {
			t.Errorf("%d bytes were to be unwrapped", k.longest)
		}
	})
}
