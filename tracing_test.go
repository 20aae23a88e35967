package broker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/devotlp"
	"onbehalf.internal/broker/secret/canary"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// asked is what a caller says of its place in a trace.
func asked(flags string) http.Header {
	return http.Header{"Traceparent": {"00-" + traceID + "-" + spanID + "-" + flags}, "Tracestate": {"congo=t61rcWkgMzE"}}
}

func collector(t *testing.T) *devotlp.Collector {
	t.Helper()
	c, err := devotlp.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// traced is a rig whose traces go to c.
func traced(t *testing.T, c *devotlp.Collector, more string) *brokertest.Rig {
	t.Helper()
	return brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		return withMetrics(yaml) + "traces: {otlp: \"" + c.URL + "\"" + more + "}\n"
	}})
}

// spansOf are the spans of one operation: its own, those below it, and theirs.
func spansOf(all []devotlp.Span, id string) (own devotlp.Span, later, legs []devotlp.Span) {
	for _, s := range all {
		switch {
		case s.Attributes["broker.operation"] != id:
		case s.Name == "call":
			own = s
		default:
			later = append(later, s)
		}
	}
	for _, s := range all {
		if own.ID != "" && s.Parent == own.ID && s.Attributes["broker.operation"] == "" {
			legs = append(legs, s)
		}
	}
	return own, later, legs
}

func namesOf(spans []devotlp.Span) string {
	var all []string
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return strings.Join(all, " ")
}

// told records the bodies that reach a server.
type told struct {
	mu     sync.Mutex
	bodies []byte
}

func (h *told) by(counterpart interface {
	Break(func(http.Handler) http.Handler)
}) {
	counterpart.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			h.mu.Lock()
			h.bodies = fmt.Appendf(h.bodies, "%v\n%s\n", r.Header, body)
			h.mu.Unlock()
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})
	})
}

func (h *told) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.bodies)
}

// TestTraces: an operation is a span below its caller's, with the caller's trace id,
// and one for each leg; their names, attributes and times are those of the answer.
func TestTraces(t *testing.T) {
	for _, tc := range []struct {
		name   string
		call   brokertest.Call
		failed bool
	}{
		{"succeeded", brokertest.Call{}, false},
		{"succeeded at a legacy server", brokertest.Call{Server: "archive"}, false},
		{"the tool failed", brokertest.Call{Tool: "fail"}, true},
		{"cut off", brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "1"}}, true},
		{"late", brokertest.Call{Tool: "slow", Arguments: map[string]float64{"seconds": 1}, Timeout: "700ms"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := collector(t)
			rig := traced(t, c, "")
			tc.call.Trace = asked("01")
			before := time.Now()
			a := rig.Call(t, tc.call)
			isLate := tc.name == "late" && a.State == fault.InDoubt
			if isLate {
				if err := c.Await(t.Context(), func() bool { _, later, _ := spansOf(c.Spans(), a.ID); return len(later) == 1 }); err != nil {
					t.Fatal(err)
				}
			}
			if err := rig.Stop(); err != nil {
				t.Fatal(err)
			}
			own, later, legs := spansOf(c.Spans(), a.ID)
			if own.Trace != traceID || own.Parent != spanID || own.State != "congo=t61rcWkgMzE" || own.Failed != tc.failed || own.Kind != "SPAN_KIND_SERVER" {
				t.Errorf("%+v", own)
			}
			// The end of a session comes beside the answer.
			legs = slices.DeleteFunc(legs, func(s devotlp.Span) bool { return s.Name == "delete" })
			if namesOf(legs) != a.LegNames() {
				t.Fatalf("legs %s, the answer has %s", namesOf(legs), a.LegNames())
			}
			want := map[string]string{"broker.operation": a.ID, "broker.attempt": "int_value:1", "broker.caller": "gateway", "broker.server": or(tc.call.Server, "records"),
				"broker.tool": or(tc.call.Tool, "whoami"), "broker.state": string(a.State), "broker.ran": string(a.Ran), "broker.evidence": string(a.Evidence),
				"broker.cause": string(a.Cause), "broker.retry": string(a.Retry)}
			if !maps.Equal(own.Attributes, want) {
				t.Errorf("attributes %v, want %v", own.Attributes, want)
			}
			for i, leg := range legs {
				took := leg.Ended.Sub(leg.Began)
				if leg.Trace != traceID || leg.Kind != "SPAN_KIND_CLIENT" || !maps.Equal(leg.Attributes, map[string]string{"broker.reason": string(a.Legs[i].Reason)}) ||
					leg.Began.Before(before.Add(-time.Millisecond)) || (took-a.Legs[i].Took).Abs() > time.Millisecond {
					t.Errorf("%+v is not %+v", leg, a.Legs[i])
				}
			}
			if isLate && (later[0].Name != "late" || later[0].Parent != own.ID || later[0].Attributes["broker.state"] != "succeeded" || !strings.Contains(namesOf(c.Spans()), "drain")) {
				t.Errorf("%+v", later)
			}
			if !strings.Contains(rig.Log(), `"trace_id":"`+traceID+`"`) {
				t.Error("the log does not say the trace")
			}
		})
	}
}

