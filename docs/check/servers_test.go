package check

import (
	"net/http"
	"testing"
)

// served asks for tools and servers, well and not.
func (b *bench) served(t *testing.T) {
	stranger := func(h http.Header) { b.admin(h); h.Del("Authorization") }
	gateway := func(h http.Header) {}
	for _, a := range []ask{
		{"GET", "/v1/servers", "", b.admin, 200}, // nothing was imported yet
		{"POST", "/v1/servers/records/import", "", b.admin, 200},
		{"POST", "/v1/servers/records/import", "", b.admin, 200},
		{"POST", "/v1/servers/records/probe", "", b.admin, 200},
		{"GET", "/v1/servers", "", b.admin, 200},
		{"GET", "/v1/servers/records/tools", "", b.admin, 200},
		{"GET", "/v1/servers/archive/tools", "", b.admin, 200},
		{"GET", "/v1/tools", "", nil, 200},
		{"GET", "/v1/tools?x=y", "", nil, 400},
		{"GET", "/v1/tools", "", func(h http.Header) { h.Del("Authorization") }, 401},
		{"GET", "/v1/tools", "", func(h http.Header) { h.Set("Broker-Actor", "user:9") }, 403},
		{"GET", "/v1/servers?x=y", "", b.admin, 400},
		{"GET", "/v1/servers/nowhere/tools", "", b.admin, 403},
		{"POST", "/v1/servers/nowhere/import", "", b.admin, 403},
		{"POST", "/v1/doctor", "", b.admin, 200},
		{"GET", "/v1/doctor/patience", "", b.admin, 200},
		{"GET", "/v1/doctor/patience?wait=1ms", "", b.admin, 200},
		{"GET", "/v1/doctor/patience?wait=61m", "", b.admin, 400},
		{"GET", "/v1/doctor/patience?wait=soon", "", b.admin, 400},
		{"POST", "/v1/operations", `{"server":"records","tool":"whoami","request_key":"unfit","arguments":{"x":1}}`, nil, 400},
	} {
		b.over(t, a)
	}
	for _, at := range []struct{ method, path string }{
		{"GET", "/v1/servers"}, {"GET", "/v1/servers/records/tools"}, {"POST", "/v1/servers/records/import"}, {"POST", "/v1/servers/records/probe"},
		{"POST", "/v1/doctor"}, {"GET", "/v1/doctor/patience"},
	} {
		b.over(t, ask{at.method, at.path, "{}", b.admin, 400})
		b.over(t, ask{at.method, at.path, "", stranger, 401})
		b.over(t, ask{at.method, at.path, "", gateway, 403})
	}
}
