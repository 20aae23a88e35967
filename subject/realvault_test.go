//go:build real

package subject_test

import (
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/realvault"
)

func TestTwoBrokersOnVault(t *testing.T) {
	v := realvault.Start(t)
	testTwoBrokersOn(t, v.Addr, v.Token)
}

func TestTwoBrokersOnOpenBao(t *testing.T) {
	b := counterparts.OpenBao(t)
	testTwoBrokersOn(t, b.Addr, b.Token)
}

func testTwoBrokersOn(t *testing.T, address, root string) {
	d := door{address, &http.Transport{}, root}
	mount := func(path, body string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", address+"/v1/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Vault-Token", root)
		resp, err := d.transport.RoundTrip(req)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s: %v, %v", path, resp, err)
		}
		resp.Body.Close()
	}
	mount("sys/mounts/kv", `{"type":"kv","options":{"version":"2"}}`)
	mount("sys/mounts/kv1", `{"type":"kv","options":{"version":"1"}}`)
	mount("auth/token/roles/broker-op", `{"allowed_policies":"default","token_explicit_max_ttl":"75s"}`)
	testTwoBrokers(t, rigOver(t, d))
}
