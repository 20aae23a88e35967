package schema

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// TestCompileHasNoLoader: the library is given no way out, should a reference
// ever come as far as that.
func TestCompileHasNoLoader(t *testing.T) {
	file := filepath.Join(t.TempDir(), "schema.json")
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { t.Error("it was fetched") }))
	defer server.Close()
	for _, uri := range []string{"file://" + file, server.URL, "https://example.com/s"} {
		for _, keyword := range []string{"$ref", "$dynamicRef", "$schema"} {
			if _, err := compile(map[string]any{keyword: uri}); err == nil || err.Error() != "the schema can not be compiled" {
				t.Errorf("%s %s: %v", keyword, uri, err)
			}
		}
	}
}
