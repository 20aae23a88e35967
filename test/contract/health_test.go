package contract

import (
	"net/http"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// TestHealth (80 to 84): each of these is one contact or none, and nothing else of
// what is known of a server changes with it.
func TestHealth(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.imports(t)
		kept := names(r.kept(t))
		for _, row := range []struct {
			name    string
			does    func()
			contact bool
		}{
			{"a call", func() { r.call(t, brokertest.Call{}) }, true},
			{"a call that fails at the tool", func() {
				r.server.on("tools/call", r.server.answers(toolFailed))
				r.call(t, brokertest.Call{})
			}, true},
			{"a call that is answered 500", func() {
				r.server.on("tools/call", status(500))
				r.call(t, brokertest.Call{})
			}, false},
			{"a probe", func() { r.probes(t) }, true},
			{"a call that is refused before", func() { r.call(t, brokertest.Call{Tool: "off"}) }, false},
		} {
			before := r.seen(t)
			if r.contacted(t, row.does) != row.contact {
				t.Errorf("%s: a contact %v", row.name, !row.contact)
			}
			after := r.seen(t)
			if after.Import != before.Import || names(r.kept(t)) != kept || row.contact && after.Health.Latency <= 0 {
				t.Errorf("%s: %+v, and before %+v", row.name, after, before)
			}
			if row.name != "a probe" && (after.Health.Is != before.Health.Is || !after.Health.Probed.Equal(before.Health.Probed)) {
				t.Errorf("%s counts as a probe: %+v", row.name, after.Health)
			}
		}
	})
}

// TestImportProblemSurvivesAProbe (83): a probe tells of itself alone, whether it was
// in vain or not, and asks for no tools.
func TestImportProblemSurvivesAProbe(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.server.on("tools/list", status(http.StatusServiceUnavailable))
		r.imports(t)
		failed := r.seen(t).Import
		if failed.Status != "error" || failed.Problem == "" {
			t.Fatalf("%+v", failed)
		}
		asked := len(r.server.of("tools/list"))
		if p := r.probes(t); p.Is != "up" || p.Reason != "" || p.Latency <= 0 {
			t.Errorf("%+v", p)
		}
		was := r.seen(t).Health
		handshake := "initialize"
		if r.modern {
			handshake = "server/discover"
		}
		r.server.on(handshake, status(http.StatusInternalServerError))
		if r.contacted(t, func() { r.probed(t, "down", fault.Intermediary) }) {
			t.Error("a probe in vain is a contact")
		}
		now := r.seen(t)
		if now.Import != failed || len(r.server.of("tools/list")) != asked || now.Health.Version != was.Version || now.Health.Software != was.Software {
			t.Errorf("%+v, and before %+v %+v", now, failed, was)
		}
		if now.Health.Is != "down" || now.Health.Reason != fault.Intermediary || !now.Health.Probed.After(was.Probed) {
			t.Errorf("%+v", now.Health)
		}
	})
}

// probed holds a probe to what it should find.
func (r *rig) probed(t *testing.T, is string, reason fault.Reason) httpapi.ProbeAnswer {
	t.Helper()
	got := r.probes(t)
	if got.Is != is || got.Reason != reason {
		t.Errorf("the probe says %q, %q, want %q, %q", got.Is, got.Reason, is, reason)
	}
	return got
}
