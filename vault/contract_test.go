package vault_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/vault/vaulttest"
)

// start serves a devvault on loopback until the test ends.
func start(t *testing.T) (*devvault.Server, string) {
	t.Helper()
	dev := devvault.New(devvault.Options{})
	url, err := dev.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev, url
}

func TestContractOnDevvault(t *testing.T) {
	t.Parallel()
	dev, url := start(t)
	vaulttest.Run(t, vaulttest.Target{Address: url, RootToken: dev.RootToken(), Setup: "../deploy/vault", Residue: dev.Residue,
		Doors: open(t, dev), Namespaces: true})
}

func TestContractInANamespaceOfDevvault(t *testing.T) {
	t.Parallel()
	dev, url := start(t)
	b := &box{dev}
	b.ask(t, "sys/namespaces/team", "{}", "")
	b.askIn(t, "team", "sys/namespaces/a", "{}", "")
	vaulttest.Run(t, vaulttest.Target{Address: url, RootToken: dev.RootToken(), Setup: "../deploy/vault", Residue: dev.Namespace("team/a").Residue,
		Doors: open(t, dev), Namespaces: true, Namespace: "team/a"})
	if dev.Residue() != 0 || dev.Live("broker-op") != 0 || dev.Count("", "auth/") != 0 || dev.Count("", "cubbyhole/") != 0 || dev.Count("", "kv/") != 0 {
		t.Error("something was asked for outside of the namespace")
	}
}

// open serves a devvault over TLS and on a socket too.
func open(t *testing.T, dev *devvault.Server) vaulttest.Doors {
	doors := vaulttest.NewDoors(t)
	secure, socket := doors.Listen(t)
	dev.Serve(secure)
	dev.Serve(socket)
	return doors
}

// Whatever stands in the environment, every way to log in is the same: nothing of it
// is sent, and nothing goes where it says.
func TestEveryWayInAnOddEnvironment(t *testing.T) {
	oddEnvironment(t)
	dev := devvault.New(devvault.Options{})
	watch := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("X-Vault-Token")
		if token == "token-of-the-environment" || r.Header.Get("X-Vault-Namespace") == "somewhere" || r.Header.Get("Extra") != "" ||
			r.Header.Get("X-Vault-Wrap-Ttl") != "" && token != dev.RootToken() {
			t.Errorf("%s %s has something of the environment", r.Method, r.URL.Path)
		}
		dev.ServeHTTP(w, r)
	})
	server := httptest.NewServer(watch)
	t.Cleanup(server.Close)
	doors := vaulttest.NewDoors(t)
	secure, socket := doors.Listen(t)
	more := &http.Server{Handler: watch}
	t.Cleanup(func() { more.Close() })
	go more.Serve(secure)
	go more.Serve(socket)
	vaulttest.Ways(t, vaulttest.Target{Address: server.URL, RootToken: dev.RootToken(), Setup: "../deploy/vault", Residue: dev.Residue,
		Doors: doors, Namespaces: true})
}
