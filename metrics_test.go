package broker_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/testhttp"
)

// A metric is one as a running broker shows it, or as docs/operations.md has it.
type metric struct{ kind, labels string }

var (
	typeLine   = regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`)
	seriesLine = regexp.MustCompile(`(?m)^(\w+)(?:\{(.*)\})? \S+$`)
	label      = regexp.MustCompile(`(\w+)="`)
	row        = regexp.MustCompile("(?m)^\\| `(broker_\\w+)` \\| (\\w+), [^|]+ \\|([^|]*)\\| [^|]+ \\|$")
	word       = regexp.MustCompile("`(\\w+)`")
)

// scrape is the text of /metrics.
func scrape(t *testing.T, rig *brokertest.Rig) string {
	t.Helper()
	res, err := testhttp.Client.Get(rig.Broker.MetricsAddress() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	return string(text)
}

func withMetrics(yaml string) string {
	return strings.Replace(yaml, `listen: {api: "127.0.0.1:0"}`, `listen: {api: "127.0.0.1:0", metrics: "127.0.0.1:0"}`, 1)
}

// lateAnswer brings an answer in when its operation has been told as cut off.
func lateAnswer(t *testing.T, rig *brokertest.Rig) {
	t.Helper()
	release := rig.Records.Hold("tools/call")
	rig.Call(t, brokertest.Call{Tool: "slow", Arguments: map[string]int{"seconds": 0}, Timeout: "700ms"})
	release()
	tick, over := time.NewTicker(10*time.Millisecond), time.After(20*time.Second)
	defer tick.Stop()
	for !strings.Contains(scrape(t, rig), "\nbroker_late_answers_total{") {
		select {
		case <-tick.C:
		case <-over:
			t.Fatal("no answer came late")
		}
	}
}

// TestMetricsPage: what a running broker shows and the table of docs/operations.md
// are the same: names, types and labels.
func TestMetricsPage(t *testing.T) {
	sink := filepath.Join(t.TempDir(), "audit.jsonl")
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return withMetrics(yaml) + "audit: {sink: \"file:" + sink + "\"}\ntraces: {otlp: \"" + collector(t).URL + "\"}\n"
	}})
	rig.Call(t, brokertest.Call{})
	rig.Admin(t, "POST", "/v1/servers/records/probe", "", nil)
	lateAnswer(t, rig)
	text := scrape(t, rig)
	shown := map[string]metric{}
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		shown[m[1]] = metric{kind: m[2]}
	}
	for _, m := range seriesLine.FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_sum"), "_count")
		seen, ok := shown[name]
		if !ok {
			t.Fatalf("%s has no type", m[0])
		}
		var labels []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" { // a histogram's own
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		seen.labels = strings.Join(labels, " ")
		shown[name] = seen
	}
	page, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]metric{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		var labels []string
		for _, l := range word.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		told[m[1]] = metric{m[2], strings.Join(labels, " ")}
	}
	if diff := cmp.Diff(told, shown, cmp.AllowUnexported(metric{})); diff != "" {
		t.Errorf("docs/operations.md is not what is shown:\n%s", diff)
	}
	if len(told) < 18 {
		t.Errorf("%d rows: the test no longer reads the page", len(told))
	}
}

