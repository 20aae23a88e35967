// These tests run setup.sh. That its policies allow what the broker needs, and
// nothing else, is tested by vault/vaulttest.

package deployvault_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testhttp"
)

// setUp runs the script from another folder.
func setUp(t *testing.T, address, token string, args ...string) (out string, ok bool) {
	t.Helper()
	script, err := filepath.Abs("setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{script}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "VAULT_ADDR=" + address, "VAULT_TOKEN=" + token, "VAULT_NAMESPACE=" + os.Getenv("TEST_NAMESPACE")}
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

func TestSetUpOnDevvault(t *testing.T) {
	dev := devvault.New(devvault.Options{})
	url, err := dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	testSetUp(t, url, dev.RootToken())
}

func testSetUp(t *testing.T, address, token string) {
	file := filepath.Join(t.TempDir(), "secret_id")
	first, ok := setUp(t, address, token, "-a", file)
	if !ok || !regexp.MustCompile(`(?m)^role_id: \S{8,}$`).MatchString(first) {
		t.Fatalf("it says:\n%s", first)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("the secret_id's file: %v, %v", info, err)
	}
	id, err := os.ReadFile(file)
	if err != nil || len(bytes.TrimSpace(id)) < 8 || bytes.ContainsAny(id, " \n{\"") {
		t.Errorf("the secret_id has %d bytes, %v", len(id), err)
	}

	again, ok := setUp(t, address, token, "-a", file)
	if !ok || !strings.Contains(again, "secret_id: kept") {
		t.Errorf("again it says:\n%s", again)
	}
	if kept, _ := os.ReadFile(file); !bytes.Equal(kept, id) {
		t.Error("again it wrote another secret_id")
	}
	line := regexp.MustCompile(`(?m)^role_id: .*$`)
	if line.FindString(first) != line.FindString(again) {
		t.Error("again there is another role_id")
	}
	if plain, ok := setUp(t, address, token); !ok || strings.Contains(plain, "role_id") {
		t.Errorf("without -a it says:\n%s", plain)
	}
	more, ok := setUp(t, address, token, "-a", file, "-r", "-o", "broker-user-7", "-t", "broker-client", "-s", "broker")
	repeated, ok2 := setUp(t, address, token, "-a", file, "-r", "-o", "broker-user-7", "-t", "broker-client", "-s", "broker")
	if !ok || !ok2 || more != repeated {
		t.Errorf("with more policies it says:\n%s\nand then:\n%s", more, repeated)
	}
	for _, policy := range []string{"broker-refresh", "broker-oidc", "broker-transit", "broker-results"} {
		if strings.Contains(first, policy) || !strings.Contains(more, "policy "+policy+": set\n") {
			t.Errorf("of policy %s it says:\n%s\nand then:\n%s", policy, first, more)
		}
	}
	for _, out := range []string{first, again, more} {
		if strings.Contains(out, string(id)) || strings.Contains(out, token) {
			t.Error("a secret is in its output")
		}
	}
	if _, err := os.Stat(file + ".new"); err == nil {
		t.Error("a file is left over")
	}
}

// What is set up in a namespace is set up nowhere else.
func TestSetUpInANamespace(t *testing.T) {
	dev := devvault.New(devvault.Options{})
	url, err := dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	t.Setenv("TEST_NAMESPACE", "team")
	if out, ok := setUp(t, url, dev.RootToken()); ok || out != "setup.sh: there is no namespace \"team\"\n" {
		t.Errorf("ok %v, it says:\n%s", ok, out)
	}
	req, _ := http.NewRequest("POST", url+"/v1/sys/namespaces/team", strings.NewReader("{}"))
	req.Header.Set("X-Vault-Token", dev.RootToken())
	if resp, err := testhttp.Client.Do(req); err != nil || resp.StatusCode != 200 {
		t.Fatalf("making a namespace: %v", err)
	}
	testSetUp(t, url, dev.RootToken())
	for _, r := range dev.Requests() {
		if r.Path != "sys/health" && r.Path != "sys/namespaces/team" {
			t.Errorf("outside of the namespace: %s %s", r.Method, r.Path)
		}
	}
}

func TestSetUpSaysWhatIsWrong(t *testing.T) {
	dev := devvault.New(devvault.Options{})
	url, err := dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	powerless, _ := dev.Mint(devvault.NewToken{Policies: []string{"broker"}})
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()

	for _, row := range []struct {
		name           string
		address, token string
		args           []string
		want           string
	}{
		{"no address", "", "token", nil, "setup.sh: VAULT_ADDR is not set\n"},
		{"no token", url, "", nil, "setup.sh: VAULT_TOKEN is not set\n"},
		{"nobody there", "http://127.0.0.1:1", "token", nil, "setup.sh: http://127.0.0.1:1 does not answer\n"},
		{"not a Vault", other.URL, "token", nil, "setup.sh: " + other.URL + " is no Vault: it answered 404\n"},
		{"a token without the right", url, powerless, nil, "setup.sh: mounting kv/: Vault answered 403: VAULT_TOKEN may not do this\n"},
		{"a place that cannot be written", url, dev.RootToken(), []string{"-a", "/nowhere/secret_id"}, "setup.sh: cannot write /nowhere/secret_id\n"},
		{"an unknown flag", url, dev.RootToken(), []string{"-x"}, "setup.sh: usage: setup.sh [-a FILE] [-r] [-o ROLE] [-t KEY] [-s KEY]\n"},
		{"a role that is a path", url, dev.RootToken(), []string{"-o", "../x"}, "setup.sh: \"../x\" is no name: letters, digits, _ and -\n"},
		{"a key that is a path", url, dev.RootToken(), []string{"-s", "a/b"}, "setup.sh: \"a/b\" is no name: letters, digits, _ and -\n"},
		{"one key for two things", url, dev.RootToken(), []string{"-t", "x", "-s", "x"}, "setup.sh: -t and -s need two keys: one signs, the other encrypts\n"},
		{"a key that is a pattern", url, dev.RootToken(), []string{"-t", "+"}, "setup.sh: \"+\" is no name: letters, digits, _ and -\n"},
	} {
		out, ok := setUp(t, row.address, row.token, row.args...)
		if ok || !strings.HasSuffix(out, row.want) {
			t.Errorf("%s: ok %v, it says:\n%s\nwant at the end: %s", row.name, ok, out, row.want)
		}
	}
	dev.Seal(true)
	if out, ok := setUp(t, url, dev.RootToken()); ok || out != "setup.sh: Vault is sealed\n" {
		t.Errorf("sealed: ok %v, it says:\n%s", ok, out)
	}
}
