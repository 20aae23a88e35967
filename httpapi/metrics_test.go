package httpapi_test

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/vault"
)

// TestVaultNumbers: every number of package vault, and that of the sink, is where
// operations.md says, as it is when somebody asks.
func TestVaultNumbers(t *testing.T) {
	stats := vault.Stats{Holds: 3, Epochs: 2, Pending: 1, Oldest: 1500 * time.Millisecond, Login: time.Hour,
		Mints:       map[string]uint64{"ok": 7, "vault_denied": 1},
		Revocations: map[string]uint64{"ok": 5},
		Drops:       map[string]uint64{"ok": 40, "vault_unreachable": 2, "expired_with_epoch": 1}}
	m := httpapi.NewMetrics(func() int { return 4 }, func() vault.Stats { return stats }, func() []httpapi.Server { return nil })
	m.Sink(func() uint64 { return 9 })
	ask := func() string {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		return w.Body.String()
	}
	got := ask()
	for _, want := range []string{
		"broker_operations_open 4", "broker_audit_sink_behind 9", "broker_holds_open 3", "broker_epochs_alive 2", "broker_drops_pending 1",
		"broker_drops_pending_oldest_seconds 1.5", "broker_vault_login_seconds 3600",
		`broker_vault_mints_total{result="ok"} 7`, `broker_vault_mints_total{result="vault_denied"} 1`,
		`broker_vault_revocations_total{result="ok"} 5`, `broker_vault_drops_total{result="ok"} 40`,
		`broker_vault_drops_total{result="vault_unreachable"} 2`, `broker_vault_drops_total{result="expired_with_epoch"} 1`,
	} {
		if !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	stats = vault.Stats{Login: math.MaxInt64}
	if got := ask(); !strings.Contains(got, "\nbroker_vault_login_seconds +Inf\n") || !strings.Contains(got, "\nbroker_holds_open 0\n") {
		t.Errorf("then\n%s", got)
	}
}

// TestServerNumbers: a server that was never probed is neither up nor down.
func TestServerNumbers(t *testing.T) {
	servers := []httpapi.Server{
		{ID: "a", Health: httpapi.Health{Is: "up", Contact: time.Unix(1_800_000_000, 5e8)}, Changed: []string{"x", "y"}},
		{ID: "b", Health: httpapi.Health{Is: "unwelcome"}},
		{ID: "c"},
	}
	m := httpapi.NewMetrics(func() int { return 0 }, func() vault.Stats { return vault.Stats{} }, func() []httpapi.Server { return servers })
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "broker_server_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		`broker_server_contact_timestamp_seconds{server="a"} 1.8000000005e+09`,
		`broker_server_tools_changed{server="a"} 2`, `broker_server_tools_changed{server="b"} 0`, `broker_server_tools_changed{server="c"} 0`,
		`broker_server_up{server="a"} 1`, `broker_server_up{server="b"} 0`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestCounted: an answer is counted once, when it begins, by the status that it has.
func TestCounted(t *testing.T) {
	m := httpapi.NewMetrics(func() int { return 0 }, func() vault.Stats { return vault.Stats{} }, func() []httpapi.Server { return nil })
	shown := func(want string) {
		t.Helper()
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(w.Body.String(), "\nbroker_http_requests_total{"+want+"\n") {
			t.Errorf("no %s in\n%s", want, w.Body)
		}
	}
	for route, answer := range map[string]func(http.ResponseWriter){
		`route="nothing",status="200"} 1`: func(http.ResponseWriter) {},
		`route="refused",status="404"} 1`: func(w http.ResponseWriter) { http.Error(w, "", http.StatusNotFound) },
		`route="stream",status="200"} 1`: func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			io.WriteString(w, "one")
			shown(`route="stream",status="200"} 1`)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			io.WriteString(w, "two")
		},
	} {
		named := func(*http.Request) string { return strings.Split(route, `"`)[1] }
		m.Counted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }), named).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		shown(route)
	}
}
