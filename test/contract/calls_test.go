package contract

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

const toolFailed = `{"content":[{"type":"text","text":"no such record"}],"isError":true}`

// C11. The server's own result stays with the answer; it is no artifact of ours.
func toolLevelError(t *testing.T, r *rig) {
	r.server.on("tools/call", r.server.answers(toolFailed))
	var a brokertest.Answer
	if !r.contacted(t, func() { a = r.call(t, brokertest.Call{}) }) {
		t.Error("it was no contact")
	}
	if told(a) != "200 tool_error tool_failed read_the_error" || a.Text != "The tool reported an error: no such record" || string(a.Result) != toolFailed || a.Error != nil {
		t.Errorf("%s", a.Body)
	}
}

// C12
func namesTheBlocks(t *testing.T, r *rig) {
	r.server.on("tools/call", r.server.answers(`{"content":[{"type":"text","text":"`+strings.Repeat("x", 60_000)+`"},{"type":"image","data":"eA==","mimeType":"image/png"},{"type":"hologram"},{"type":"audio"}]}`))
	a := r.call(t, brokertest.Call{})
	if a.State != fault.Succeeded || !strings.HasPrefix(a.Text, "[3 without text left out: 1 audio, 1 image, 1 other]\nxxx") || len(a.Text) != 50_000 || !strings.HasSuffix(a.Text, "[cut: the result is longer]") {
		t.Errorf("%s: %d bytes of text, %.80q", told(a), len(a.Text), a.Text)
	}
}

// C13. The budget is the operation's, 5 s in this file; the audit names the server.
func finiteTimeout(t *testing.T, r *rig) {
	all := r.imports(t).Legs
	a := r.call(t, brokertest.Call{})
	all = append(legs(all), legs(a.Legs)...)
	if a.State != fault.Succeeded || len(all) < 3 {
		t.Fatalf("%s", a.Body)
	}
	for _, l := range all {
		if l.Budget <= 0 || l.Budget > 5*time.Second {
			t.Errorf("%s may take %v", l.Name, l.Budget)
		}
	}
	r.must(t, r.Stop())
	if got, want := r.records(t, ""), []string{"decision", "import"}; !slices.Equal(got, want) {
		t.Errorf("the audit of the import: %q, want %q", got, want)
	}
	if got, want := r.records(t, a.ID), []string{"decision", "sending", "outcome succeeded"}; !slices.Equal(got, want) {
		t.Errorf("the audit of the call: %q, want %q", got, want)
	}
}

// C14. The contract rounds 20, 15, 14 up to whole seconds; ours is what is left,
// exactly. Every operation has a budget of its own.
func oneBudget(t *testing.T, r *rig) {
	r.server.walks(func(cursor *string) string {
		if cursor == nil {
			return page("2", search)
		}
		return page("", tool("find", anything))
	})
	imported := r.imports(t)
	a, b := r.call(t, brokertest.Call{}), r.call(t, brokertest.Call{})
	for what, legs := range map[string][]audit.Leg{"the import": legs(imported.Legs), "the call": spending(a.Legs), "the next call": spending(b.Legs)} {
		for i := 1; i < len(legs); i++ {
			// Each duration is told in whole microseconds.
			if last, l := legs[i-1], legs[i]; l.Budget > last.Budget-last.Took+3*time.Microsecond {
				t.Errorf("%s: %s has %v left of %v, of which %s took %v", what, l.Name, l.Budget, last.Budget, last.Name, last.Took)
			}
		}
		if len(legs) == 0 || legs[0].Budget < 4*time.Second {
			t.Errorf("%s does not begin with a whole budget: %+v", what, legs)
		}
	}
	if !b.Deadline.After(a.Deadline) || len(legs(imported.Legs)) < 3 {
		t.Errorf("the deadlines %v and %v, the legs %+v", a.Deadline, b.Deadline, imported.Legs)
	}
}

// spending are the legs that spend the budget, one after the other: the clean-up
// behind them has limits of its own.
func spending(all []audit.Leg) []audit.Leg {
	return slices.DeleteFunc(slices.Clone(all), func(l audit.Leg) bool { return slices.Contains([]string{"delete", "drop", "revoke"}, l.Name) })
}