// TestSeriesAreBounded: whatever callers, actors, tools, servers, keys and
// addresses somebody sends, the second one of a kind brings no new series, and
// nothing of them is in one.
func TestSeriesAreBounded(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string { return withMetrics(brokertest.Fronted(yaml)) }})
	series := func() map[string]bool {
		all := map[string]bool{}
		for _, m := range seriesLine.FindAllStringSubmatch(scrape(t, rig), -1) {
			all[m[1]+"{"+m[2]+"}"] = true
		}
		return all
	}
	ask := func(method, path, bearer string) {
		req, err := http.NewRequestWithContext(t.Context(), method, rig.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + bearer}, "Broker-Actor": {"user:7"}}
		res, err := testhttp.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	mcp := http.Client{Transport: brokertest.Front{Rig: rig}}
	odd := func(i int) {
		name := fmt.Sprintf("odd%d", i)
		rig.Call(t, brokertest.Call{Key: name, Run: name})
		rig.Call(t, brokertest.Call{Actor: "user:" + name})
		rig.Call(t, brokertest.Call{Actor: "user:8", Run: name})
		rig.Call(t, brokertest.Call{Server: name})
		rig.Call(t, brokertest.Call{Tool: name})
		rig.Call(t, brokertest.Call{Tool: "fail", Arguments: map[string]string{name: name}})
		rig.Call(t, brokertest.Call{Bearer: name})
		rig.Call(t, brokertest.Call{Zone: name})
		ask("GET", "/v1/operations/"+name, rig.Bearer)
		ask("GET", "/v1/operations?request_key="+name, rig.Bearer)
		ask("GET", "/"+name, rig.Bearer)
		ask("GET", "/v1/"+name+"/"+name, rig.Bearer)
		ask("GET", "/v1/servers/"+name+"/tools", rig.AdminBearer())
		ask("ODD"+fmt.Sprint(i), "/v1/operations", rig.Bearer)
		ask("GET", "/ui/"+name, rig.Bearer)
		ask("GET", "/ui/operations/"+name, rig.Bearer)
		ask("POST", "/mcp/"+name, rig.Bearer)
		for _, path := range []string{"/mcp/", "/mcp/records/", "/.well-known/oauth-protected-resource/mcp/"} {
			res, err := mcp.Get(brokertest.Origin + path + name)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}
	}
	odd(0)
	before := series()
	for i := range 10 {
		odd(i + 1)
	}
	for s := range series() {
		if !before[s] {
			t.Errorf("%s is new", s)
		}
		if strings.Contains(strings.ToLower(s), "odd") || strings.Contains(s, "user:") {
			t.Errorf("%s has what somebody sent", s)
		}
	}
	if len(before) < 50 {
		t.Errorf("%d series: the test no longer reads them", len(before))
	}
}

// TestRequestsAreCounted: those of MCP clients and of the page beside those of the API, by
// their lines of the tables.
func TestRequestsAreCounted(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string { return withMetrics(brokertest.Fronted(yaml)) }})
	const records = brokertest.Origin + "/mcp/records"
	mcp := http.Client{Transport: brokertest.Front{Rig: rig}}
	person := http.Client{Transport: brokertest.Front{Rig: rig, Token: rig.Token("7", records, nil)}}
	page := http.Client{Transport: testhttp.Client.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(client http.Client, method, address string) {
		req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize",
			"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"desk","version":"1"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	ask(person, "POST", records)
	ask(mcp, "POST", brokertest.Origin+"/mcp/archive")
	ask(mcp, "GET", records+"/more")
	ask(mcp, "GET", brokertest.Origin+"/.well-known/oauth-protected-resource/mcp/records")
	for _, path := range []string{"/ui", "/ui/", "/ui/operations/some", "/ui/static/style.css", "/ui/some", "/some"} {
		ask(page, "GET", rig.URL+path)
	}
	var got []string
	for line := range strings.Lines(scrape(t, rig)) {
		if series, ok := strings.CutPrefix(line, "broker_http_requests_total"); ok {
			got = append(got, strings.TrimSpace(series))
		}
	}
	want := []string{
		`{route="/.well-known/oauth-protected-resource/mcp/{server}",status="200"} 1`,
		`{route="/mcp/{server}",status="200"} 1`,
		`{route="/mcp/{server}",status="401"} 1`,
		`{route="/mcp/{server}",status="404"} 1`,
		`{route="/ui",status="303"} 1`,
		`{route="/ui/",status="303"} 1`,
		`{route="/ui/operations/{id}",status="303"} 1`,
		`{route="/ui/static/",status="200"} 1`,
		`{route="other",status="401"} 1`,
		`{route="other",status="404"} 1`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
