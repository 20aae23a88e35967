//go:build real

package counterparts_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/internal/testhttp"
)

func TestOpenBao(t *testing.T) {
	b := counterparts.OpenBao(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.Addr+"/v1/auth/token/lookup-self", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", b.Token)
	resp, err := testhttp.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var self struct{ Data struct{ Policies []string } }
	if err := json.NewDecoder(resp.Body).Decode(&self); err != nil || len(self.Data.Policies) != 1 || self.Data.Policies[0] != "root" {
		t.Errorf("the root token's lookup is answered %d, %v: %v", resp.StatusCode, self.Data.Policies, err)
	}
}
