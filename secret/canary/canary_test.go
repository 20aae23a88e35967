package canary_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/secret/canary"
)

const planted = `s3cr3t/"with"+quotes&more`

// TestFindsEveryForm is the proof that the harness can fail.
func TestFindsEveryForm(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.db")
	for name, leak := range map[string]func(*canary.Cage){
		"stdout":      func(*canary.Cage) { fmt.Println("x", planted) },
		"stderr":      func(*canary.Cage) { fmt.Fprintln(os.Stderr, planted) },
		"log":         func(c *canary.Cage) { c.Logger().Debug("m", "token", planted) },
		"value":       func(c *canary.Cage) { c.Value("v", struct{ s string }{planted}) },
		"error":       func(c *canary.Cage) { c.Value("v", fmt.Errorf("no: %s", planted)) },
		"file":        func(c *canary.Cage) { os.WriteFile(file, []byte("row "+planted), 0o600); c.File(filepath.Dir(file)) },
		"panic":       func(*canary.Cage) { panic("broken: " + planted) },
		"hex":         func(c *canary.Cage) { c.Bytes("b", []byte(hex.EncodeToString([]byte(planted)))) },
		"upper hex":   func(c *canary.Cage) { c.Bytes("b", []byte(strings.ToUpper(hex.EncodeToString([]byte(planted))))) },
		"URL":         func(c *canary.Cage) { c.Bytes("b", []byte(url.Values{"t": {planted}}.Encode())) },
		"JSON":        func(c *canary.Cage) { c.Bytes("b", fmt.Appendf(nil, "%q", planted)) },
		"cut":         func(c *canary.Cage) { c.Bytes("b", []byte(planted[:15])) },
		"base64 at 0": func(c *canary.Cage) { c.Bytes("b", []byte(base64.StdEncoding.EncodeToString([]byte(planted)))) },
		"base64 at 1": func(c *canary.Cage) { c.Bytes("b", []byte(base64.StdEncoding.EncodeToString([]byte("u"+planted+"z")))) },
		"base64url at 2": func(c *canary.Cage) {
			c.Bytes("b", []byte(base64.URLEncoding.EncodeToString([]byte("us"+planted+"tail"))))
		},
	} {
		if leaks := canary.Leaks(t, leak, planted); len(leaks) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}

// TestPlantedLater: a secret that is made while the function runs counts, and a
// harness without any is a mistake of its user.
func TestPlantedLater(t *testing.T) {
	if leaks := canary.Leaks(t, func(c *canary.Cage) { fmt.Println("made-just-now-17"); c.Plant("made-just-now-17") }); len(leaks) != 1 {
		t.Errorf("planted later: %q", leaks)
	}
	if leaks := canary.Leaks(t, func(*canary.Cage) {}); len(leaks) != 1 {
		t.Errorf("nothing planted: %q", leaks)
	}
}

func TestClean(t *testing.T) {
	leaks := canary.Leaks(t, func(c *canary.Cage) {
		fmt.Println("[secret]")
		c.Logger().Info("nothing here", "digest", "9f86d081884c7d65")
		c.Value("v", 7)
	}, planted)
	if len(leaks) != 0 {
		t.Error(leaks)
	}
}
