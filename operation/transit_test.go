package operation_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/secret/canary"
)

const inResult = `"audience":["mcp-records"]` // of whoami's

// withKey is a rig whose results are sealed by a key in Vault.
func withKey(t *testing.T, config func(string) string) *brokertest.Rig {
	return brokertest.New(t, &brokertest.Options{KeyInVault: true, Config: config})
}

// operator asks Vault for something as its operator does.
func operator(t *testing.T, rig *brokertest.Rig, method, path, body string) string {
	t.Helper()
	req := httptest.NewRequest(method, "/v1/"+path, strings.NewReader(body))
	req.Header.Set("X-Vault-Token", rig.Vault.RootToken())
	w := httptest.NewRecorder()
	if rig.Vault.ServeHTTP(w, req); w.Code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String()
}

// deleteKey is what an operator cannot take back.
func deleteKey(t *testing.T, rig *brokertest.Rig) {
	t.Helper()
	operator(t, rig, "POST", "transit/keys/broker/config", `{"deletion_allowed":true}`)
	operator(t, rig, "DELETE", "transit/keys/broker", "")
}

func restart(t *testing.T, rig *brokertest.Rig) {
	t.Helper()
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// called makes a call that has to succeed.
func called(t *testing.T, rig *brokertest.Rig, key string) brokertest.Answer {
	t.Helper()
	told := rig.Call(t, brokertest.Call{Key: key})
	if told.State != "succeeded" || !strings.Contains(string(told.Result), inResult) {
		t.Fatalf("%s", told.Body)
	}
	return told
}

// TestResultsSealedInVault: the next process opens them, whatever happened to the
// key meanwhile that an operator may do, and asks Vault once for each data key.
func TestResultsSealedInVault(t *testing.T) {
	rig := withKey(t, nil)
	told := called(t, rig, "k")
	called(t, rig, "k2")
	again := func() {
		t.Helper()
		for _, key := range []string{"k", "k2"} {
			if got := rig.Call(t, brokertest.Call{Key: key}); string(got.Result) != string(told.Result) || got.Withheld != "" {
				t.Errorf("%s", got.Body)
			}
		}
	}
	again()
	if made, unwrapped := rig.Vault.Count("PUT", "transit/datakey/plaintext/broker"), rig.Vault.Count("PUT", "transit/decrypt/"); made != 1 || unwrapped != 0 {
		t.Errorf("%d data keys were made and %d unwrapped by the one who made it", made, unwrapped)
	}
	operator(t, rig, "POST", "transit/keys/broker/rotate", "{}")
	for range 2 {
		restart(t, rig)
		again()
	}
	if made, unwrapped := rig.Vault.Count("PUT", "transit/datakey/"), rig.Vault.Count("PUT", "transit/decrypt/broker"); made != 1 || unwrapped != 2 {
		t.Errorf("%d data keys were made, and %d unwrapped in two processes", made, unwrapped)
	}
	if n := rig.Records.Calls("whoami"); n != 2 {
		t.Errorf("whoami ran %d times", n)
	}
}

// TestVaultAwayAtReading: what Vault has to say about a data key is told in place of
// the result, and the result when Vault unwraps it; all else is told meanwhile.
func TestVaultAwayAtReading(t *testing.T) {
	rig := withKey(t, nil)
	told := called(t, rig, "k")
	restart(t, rig)
	read := func(want string) {
		t.Helper()
		got := rig.Get(t, "/v1/operations/"+told.ID, brokertest.Call{})
		if got.Status != 200 || got.State != "succeeded" || string(got.Withheld) != want || (want == "") != (string(got.Result) == string(told.Result)) {
			t.Errorf("want withheld %q: %d %s", want, got.Status, got.Body)
		}
	}
	rig.Vault.Seal(true)
	read("vault_sealed")
	if got := rig.Call(t, brokertest.Call{Key: "k"}); got.Status != 200 || got.Withheld != "vault_sealed" || got.Result != nil {
		t.Errorf("a repeat: %d %s", got.Status, got.Body)
	}
	rig.Vault.Seal(false)
	for want, failure := range map[string]devvault.Failure{
		"vault_unreachable": {Cut: true}, "vault_rate_limited": says(429), "vault_unexpected": {},
		"result_closed": says(400), // there is no other word for a key that is gone
	} {
		rig.Vault.Fail("PUT", "transit/decrypt/", 1, failure)
		read(want)
	}
	operator(t, rig, "PUT", "sys/policies/acl/broker-results", `{"policy":""}`)
	read("vault_denied")
	operator(t, rig, "PUT", "sys/policies/acl/broker-results", `{"policy":"path \"transit/decrypt/broker\" { capabilities = [\"update\"] }"}`)
	read("")
	rig.Vault.Seal(true)
	read("") // once for each process
	rig.Vault.Seal(false)
}

// TestReadBeforeVaultIsThere: a broker that has not seen Vault yet tells what it knows,
// and begins nothing.
func TestReadBeforeVaultIsThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // the same address twice
	rig := brokertest.New(t, &brokertest.Options{KeyInVault: true, API: l.Addr().String()})
	told := called(t, rig, "k")
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	rig.Vault.Seal(true)
	restarted := make(chan error, 1)
	go func() { restarted <- rig.Restart(t.Context()) }()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for strings.Count(rig.Log(), `"msg":"serving"`) < 2 {
		select {
		case <-poll.C:
		case err := <-restarted:
			t.Fatal(err)
		}
	}
	beside := brokertest.Rig{URL: "http://" + l.Addr().String(), Bearer: rig.Bearer} // the other one is being restarted
	if got := beside.Get(t, "/v1/operations/"+told.ID, brokertest.Call{}); got.State != "succeeded" || got.Withheld != "vault_not_ready" || got.Result != nil {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if got := beside.Call(t, brokertest.Call{Key: "k2"}); got.Status != 503 || got.Reason != "vault_not_ready" {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	rig.Vault.Seal(false)
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	if got := rig.Get(t, "/v1/operations/"+told.ID, brokertest.Call{}); string(got.Result) != string(told.Result) {
		t.Errorf("%s", got.Body)
	}
}

func says(status int) devvault.Failure {
	return devvault.Failure{Status: status, Body: `{"errors":["what Vault says"]}`}
}

// TestNoDataKey: without one nothing is begun, and nothing is left that would have
// to be stored in the open.
func TestNoDataKey(t *testing.T) {
	rig := withKey(t, nil)
	refused := func(want string) {
		t.Helper()
		if got := rig.Call(t, brokertest.Call{Key: "k"}); got.Status != 503 || string(got.Reason) != want || got.Kind != "unavailable" {
			t.Errorf("want 503 %s: %d %s", want, got.Status, got.Body)
		}
		if got := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); got.Status != 404 {
			t.Errorf("%s: there is an operation: %s", want, got.Body)
		}
	}
	for want, failure := range map[string]devvault.Failure{"vault_unreachable": {Cut: true}, "vault_sealed": says(503), "vault_denied": says(403),
		"vault_unexpected": {Status: 200, Body: `{"data":{"plaintext":"AAAA","ciphertext":"vault:v1:AAAA"}}`}} {
		rig.Vault.Fail("PUT", "transit/datakey/", -1, failure)
		refused(want)
		rig.Vault.Mend()
	}
	deleteKey(t, rig)
	refused("credential_missing")
	if n := rig.Records.Calls("whoami"); n != 0 || len(rig.Provider.Issued()) != 0 {
		t.Errorf("whoami ran %d times, %d tokens were issued", n, len(rig.Provider.Issued()))
	}
	operator(t, rig, "POST", "transit/keys/broker", `{"type":"aes256-gcm96"}`)
	called(t, rig, "k")
	deleteKey(t, rig)
	called(t, rig, "k2") // by the data key that is there
	if log := rig.Log(); !strings.Contains(log, `"msg":"no data key"`) || !strings.Contains(log, `"reason":"credential_missing"`) {
		t.Error("the log does not say that there was none")
	}
}

// TestKeyRefusesForGood: a version that an operator has shut, and a key that is gone,
// close what they sealed, and nothing else.
func TestKeyRefusesForGood(t *testing.T) {
	rig := withKey(t, nil)
	called(t, rig, "old")
	operator(t, rig, "POST", "transit/keys/broker/rotate", "{}")
	restart(t, rig)
	called(t, rig, "new") // by a data key of version 2
	is := func(key, withheld string) {
		t.Helper()
		if got := rig.Call(t, brokertest.Call{Key: key}); got.State != "succeeded" || string(got.Withheld) != withheld || (withheld == "") != (got.Result != nil) {
			t.Errorf("%s, want withheld %q: %s", key, withheld, got.Body)
		}
	}
	operator(t, rig, "POST", "transit/keys/broker/config", `{"min_decryption_version":2}`)
	is("old", "result_closed")
	restart(t, rig)
	is("old", "result_closed")
	is("new", "")
	operator(t, rig, "POST", "transit/keys/broker/config", `{"min_decryption_version":1}`)
	is("old", "")
	restart(t, rig)
	deleteKey(t, rig)
	is("old", "result_closed")
	operator(t, rig, "POST", "transit/keys/broker", `{"type":"aes256-gcm96"}`)
	is("new", "result_closed") // another key of the same name
	if n := rig.Records.Calls("whoami"); n != 2 {
		t.Errorf("whoami ran %d times", n)
	}
}

// TestFromFileToVaultAndBack: the first key of a list seals, each opens.
func TestFromFileToVaultAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.key")
	raw := make([]byte, 32)
	rand.Read(raw)
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(raw)), 0o600); err != nil {
		t.Fatal(err)
	}
	file, away := `"file:`+path+`"`, `"`+brokertest.ResultsKey+`"`
	keys := file
	rig := withKey(t, func(yaml string) string { return strings.Replace(yaml, "results: "+away, "results: "+keys, 1) })
	use := func(next string) {
		t.Helper()
		text, err := os.ReadFile(rig.ConfigPath)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(rig.ConfigPath, []byte(strings.Replace(string(text), "results: "+keys, "results: "+next, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		keys = next
		restart(t, rig)
	}
	withheld := func(key string) string {
		return string(rig.Call(t, brokertest.Call{Key: key}).Withheld)
	}
	called(t, rig, "by-file")
	if n := rig.Vault.Count("", "transit/datakey/"); n != 0 {
		t.Errorf("with a file %d data keys were made", n)
	}
	use("[" + away + ", " + file + "]")
	called(t, rig, "by-Vault")
	if got := withheld("by-file"); got != "" || rig.Vault.Count("", "transit/datakey/") != 1 {
		t.Errorf("from file to Vault: withheld %q", got)
	}
	use("[" + file + ", " + away + "]")
	called(t, rig, "back")
	if got := withheld("by-Vault"); got != "" || rig.Vault.Count("", "transit/datakey/") != 1 {
		t.Errorf("back: withheld %q", got)
	}
	use(file)
	if withheld("by-file") != "" || withheld("back") != "" || withheld("by-Vault") != "result_closed" {
		t.Error("the file's key opens what is not its own, or not what is")
	}
	use(away)
	if withheld("by-file") != "result_closed" || withheld("back") != "result_closed" || withheld("by-Vault") != "" {
		t.Error("Vault's key opens what is not its own, or not what is")
	}
}

// TestOneDataKey: however many begin at once, Vault is asked once.
func TestOneDataKey(t *testing.T) {
	rig := withKey(t, nil)
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			c := brokertest.Call{Wait: "5s", Key: fmt.Sprint("k", n)}
			got, err := rig.Do(t.Context(), c)
			for err == nil && got.State == fault.NotSent { // too late for its own budget, on a busy machine
				got, err = rig.Do(t.Context(), c)
			}
			if err != nil || got.State != fault.Succeeded {
				t.Errorf("%v %s", err, got.Body)
			}
		})
	}
	all.Wait()
	if n := rig.Vault.Count("PUT", "transit/datakey/"); n != 1 {
		t.Errorf("%d data keys were made", n)
	}
}

