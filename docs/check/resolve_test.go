package check

import (
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
)

const itRan = `{"ran":"yes","reason":"seen","attempt":1}`

// resolved says what became of a call in doubt, well and not.
func (b *bench) resolved(t *testing.T) {
	id := b.rig.Call(t, brokertest.Call{Tool: "drop", Key: "doubt", Arguments: map[string]string{"job": "b"}}).ID
	ended := b.rig.Call(t, brokertest.Call{Key: "ended"}).ID
	path := "/v1/operations/" + id + "/resolve"
	stranger := func(h http.Header) { b.admin(h); h.Del("Authorization") }
	gateway := func(h http.Header) { h.Set("Content-Type", "application/json") }
	for _, a := range []ask{
		{"GET", "/v1/doubts", "", b.admin, 200},
		{"GET", "/v1/doubts?x=y", "", b.admin, 400},
		{"GET", "/v1/doubts", "", stranger, 401},
		{"GET", "/v1/doubts", "", gateway, 403},
		{"POST", path, `{"ran":"no","reason":"not there"}`, b.admin, 200},
		{"GET", "/v1/operations/" + id, "", nil, 200},
		{"POST", path, itRan, b.admin, 200},
		{"POST", path, itRan, b.admin, 200}, // again
		{"GET", "/v1/operations/" + id, "", nil, 200},
		{"GET", "/v1/operations", "", nil, 200},
		{"POST", path, `{"ran":"no","reason":"not there"}`, b.admin, 422},
		{"POST", strings.Replace(path, id, ended, 1), itRan, b.admin, 422},
		{"POST", path, `{}`, b.admin, 400},
		{"POST", path, itRan, stranger, 401},
		{"POST", path, itRan, gateway, 403},
		{"POST", strings.Replace(path, id, "aaaaaaaaaaaaaaaaaaaaaaaaaa", 1), itRan, b.admin, 404},
		{"POST", path, strings.Repeat(" ", 9<<10), b.admin, 413},
		{"POST", path, itRan, func(h http.Header) { b.admin(h); h.Del("Content-Type") }, 415},
	} {
		b.over(t, a)
	}
}
