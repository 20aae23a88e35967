package counterparts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keycloakPatience is long: alone on two cores it starts within 15 seconds, next
// to other tests within a minute.
const keycloakPatience = 3 * time.Minute

// keycloakJava is what Keycloak's own script gives to Java, but for the first two: they
// spend less on becoming fast, which is what a server of a minute needs.
var keycloakJava = []string{
	"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m", "-Xmx512m", "-XX:+ExitOnOutOfMemoryError",
	"--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
	"--add-opens=java.base/java.security=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
	"-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
	"-Djava.util.concurrent.ForkJoinPool.common.threadFactory=io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory",
}

// Keycloak runs Keycloak with the realm of test/keycloak/realm.json until the
// test ends. It starts in a quarter of a minute and takes 370 MB, so tests of a
// package share one.
//
// A target is another client: mcp-records is open to the broker with the scope
// records.read, which brings it into the audience; mcp-mail with mail.read is
// not.
func Keycloak(t testing.TB) *Realm {
	t.Helper()
	folder := cached(t, "keycloak-26.7.3", "test/keycloak/install.sh")
	java, err := exec.LookPath("java")
	if err != nil {
		t.Fatal(err)
	}
	var r *Realm
	var secure int
	issuer := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d/realms/company", port) }
	port := start(t, func(home string, port int) program {
		r, secure = newRealm(t, home), mustFreePort(t)
		r.importInto(t, home, folder)
		return program{path: java, args: keycloakArgs(home, port, secure), ready: issuer(port), patience: keycloakPatience}
	})
	r.Issuer = issuer(port)
	base := r.Issuer + "/protocol/openid-connect"
	r.Token, r.Keys = base+"/token", base+"/certs"
	r.Revocation, r.Introspection = base+"/revoke", base+"/token/introspect"
	r.MutualTLS = fmt.Sprintf("https://127.0.0.1:%d/realms/company/protocol/openid-connect/token", secure)
	return r
}

// importInto makes home a Keycloak of its own: it writes into its data folder,
// and the cache stays as it is.
func (r *Realm) importInto(t testing.TB, home, folder string) {
	t.Helper()
	for _, name := range []string{"conf", "lib", "providers", "themes"} {
		if err := os.Symlink(filepath.Join(folder, name), filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(source(t, "test/keycloak/realm.json"))
	if err != nil {
		t.Fatal(err)
	}
	jwks, err := json.Marshal(r.keys.jwks) // an attribute that holds JSON as text
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(home, "data", "import")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	realm := strings.ReplaceAll(string(text), `"JWKS"`, string(jwks))
	if err := os.WriteFile(filepath.Join(data, "company-realm.json"), []byte(realm), 0o600); err != nil {
		t.Fatal(err)
	}
}

// keycloakArgs starts Java itself: the script would be a parent that dies
// without its child.
func keycloakArgs(home string, port, secure int) []string {
	return append(keycloakJava[:len(keycloakJava):len(keycloakJava)],
		"-Dkc.home.dir="+home, "-Djboss.server.config.dir="+filepath.Join(home, "conf"),
		"-cp", filepath.Join(home, "lib", "quarkus-run.jar"), "io.quarkus.bootstrap.runner.QuarkusEntryPoint",
		"start", "--optimized", "--import-realm", "--cache=local", "--http-enabled=true", "--http-host=127.0.0.1",
		fmt.Sprintf("--http-port=%d", port), fmt.Sprintf("--hostname=http://127.0.0.1:%d", port), fmt.Sprintf("--https-port=%d", secure),
		"--https-certificate-file="+filepath.Join(home, "server.pem"), "--https-certificate-key-file="+filepath.Join(home, "server.key"),
		"--https-trust-store-file="+filepath.Join(home, "ca.pem"))
}