// TestDataKeysStayInMemory: neither a data key nor a result is in a file, a log line
// or an answer of somebody else.
func TestDataKeysStayInMemory(t *testing.T) {
	canary.Run(t, func(cage *canary.Cage) {
		rig := brokertest.New(t, &brokertest.Options{KeyInVault: true, Log: cage.Writer()})
		told := called(t, rig, "k")
		cage.Plant(inResult)
		restart(t, rig)
		called(t, rig, "k")
		called(t, rig, "k2")
		if n := rig.Vault.Count("PUT", "transit/datakey/"); n != 2 {
			t.Errorf("%d data keys were made", n)
		}
		cage.Plant(rig.Vault.Secrets()...) // data keys among them
		for _, as := range []brokertest.Call{{Actor: "user:8"}, {Bearer: rig.PortalBearer(), Assertion: rig.Assert("user:7")}} {
			cage.Bytes("another's answer", rig.Get(t, "/v1/operations/"+told.ID, as).Body)
		}
		cage.Bytes("the list", rig.Get(t, "/v1/operations", brokertest.Call{}).Body)
		rig.Vault.Seal(true)
		cage.Bytes("a refusal", rig.Call(t, brokertest.Call{Key: "k3"}).Body)
		rig.Vault.Seal(false)
		if err := rig.Stop(); err != nil {
			t.Error(err)
		}
		cage.Bytes("the audit", []byte(rig.Audit(t)))
		cage.File(rig.Dir)
	})
}
