package operation_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/secret/canary"
)

// TestArgumentsShownOnce: the list for approvers has the caller's own bytes. Nothing
// else has them: no other answer, no log, audit, metric or error, and with a key for
// results not the database either. Assertions are in none of it.
func TestArgumentsShownOnce(t *testing.T) {
	canary.Run(t, func(c *canary.Cage) {
		dir := t.TempDir()
		raw := make([]byte, 32)
		rand.Read(raw)
		key := filepath.Join(dir, "results.key")
		if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(raw)), 0o600); err != nil {
			t.Fatal(err)
		}
		rig := brokertest.New(t, &brokertest.Options{Log: c.Writer(), Config: func(y string) string {
			return strings.Replace(brokertest.Approving(y), "listen: {api: \"127.0.0.1:0\"}", "listen: {api: \"127.0.0.1:0\", metrics: \"127.0.0.1:0\"}", 1) +
				"keys: {results: \"file:" + key + "\"}\n"
		}})
		const text = "canary-in-arguments-0123456789"
		arguments := `{ "b" : 1.0e2, "a":"` + text + `\u000a\u001b[2J"  }`
		see := func(name string, body []byte) []byte {
			c.Bytes(name, body)
			return body
		}
		post := func(key string) brokertest.Answer {
			req, err := http.NewRequestWithContext(t.Context(), "POST", rig.URL+"/v1/operations",
				strings.NewReader(`{"server":"records","tool":"whoami","request_key":"`+key+`","arguments":`+arguments+`}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"Authorization": {"Bearer " + rig.Bearer}, "Broker-Actor": {"user:7"}, "Content-Type": {"application/json"}}
			res, err := testhttp.Client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			see("answer to "+key, body)
			return rig.Get(t, "/v1/operations?request_key="+key, brokertest.Call{})
		}
		first, second := post("1"), post("2")
		list := rig.People(t, nil, "GET", "/v1/approvals", "", nil)
		if n := bytes.Count(list.Body, []byte(`,"arguments":`+arguments+`}`)); n != 2 {
			t.Errorf("the caller's bytes are %d times in %s", n, list.Body)
		}
		yes, no := rig.AssertApprover("user:8", nil), rig.AssertApprover("user:8", nil)
		see("approved", rig.DecideAs(t, first, "approve", yes).Body)
		see("denied", rig.DecideAs(t, second, "deny", no).Body)
		see("refused", rig.DecideAs(t, first, "deny", no).Body)
		if a := post("1"); a.State != fault.Succeeded {
			t.Errorf("%s", a.Body)
		}
		for _, path := range []string{"/v1/operations", "/v1/operations/" + first.ID, "/v1/operations/" + second.ID, "/v1/operations?state=open"} {
			see(path, rig.Get(t, path, brokertest.Call{}).Body)
		}
		res, err := testhttp.Client.Get(rig.Broker.MetricsAddress() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		metrics, err := io.ReadAll(res.Body)
		if err != nil || len(metrics) == 0 {
			t.Fatalf("%d bytes of metrics, %v", len(metrics), err)
		}
		see("metrics", metrics)
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		c.Bytes("audit", []byte(rig.Audit(t)))
		c.File(rig.DatabasePath())
		c.Plant(append(rig.Secrets(), text, yes, no)...)
	})
}
