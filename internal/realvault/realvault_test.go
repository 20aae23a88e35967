//go:build real

package realvault_test

import (
	"net/http"
	"testing"

	"onbehalf.internal/broker/internal/realvault"
	"onbehalf.internal/broker/internal/testhttp"
)

func TestStart(t *testing.T) {
	v := realvault.Start(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, v.Addr+"/v1/auth/token/lookup-self", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", v.Token)
	resp, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the root token's lookup is answered %d", resp.StatusCode)
	}
	if left := v.Left(t); left["cubbyholes"] != 0 || left["tokens"] != 1 {
		t.Errorf("a new Vault has %v, want its root token alone", left)
	}
}
