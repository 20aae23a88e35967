package check

import (
	"net/http"
	"testing"
)

// reviewed are the addresses of those who review.
var reviewed = []string{"/v1/audit/operations", "/v1/grants", "/v1/grants/who-can", "/v1/grants/explain", "/v1/grants/unused", "/v1/grants/expiring", "/v1/grants/orphaned"}

// reviewed looks at grants and operations, well and not.
func (b *bench) reviewed(t *testing.T) {
	const whoami = "server=records&tool=whoami"
	for _, good := range []string{
		"/v1/audit/operations", "/v1/audit/operations?limit=1&actor=user:7&caller=gateway&server=records&tool=whoami&state=succeeded&since=2026-01-01T00:00:00Z&until=2099-01-01T00:00:00Z",
		"/v1/audit/operations?id=x&request_key=x", "/v1/grants", "/v1/grants?actor=user:7&profile=company&limit=1&" + whoami,
		"/v1/grants/who-can?" + whoami, "/v1/grants/who-can?actor=user:9&" + whoami,
		"/v1/grants/explain?caller=gateway&actor=user:7&" + whoami, "/v1/grants/explain?caller=gateway&actor=user:9&zone=externalGlobal&admin=no&" + whoami,
		"/v1/grants/unused", "/v1/grants/unused?days=30&actor=user:7", "/v1/grants/expiring?days=0", "/v1/grants/orphaned", "/v1/grants/orphaned?vault=skip",
	} {
		b.over(t, ask{"GET", good, "", b.auditor, 200})
	}
	for _, path := range reviewed {
		b.over(t, ask{"GET", path + "?x=y", "", b.auditor, 400})
		b.over(t, ask{"GET", path, "{}", b.auditor, 400})
		b.over(t, ask{"GET", path, "", func(h http.Header) { h.Del("Authorization") }, 401})
		b.over(t, ask{"GET", path, "", nil, 403})
		b.over(t, ask{"GET", path, "", b.admin, 403})
	}
}
