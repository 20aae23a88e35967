//go:build interop

package counterparts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"onbehalf.internal/broker/internal/counterparts"
)

// TestKeycloak also looks whether a run leaves anything in the cache.
func TestKeycloak(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	realm(t, counterparts.Keycloak(t))
	cache := filepath.Join(home, ".cache", "onbehalf-broker")
	if other := os.Getenv("BROKER_CACHE"); other != "" {
		cache = other
	}
	err = filepath.WalkDir(filepath.Join(cache, "keycloak-26.7.3"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.ModTime().After(begun) {
			t.Errorf("it wrote %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
