package check

import (
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
)

// auditor makes a request the auditor's.
func (b *bench) auditor(h http.Header) {
	h.Set("Authorization", "Bearer "+b.rig.AuditorBearer())
	h.Del("Broker-Actor")
}

// audited reads the audit, well and not, and once more after a restart: its first
// broker has signed a head by then.
func (b *bench) audited(t *testing.T) {
	openapi3filter.RegisterBodyDecoder("application/x-ndjson", openapi3filter.RegisteredBodyDecoder("text/plain"))
	stranger := func(h http.Header) { h.Del("Authorization") }
	for _, a := range []ask{
		{"GET", "/v1/audit", "", b.auditor, 200},
		{"GET", "/v1/audit?after=3&limit=2&actor=user:7&operation=x&since=2026-01-01T00:00:00Z&until=2099-01-01T00:00:00Z", "", b.auditor, 200},
		{"GET", "/v1/audit?limit=0", "", b.auditor, 400},
		{"GET", "/v1/audit?limit=10001", "", b.auditor, 400},
		{"GET", "/v1/audit?after=-1", "", b.auditor, 400},
		{"GET", "/v1/audit?after=1&after=2", "", b.auditor, 400},
		{"GET", "/v1/audit?since=today", "", b.auditor, 400},
		{"GET", "/v1/audit?actor=", "", b.auditor, 400},
		{"GET", "/v1/audit?who=user:7", "", b.auditor, 400},
		{"GET", "/v1/audit/head", "", b.auditor, 200},
		{"GET", "/v1/audit/head?x=y", "", b.auditor, 400},
	} {
		b.over(t, a)
	}
	for _, path := range []string{"/v1/audit", "/v1/audit/head"} {
		b.over(t, ask{"GET", path, "{}", b.auditor, 400})
		b.over(t, ask{"GET", path, "", stranger, 401})
		b.over(t, ask{"GET", path, "", nil, 403})
		b.over(t, ask{"GET", path, "", b.admin, 403})
	}
	if err := b.rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.rig.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.over(t, ask{"GET", "/v1/audit/head", "", b.auditor, 200})
}