func or(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// TestTracesLeaveOut: what was denied, what does not exist and what the beginner of the
// trace does not want recorded has no span. A place that is none is as if it were not
// there.
func TestTracesLeaveOut(t *testing.T) {
	c := collector(t)
	rig := traced(t, c, "")
	rig.Call(t, brokertest.Call{Actor: "user:8", Trace: asked("01")})
	rig.Call(t, brokertest.Call{Tool: "nothing", Trace: asked("01")})
	rig.Call(t, brokertest.Call{Trace: asked("00")})
	a := rig.Call(t, brokertest.Call{Trace: http.Header{"Traceparent": {"00-" + strings.ToUpper(traceID) + "-" + spanID + "-01"}, "Tracestate": {"congo=a"}}})
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	own, _, legs := spansOf(c.Spans(), a.ID)
	if own.Parent != "" || len(own.Trace) != 32 || own.Trace == traceID || own.State != "" {
		t.Errorf("%+v", own)
	}
	if len(c.Spans()) != 1+len(legs) {
		t.Errorf("more than one operation: %s", namesOf(c.Spans()))
	}
}

// TestTracesOfImports: imports and probes begin traces of their own.
func TestTracesOfImports(t *testing.T) {
	c := collector(t)
	rig := traced(t, c, "")
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	rig.Admin(t, "POST", "/v1/servers/archive/probe", "", nil)
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range c.Spans() {
		if s.Parent == "" {
			got = append(got, s.Name+" "+s.Attributes["broker.server"]+" "+s.Attributes["broker.state"]+" "+s.Kind)
		}
	}
	if want := []string{"import records succeeded SPAN_KIND_INTERNAL", "probe archive succeeded SPAN_KIND_INTERNAL"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestPropagation: a server of the modern era is told of its leg where the operator
// allows it, and nobody else is told anything, in any header or body.
func TestPropagation(t *testing.T) {
	for _, tc := range []struct {
		name, server, more string
		told               bool
	}{
		{"modern", "records", ", propagate: true", true},
		{"legacy", "archive", ", propagate: true", false},
		{"not allowed", "records", "", false},
		{"said not to", "records", ", propagate: false", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := collector(t)
			rig := traced(t, c, tc.more)
			var server, provider told
			provider.by(rig.Provider)
			server.by(map[string]*devmcp.Server{"records": rig.Records, "archive": rig.Archive}[tc.server])
			a := rig.Call(t, brokertest.Call{Server: tc.server, Trace: asked("01")})
			if err := rig.Stop(); err != nil {
				t.Fatal(err)
			}
			_, _, legs := spansOf(c.Spans(), a.ID)
			i := slices.IndexFunc(legs, func(s devotlp.Span) bool { return s.Name == "tools/call" })
			if i < 0 {
				t.Fatalf("legs %s", namesOf(legs))
			}
			heard := server.String()
			meta := `"traceparent":"00-` + traceID + `-` + legs[i].ID + `-01","tracestate":"congo=t61rcWkgMzE"`
			if strings.Contains(heard, meta) != tc.told {
				t.Errorf("told %v, want %v: %s", !tc.told, tc.told, heard)
			}
			if !tc.told && (strings.Contains(heard, traceID) || strings.Contains(strings.ToLower(heard), "traceparent")) || strings.Contains(heard, spanID) {
				t.Errorf("it heard more: %s", heard)
			}
			if said := provider.String(); said == "" || strings.Contains(said, traceID) || strings.Contains(strings.ToLower(said), "traceparent") {
				t.Errorf("the provider heard: %s", said)
			}
		})
	}
}

// TestTracesHoldNoSecret: the attributes are on this list, and no credential, argument,
// result or actor is in what is sent.
func TestTracesHoldNoSecret(t *testing.T) {
	const argument = "canary-of-an-argument"
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment=canary-of-the-environment")
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	canary.Run(t, func(cage *canary.Cage) {
		c := collector(t)
		bearer := filepath.Join(t.TempDir(), "bearer")
		if err := os.WriteFile(bearer, []byte("canary-of-the-collector\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		rig := traced(t, c, `, propagate: true, bearer: "file:`+bearer+`"`)
		for _, call := range []brokertest.Call{{}, {Server: "archive"}, {Tool: "fail"}, {Tool: "drop", Arguments: map[string]string{"job": argument}}, {Actor: "user:8"}} {
			call.Run, call.Key = "canary-of-a-run", "canary-of-a-key-"+call.Tool+call.Server
			rig.Call(t, call)
		}
		cage.Plant(append(append(rig.Secrets(), rig.Provider.Issued()...), append(rig.Records.Tokens(), rig.Archive.Tokens()...)...)...)
		cage.Plant(argument, "canary-of-a-run", "canary-of-a-key", "canary-of-the-collector", "canary-of-the-environment", rig.Records.URL, rig.Archive.URL)
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		bodies, headers := c.Requests()
		all := bytes.Join(bodies, nil)
		cage.Bytes("traces", all)
		if bytes.Contains(all, []byte("user:")) {
			t.Error("an actor is in a trace")
		}
		for _, h := range headers {
			if h.Get("Authorization") != "Bearer canary-of-the-collector" || h.Get("Traceparent") != "" {
				t.Errorf("headers %v", h)
			}
		}
		known := strings.Fields("broker.operation broker.attempt broker.caller broker.server broker.tool broker.state broker.ran broker.evidence broker.cause broker.retry broker.reason")
		for _, s := range c.Spans() {
			for key := range s.Attributes {
				if !slices.Contains(known, key) {
					t.Errorf("%s has the attribute %s", s.Name, key)
				}
			}
			if want := map[string]string{"service.name": "onbehalf-broker", "service.version": "0.1.0"}; !maps.Equal(s.Resource, want) {
				t.Errorf("resource %v", s.Resource)
			}
		}
		if len(c.Spans()) < 10 {
			t.Errorf("only %s", namesOf(c.Spans()))
		}
	}, "canary-of-the-environment")
}

// TestCollectorInTrouble: operations end as they do without a collector, and a stop keeps
// to its time.
func TestCollectorInTrouble(t *testing.T) {
	for name, trouble := range map[string]http.HandlerFunc{
		"hangs":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"refuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"is away":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := collector(t)
			c.Break(trouble)
			if trouble == nil {
				c.Close()
			}
			rig := traced(t, c, "")
			for range 5 {
				if a := rig.Call(t, brokertest.Call{}); a.State != fault.Succeeded || a.Hold != "dropped" {
					t.Fatalf("%s", a.Body)
				}
			}
			asked := time.Now()
			if err := rig.Stop(); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(asked); d > 4*time.Second {
				t.Errorf("the stop took %v", d)
			}
			before, _, _ := strings.Cut(rig.Log(), `"msg":"stopped"`)
			if lost := strings.Contains(before, `"msg":"traces dropped"`); lost != (name == "hangs") || len(c.Spans()) > 0 {
				t.Errorf("the log says in time that some were dropped: %v; %s", lost, namesOf(c.Spans()))
			}
		})
	}
}

// TestTraceMetrics: what was dropped is counted, and without traces nothing is.
func TestTraceMetrics(t *testing.T) {
	c := collector(t)
	c.Break(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	rig := traced(t, c, "")
	rig.Call(t, brokertest.Call{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Await(ctx, func() bool { bodies, _ := c.Requests(); return len(bodies) > 0 }); err != nil {
		t.Fatal(err)
	}
	for page := ""; !strings.Contains(page, "\nbroker_trace_spans_total{result=\"sent\"} 0\n") || strings.Contains(page, "{result=\"dropped\"} 0\n"); {
		if page = scrape(t, rig); ctx.Err() != nil {
			t.Fatalf("nothing was counted in %s", page)
		}
	}
	off := brokertest.New(t, &brokertest.Options{Config: withMetrics})
	off.Call(t, brokertest.Call{Trace: asked("01")})
	if page := scrape(t, off); strings.Contains(page, "trace") || strings.Contains(off.Log(), "trace_id") {
		t.Errorf("without traces there are: %s", page)
	}
}

// TestTracesAreNotReloaded: where they go is decided at the start.
func TestTracesAreNotReloaded(t *testing.T) {
	c := collector(t)
	rig := traced(t, c, "")
	for what, line := range map[string]string{
		"none":            "",
		"another address": "traces: {otlp: \"" + c.URL + "/else\"}\n",
		"told to servers": "traces: {otlp: \"" + c.URL + "\", propagate: true}\n",
	} {
		err := rig.Edit(func(yaml string) string {
			before, _, _ := strings.Cut(yaml, "traces: ")
			return before + line
		})
		if err == nil || !strings.Contains(err.Error(), "traces cannot be reloaded") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestBearerOfTraces: a file that cannot be read stops the start.
func TestBearerOfTraces(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/nowhere/bearer": "does not exist", empty: "is empty"} {
		r, err := brokertest.Start(t.Context(), brokertest.Options{Config: func(yaml string) string {
			return yaml + "traces: {otlp: \"http://127.0.0.1:1\", bearer: \"file:" + path + "\"}\n"
		}})
		if err == nil || !strings.Contains(err.Error(), "traces.bearer") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			r.Close()
		}
	}
}
