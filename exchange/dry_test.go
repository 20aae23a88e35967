package exchange_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/policy/policytest"
	"onbehalf.internal/broker/secret"
)

// TestDry: what is handed in is another text each time, in the place and of the type
// that the profile has for a subject token, and only a decision on a dry exchange
// hands it in.
func TestDry(t *testing.T) {
	var forms []string
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forms = append(forms, r.PostFormValue("subject_token_type")+" "+r.PostFormValue("audience")+" "+r.PostFormValue("scope")+" "+r.PostFormValue("subject_token"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte(`{"error":"invalid_request"}`))
	}))
	defer p.Close()
	s, err := policytest.Load(t.TempDir(), strings.NewReplacer("ISSUER", p.URL, "CLIENT", "broker", "AUTH", `auth: basic, key: "vault:kv/broker/client#key"`,
		"require_act: CLIENT}", "require_act: broker, require_subject: true}").Replace(config))
	if err != nil {
		t.Fatal(err)
	}
	q, err := policytest.Ask(s, "user:7", "records", "search")
	if err != nil {
		t.Fatal(err)
	}
	dry, err := s.DecideDry(q.Caller, "records", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := exchange.New(nil)
	ask := func(d policy.Decision) error {
		_, err := c.Dry(context.Background(), d, exchange.Key{Text: secret.New(clientSecret)})
		return err
	}
	for range 2 {
		if err := ask(dry); err != nil {
			t.Error(err)
		}
	}
	const before = accessToken + " mcp-api records.read nobody."
	if len(forms) != 2 || forms[0] == forms[1] || !strings.HasPrefix(forms[0], before) || !strings.HasPrefix(forms[1], before) {
		t.Errorf("it was asked %q", forms)
	}
	call, err := s.Decide(q, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	probe, err := s.DecideDiscovery(q.Caller, "records", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []policy.Decision{{}, call, probe} {
		if err := ask(d); fault.ReasonOf(err) != fault.NoGrant || len(forms) != 2 {
			t.Errorf("another decision: %v", err)
		}
	}
	if _, err := c.Exchange(context.Background(), dry, exchange.Subject{Token: secret.New(subjectToken)}, exchange.Key{}); fault.ReasonOf(err) != fault.NoGrant || len(forms) != 2 {
		t.Errorf("a whole exchange by a dry decision: %v", err)
	}
}
