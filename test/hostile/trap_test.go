package hostile_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/test/hostile/server"
)

// TestBehaviours: the list is what a person can choose from.
func TestBehaviours(t *testing.T) {
	all, seen := server.All(), map[string]bool{}
	if len(all) < 100 {
		t.Errorf("%d behaviours, want 100 or more", len(all))
	}
	for _, b := range all {
		if !regexp.MustCompile(`^[a-z0-9.]+(-[a-z0-9.]+)*$`).MatchString(b.Name) || seen[b.Name] {
			t.Errorf("%q is no segment of a URL, or not the first", b.Name)
		}
		if !regexp.MustCompile(`^[A-Z][^.]*([.][0-9a-z][^.]*)*[.]$`).MatchString(b.Does) {
			t.Errorf("%s: %q is not one sentence", b.Name, b.Does)
		}
		seen[b.Name] = true
	}
}

// TestComplaints: the table can fail. Each row spoils one thing in what would
// pass.
func TestComplaints(t *testing.T) {
	post := func(rpc, id string) server.Request {
		q := server.Request{HTTP: "POST", RPC: rpc, ID: id, Version: "2025-11-25", Session: "s-1", Bearer: true}
		if rpc == "initialize" {
			q.Version, q.Session = "", ""
		}
		return q
	}
	answered := func() (row, observation) {
		r := row{Behaviour: server.Behaviour{Name: "x", Leg: "tools/call"}, pin: policy.EraLegacy, want: outcomeOf(t, "succeeded")}
		seen := []server.Request{post("initialize", "1"), post("notifications/initialized", ""), post("tools/call", "2"), {HTTP: "DELETE", Session: "s-1", Bearer: true}}
		return r, observation{outcome: r.want, result: []byte("{}"), seen: seen, ran: 1}
	}
	modern := func() (row, observation) {
		r, o := answered()
		r.pin = policy.EraModern
		o.seen = []server.Request{{HTTP: "POST", RPC: "tools/call", ID: "1", Version: "2026-07-28", Method: "tools/call", Name: "search", Bearer: true}}
		return r, o
	}
	givenUp := func() (row, observation) {
		r, o := answered()
		r.want, o.outcome, o.result = fault.Doubt(fault.WallClock), fault.Doubt(fault.WallClock), nil
		o.seen = append(o.seen, post("notifications/cancelled", ""))
		return r, o
	}
	refused := func() (row, observation) {
		r, o := answered()
		r.want, o.outcome, o.result, o.ran = fault.RefusedBecause(fault.Redirected), fault.RefusedBecause(fault.Redirected), nil, 0
		return r, o
	}
	for name, tc := range map[string]struct {
		start func() (row, observation)
		spoil func(o *observation)
		wrong string
	}{
		"outcome":           {answered, func(o *observation) { o.outcome.Cause = fault.SecretEchoed }, "outcome"},
		"no result":         {answered, func(o *observation) { o.result = nil }, "result"},
		"a result":          {refused, func(o *observation) { o.result = []byte("{}") }, "result"},
		"too late":          {givenUp, func(o *observation) { o.took = 4 * time.Second }, "took"},
		"ran twice":         {answered, func(o *observation) { o.ran = 2 }, "ran 2 times"},
		"ran though not":    {refused, func(o *observation) { o.ran = 1 }, "did not run, and it did"},
		"not ran though so": {answered, func(o *observation) { o.ran = 0 }, "ran, and it did not"},
		"called twice":      {answered, func(o *observation) { o.seen = append(o.seen, post("tools/call", "3")) }, "path"},
		"a leg too many":    {modern, func(o *observation) { o.seen = append(o.seen, server.Request{HTTP: "GET moved"}) }, "path"},
		"a ping":            {answered, func(o *observation) { o.seen = append(o.seen, post("", "q")) }, "pings"},
		"progress":          {answered, func(o *observation) { o.progress = []float64{1} }, "progress"},
		"tools":             {answered, func(o *observation) { o.tools = 1 }, "tools"},
		"left out":          {answered, func(o *observation) { o.invalid = 1 }, "left out"},
		"cancelled":         {answered, func(o *observation) { o.seen = append(o.seen, post("notifications/cancelled", "")) }, "cancellations"},
		"not cancelled":     {givenUp, func(o *observation) { o.seen = o.seen[:4] }, "cancellations"},
		"not deleted":       {answered, func(o *observation) { o.seen = o.seen[:3] }, "DELETE"},
		"no credential":     {answered, func(o *observation) { o.seen[2].Bearer = false }, "credential"},
		"id again":          {answered, func(o *observation) { o.seen[2].ID = "1" }, "id"},
		"other session":     {answered, func(o *observation) { o.seen[3].Session = "s-2" }, "DELETE came with"},
		"other version":     {answered, func(o *observation) { o.seen[2].Version = "2026-07-28" }, "call came with"},
		"early session":     {answered, func(o *observation) { o.seen[0].Session = "s-1" }, "initialize came with"},
		"modern session":    {modern, func(o *observation) { o.seen[0].Session = "s-1" }, "call came with"},
		"other name":        {modern, func(o *observation) { o.seen[0].Name = "find" }, "call came with"},
	} {
		r, o := tc.start()
		if wrong := r.complaints(o); len(wrong) != 0 {
			t.Errorf("%s: complaints before anything is spoilt: %q", name, wrong)
		}
		tc.spoil(&o)
		if wrong := strings.Join(r.complaints(o), "; "); !strings.Contains(wrong, tc.wrong) {
			t.Errorf("%s: complaints %q, want %q", name, wrong, tc.wrong)
		}
	}
}

// TestElsewhere: the other host notices a client that follows redirects, with
// its credential, and one that only connects.
func TestElsewhere(t *testing.T) {
	s := start(t)
	req, _ := http.NewRequest("POST", s.Endpoint("redirect-307", "careless"), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if got := strings.Join(s.Strayed(), "; "); got != "a connection; POST /redirect-307/careless, with a credential: true" {
		t.Errorf("the other host saw %q", got)
	}
}