// C15. Where time ends a leg that is out, the cause is wall_clock and not the
// server's; where it ends before one, budget_spent, and that leg is not sent.
func exhaustedBudget(t *testing.T, r *rig) {
	spent := func(what, want string, a brokertest.Answer) {
		t.Helper()
		if told(a) != want || strings.Contains(string(a.Body), "cancel") {
			t.Errorf("%s: %s, want %s", what, a.Body, want)
		}
		r.notSent(t)
		if !r.seen(t).Health.Contact.IsZero() {
			t.Errorf("%s: it was a contact", what)
		}
	}
	spent("before the first leg", "200 not_sent budget_spent safe", r.call(t, brokertest.Call{Timeout: "1us"}))
	if asked := r.server.methods(0); len(asked) != 0 {
		t.Errorf("the server was asked %q", asked)
	}
	handshake := "notifications/initialized"
	if r.modern {
		handshake = "server/discover"
	}
	r.server.on(handshake, never)
	spent("in the handshake", "200 not_sent wall_clock safe", r.call(t, brokertest.Call{Timeout: "500ms"}))
	r.server.on(handshake, nil)

	// "sending" takes longer than there is time, and not so long that the check before
	// it is stale; the call behind it does not leave.
	over, cancel := context.WithTimeout(t.Context(), 950*time.Millisecond)
	defer cancel()
	slow := func(at store.Moment, records []audit.Record) error {
		if at == store.Committing && slices.ContainsFunc(records, func(rec audit.Record) bool { return rec.Kind == audit.Sending }) {
			<-over.Done()
		}
		return nil
	}
	r.tamper.Store(&slow)
	spent("before the call", "200 not_sent budget_spent safe", r.call(t, brokertest.Call{Timeout: "800ms"}))
}

// C16. The contract has 20, 2, 1, none of them 0; ours has no value that means "for
// ever", from whichever side it comes.
func noTimeoutIsNone(t *testing.T, r *rig) {
	for _, timeout := range []string{"0s", "-1s", "0", "never"} {
		if a := r.call(t, brokertest.Call{Timeout: timeout}); a.Status != 400 || a.Reason != fault.MalformedRequest {
			t.Errorf("%q: %s", timeout, a.Body)
		}
		if err := r.tryEdit("enabled: true", "timeout: "+timeout+"\n    enabled: true"); err == nil {
			t.Errorf("the configuration takes the timeout %q", timeout)
		}
	}
	r.notSent(t)
}

// C17. A leg that is out ends with the budget, and the run goes on.
func neverAnswers(t *testing.T, r *rig) {
	r.server.on("tools/call", never)
	var a brokertest.Answer
	if r.contacted(t, func() { a = r.call(t, brokertest.Call{Timeout: "1s", Run: "run"}) }) {
		t.Error("it was a contact")
	}
	if told(a) != "200 unknown wall_clock never_without_looking" || a.Operation.Server != "peer" || a.Result != nil {
		t.Errorf("%s", a.Body)
	}
	for _, l := range spending(a.Legs) {
		if l.Budget <= 0 || l.Budget > time.Second {
			t.Errorf("%s may take %v", l.Name, l.Budget)
		}
	}
	r.server.on("tools/call", nil)
	if a := r.call(t, brokertest.Call{Run: "run"}); a.State != fault.Succeeded {
		t.Errorf("the run does not go on: %s", a.Body)
	}
}

// C18. The contract's seam reaches the three places where it calls; ours is one
// address, and nothing that is sent with another request reaches a call.
func oneSeam(t *testing.T, r *rig) {
	arrived, release := r.server.held("tools/call")
	defer release()
	a := r.call(t, brokertest.Call{Key: "held", Prefer: "respond-async"})
	<-arrived
	for _, word := range []string{"cancel", "cancelled", "abort", "signal"} {
		body := fmt.Sprintf(`{"server":"peer","tool":"search","request_key":"held","wait":"0s",%q:true}`, word)
		if status := r.sends(t, "POST", "/v1/operations", body, ""); status != 400 {
			t.Errorf("a member %s: %d", word, status)
		}
		body = `{"server":"peer","tool":"search","request_key":"held","wait":"0s"}`
		if status := r.sends(t, "POST", "/v1/operations?"+word+"=true", body, ""); status != 400 {
			t.Errorf("a query %s: %d", word, status)
		}
		if status := r.sends(t, "POST", "/v1/operations", body, word); status != 202 {
			t.Errorf("a header %s: %d", word, status)
		}
		if status := r.sends(t, "GET", "/v1/operations/"+a.ID+"?"+word+"=true", "", word); status != 202 {
			t.Errorf("retrieved with %s: %d", word, status)
		}
		if status := r.sends(t, "POST", "/v1/operations/"+a.ID+"/"+word+"/now", "", word); status != 404 {
			t.Errorf("another address with %s: %d", word, status)
		}
	}
	if status := r.sends(t, "DELETE", "/v1/operations/"+a.ID, "", ""); status != 405 {
		t.Errorf("DELETE: %d", status)
	}
	if got := r.Get(t, "/v1/operations/"+a.ID, brokertest.Call{}); got.State != fault.Sending {
		t.Fatalf("something of that has reached the call: %s", got.Body)
	}
	if got := r.Cancel(t, a.ID, brokertest.Call{}); got.Status != 202 && got.Status != 200 {
		t.Errorf("%s", got.Body)
	}
	// Whether it landed nobody claims to know.
	if got := r.call(t, brokertest.Call{Key: "held"}); told(got) != "200 unknown caller_cancelled never_without_looking" || got.ID != a.ID {
		t.Errorf("%s", got.Body)
	}
	if n := len(r.server.of("tools/call")); n != 1 {
		t.Errorf("%d calls were sent", n)
	}
}

