package check

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/httpapi"
)

// admin makes a request the admin's.
func (b *bench) admin(h http.Header) {
	h.Set("Authorization", "Bearer "+b.rig.AdminBearer())
	h.Set("Content-Type", "application/json")
}

const suspendUser8 = `{"actor":"user:8","reason":"r","until":"2035-01-31T12:00:00Z"}`

// suspended suspends, looks and lifts, well and not.
func (b *bench) suspended(t *testing.T) {
	const one = "/v1/suspensions/aaaaaaaaaaaaaaaaaaaaaaaaaa?reason=r"
	stranger := func(h http.Header) { b.admin(h); h.Del("Authorization") }
	gateway := func(h http.Header) { h.Set("Content-Type", "application/json") }
	for _, a := range []ask{
		{"POST", "/v1/suspensions", suspendUser8, b.admin, 201},
		{"POST", "/v1/suspensions", suspendUser8, b.admin, 200},
		{"POST", "/v1/suspensions", `{"server":"nine","reason":"r"}`, b.admin, 201},
		{"POST", "/v1/suspensions", `{"profile":"nine","reason":"r"}`, b.admin, 201},
		{"GET", "/v1/suspensions", "", b.admin, 200},
		{"POST", "/v1/suspensions", `{}`, b.admin, 400},
		{"POST", "/v1/suspensions", suspendUser8, stranger, 401},
		{"POST", "/v1/suspensions", suspendUser8, gateway, 403},
		{"POST", "/v1/suspensions", strings.Repeat(" ", 9<<10), b.admin, 413},
		{"POST", "/v1/suspensions", suspendUser8, func(h http.Header) { b.admin(h); h.Del("Content-Type") }, 415},
		{"GET", "/v1/suspensions?x=y", "", b.admin, 400},
		{"GET", "/v1/suspensions", "", stranger, 401},
		{"GET", "/v1/suspensions", "", gateway, 403},
		{"DELETE", strings.TrimSuffix(one, "?reason=r"), "", b.admin, 400},
		{"DELETE", one, "", stranger, 401},
		{"DELETE", one, "", gateway, 403},
		{"DELETE", one, "", b.admin, 404},
	} {
		b.over(t, a)
	}
	var list struct{ Suspensions []httpapi.Suspension }
	if err := json.Unmarshal(b.rig.Admin(t, "GET", "/v1/suspensions", "", nil).Body, &list); err != nil || len(list.Suspensions) != 3 {
		t.Fatalf("%v %v", list, err)
	}
	for _, s := range list.Suspensions {
		b.over(t, ask{"DELETE", "/v1/suspensions/" + s.ID + "?reason=r", "", b.admin, 200})
	}
}
