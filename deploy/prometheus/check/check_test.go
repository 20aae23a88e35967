// Package check reads the alert rules and the dashboard as Prometheus and Grafana
// read them, and holds what they ask for against docs/operations.md, which a test
// at the top of the tree holds against a running broker.
package check

import (
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// known are the metrics of docs/operations.md with their labels, and with those
// that come from whoever asks the broker.
func known(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(broker_\\w+)` \\| (\\w+), [^|]+ \\|([^|]*)\\|").FindAllStringSubmatch(string(page), -1) {
		list := []string{"job", "instance", labels.MetricName}
		for _, l := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			list = append(list, l[1])
		}
		all[m[1]] = list
		if m[2] == "histogram" {
			all[m[1]+"_bucket"] = append(list, "le")
			all[m[1]+"_sum"], all[m[1]+"_count"] = list, list
			delete(all, m[1])
		}
	}
	if len(all) < 18 {
		t.Fatalf("%d metrics: the test no longer reads the page", len(all))
	}
	return all
}

// judge parses an expression and reports each metric and label that no broker
// has. It returns the metrics.
func judge(t *testing.T, metrics map[string][]string, text string) (used []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	var has []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			used = append(used, v.Name)
			if metrics[v.Name] == nil {
				t.Errorf("%s: no broker shows %q", text, v.Name)
			}
			has = append(has, metrics[v.Name]...)
			for _, m := range v.LabelMatchers {
				if !slices.Contains(metrics[v.Name], m.Name) {
					t.Errorf("%s: %s has no label %q", text, v.Name, m.Name)
				}
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(has, l) {
					t.Errorf("%s: groups by %q, which nothing in it has", text, l)
				}
			}
		}
		return nil
	})
	return used
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	raw, err := os.ReadFile("../alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(raw, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 || len(groups.Groups) != 1 {
		t.Fatal(errs)
	}
	return groups.Groups[0].Rules
}

func TestRules(t *testing.T) {
	metrics := known(t)
	for _, r := range rules(t) {
		judge(t, metrics, r.Expr)
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s does not say what it is, or what to do", r.Alert)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has severity %q", r.Alert, s)
		}
	}
}

// TestRulesFire evaluates each rule, a quarter of an hour after the first sample,
// over series for which it has to speak and over others for which it must not.
func TestRulesFire(t *testing.T) {
	cases := map[string]struct{ fires, quiet string }{
		"BrokerVaultLoginEnds": {`broker_vault_login_seconds 80x40`, "broker_vault_login_seconds 3600x40"},
		"BrokerMintsNoEpochs": {"broker_vault_mints_total{result=\"ok\"} 7x40\n broker_vault_mints_total{result=\"vault_denied\"} 0+1x40",
			"broker_vault_mints_total{result=\"ok\"} 0+1x40\n broker_vault_mints_total{result=\"vault_denied\"} 0+1x40"},
		"BrokerHoldsPending":    {`broker_drops_pending_oldest_seconds 31x40`, `broker_drops_pending_oldest_seconds 1x40`},
		"BrokerAuditNotCopied":  {`broker_audit_sink_behind 3x40`, `broker_audit_sink_behind 3x10 0 3x20`},
		"BrokerServerDown":      {`broker_server_up{server="a"} 0x40`, `broker_server_up{server="a"} 1x40`},
		"BrokerServerChanged":   {`broker_server_tools_changed{server="a"} 1x40`, `broker_server_tools_changed{server="a"} 0x40`},
		"BrokerCallsInDoubt":    {`broker_operations_total{server="a",state="unknown",cause="wall_clock"} 0+1x40`, `broker_operations_total{server="a",state="succeeded",cause=""} 0+1x40`},
		"BrokerAnswersComeLate": {`broker_late_answers_total{server="a",state="succeeded"} 0+1x40`, `broker_late_answers_total{server="a",state="succeeded"} 1x40`},
		"BrokerFailsItself":     {`broker_http_requests_total{route="/v1/operations",status="503"} 0+1x40`, `broker_http_requests_total{route="/v1/operations",status="403"} 0+1x40`},
	}
	for _, r := range rules(t) {
		c, ok := cases[r.Alert]
		if !ok {
			t.Errorf("nothing shows that %s can fire", r.Alert)
			continue
		}
		delete(cases, r.Alert)
		if n := evaluate(t, r.Expr, c.fires); n != 1 {
			t.Errorf("%s fires %d times, want once", r.Alert, n)
		}
		if n := evaluate(t, r.Expr, c.quiet); n != 0 {
			t.Errorf("%s fires %d times where all is well", r.Alert, n)
		}
	}
	for name := range cases {
		t.Errorf("there is no rule %s", name)
	}
}

// evaluate returns how many series the expression has in the end.
func evaluate(t *testing.T, expr, series string) int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 30s\n "+series+"\n")
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, 1000)
	q, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(15*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	vector, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatal(err)
	}
	return len(vector)
}

// TestDashboard: Grafana's own types take the file, each panel asks for what a
// broker shows, and nothing that it shows is left out.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../../grafana/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	plugins.RegisterDefaultPlugins()
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(raw); err != nil && err.Error() != "" { // it returns an empty list
		t.Error(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(raw, &board); err != nil {
		t.Fatal(err)
	}
	metrics, unseen, ids := known(t), known(t), map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%q has the id of another panel", p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			// Grafana fills its variables in before Prometheus sees the text.
			for _, name := range judge(t, metrics, strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")) {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					if base, ok := strings.CutSuffix(name, suffix); ok {
						delete(unseen, base+"_bucket")
						delete(unseen, base+"_sum")
						delete(unseen, base+"_count")
					}
				}
				delete(unseen, name)
			}
		}
	}
	for name := range unseen {
		t.Errorf("%s is on no panel", name)
	}
}