// C19. Ours tells what is proven from what is not: of the nine only the refusal of a
// credential is safe to repeat.
func serverFailures(t *testing.T, r *rig) {
	raw := func(kind, body string) answer {
		return func(w http.ResponseWriter, _ question) {
			w.Header().Set("Content-Type", kind)
			w.Write([]byte(body))
		}
	}
	for _, row := range []struct {
		name   string
		answer answer
		want   string
	}{
		{"500", status(500), "unknown intermediary never_without_looking"},
		{"302", func(w http.ResponseWriter, _ question) {
			w.Header().Set("Location", r.Records.URL)
			w.WriteHeader(http.StatusFound)
		}, "unknown redirected never_without_looking"},
		{"401", status(401), "refused unauthorized safe"},
		{"RPC error", func(w http.ResponseWriter, q question) { reply(w, q, `"error":{"code":-32603,"message":"broken"}`) }, "rpc_error server_error never_without_looking"},
		{"html page", raw("text/html", "<html>sorry</html>"), "unknown reply_malformed never_without_looking"},
		{"stream with no message", raw("text/event-stream", ": nothing\n\n"), "unknown stream_ended never_without_looking"},
		{"stream with only a notification", raw("text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"), "unknown stream_ended never_without_looking"},
		{"neither result nor error", func(w http.ResponseWriter, q question) { reply(w, q, `"extra":1`) }, "unknown reply_malformed never_without_looking"},
		{"empty body", raw("application/json", ""), "unknown reply_malformed never_without_looking"},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := len(r.server.of("tools/call"))
			r.server.on("tools/call", row.answer)
			var a brokertest.Answer
			if r.contacted(t, func() { a = r.call(t, brokertest.Call{}) }) {
				t.Error("it was a contact")
			}
			if told(a) != "200 "+row.want || a.Operation.Server != "peer" || a.Result != nil || a.Text != "" {
				t.Errorf("%s, want %s", a.Body, row.want)
			}
			if n := len(r.server.of("tools/call")) - before; n != 1 || len(r.Records.Requests()) != 0 {
				t.Errorf("%d calls were sent, and %d requests went elsewhere", n, len(r.Records.Requests()))
			}
		})
	}
}

// C21. What a server says of its tool's effect does not make it less: where the
// operator says nothing it writes, and is not sent twice nor without its record.
func auditCritical(t *testing.T, r *rig) {
	r.server.lists(`{"name":"search","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"idempotentHint":true,"destructiveHint":false}}`)
	r.imports(t)
	if o := r.offered(t)["search"]; o.Effect != "write" {
		t.Errorf("offered as %+v", o)
	}
	a, again := r.call(t, brokertest.Call{Key: "k"}), r.call(t, brokertest.Call{Key: "k"})
	if a.ID != again.ID || a.State != fault.Succeeded || len(r.server.of("tools/call")) != 1 {
		t.Errorf("%d calls were sent", len(r.server.of("tools/call")))
	}
	r.fail(audit.Sending)
	if a := r.call(t, brokertest.Call{}); told(a) != "200 not_sent store_failed safe" || len(r.server.of("tools/call")) != 1 {
		t.Errorf("%d calls were sent: %s", len(r.server.of("tools/call")), a.Body)
	}
}
