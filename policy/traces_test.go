package policy_test

import (
	"path/filepath"
	"testing"

	"onbehalf.internal/broker/policy"
)

func TestTraces(t *testing.T) {
	const store = "store: {path: broker.db}"
	for _, r := range []struct {
		line, collector string
		ca, propagate   bool
		bearer          string
	}{
		{line: `traces: {otlp: "http://127.0.0.1:4318"}`, collector: "http://127.0.0.1:4318"},
		{line: `traces: {otlp: "http://[::1]:4318", propagate: false}`, collector: "http://[::1]:4318"},
		{line: `traces: {otlp: "http://localhost:4318", propagate: true}`, collector: "http://localhost:4318", propagate: true},
		{line: `traces: {otlp: "https://otlp.example.org/team/a", bearer: "file:otlp-token"}`, collector: "https://otlp.example.org/team/a", bearer: "otlp-token"},
		{line: `traces: {otlp: "https://otlp.example.org", ca_file: ca.pem}`, collector: "https://otlp.example.org", ca: true},
	} {
		path := write(t, map[string]string{"ca.pem": newCA(t), "profiles.yaml": config(t, store, store+"\n"+r.line)})
		s, err := policy.Load(path)
		if err != nil {
			t.Errorf("%s: %v", r.line, err)
			continue
		}
		if r.bearer != "" {
			r.bearer = filepath.Join(filepath.Dir(path), r.bearer)
		}
		if got := s.Traces; got.Collector.String() != r.collector || (got.CA != nil) != r.ca || got.Propagate != r.propagate || got.Bearer != r.bearer {
			t.Errorf("%s: %+v", r.line, got)
		}
	}
	if load(t, config(t)).Traces != nil {
		t.Error("traces are made where nothing says so")
	}
	path := write(t, map[string]string{"ca.pem": newCA(t), "profiles.yaml": config(t, store, store+"\ntraces: {otlp: \"http://127.0.0.1:4318\", ca_file: ca.pem}")})
	if ps := problems(t, path); len(ps) != 1 || ps[0].Key != "traces.ca_file" {
		t.Errorf("a CA without https: %v", ps)
	}
}
