package check

import (
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
)

// people makes a request that of a caller who brings user:8.
func (b *bench) people(h http.Header) {
	h.Set("Authorization", "Bearer "+b.rig.PeopleBearer())
	h.Set("Broker-Approver-Assertion", b.rig.AssertApprover("user:8", nil))
	h.Set("Content-Type", "application/json")
}

func approve(digest string) string {
	return `{"decision":"approve","digest":"` + digest + `","reason":"seen"}`
}

// approved has calls wait and decides about them, well and not.
func (b *bench) approved(t *testing.T) {
	edit := func(change func(string) string) {
		if err := b.rig.Edit(change); err != nil {
			t.Fatal(err)
		}
	}
	edit(brokertest.Approving)
	defer edit(func(y string) string {
		return strings.ReplaceAll(y, "requires_approval: true", "requires_approval: false")
	})
	first := b.rig.Call(t, brokertest.Call{Key: "first", Arguments: map[string]string{"q": "x"}})
	second := b.rig.Call(t, brokertest.Call{Key: "second"})
	yes := approve(first.Approval.Digest)
	path := "/v1/approvals/" + first.ID
	stranger := func(h http.Header) { b.people(h); h.Del("Authorization") }
	gateway := func(h http.Header) { h.Set("Content-Type", "application/json") }
	for _, a := range []ask{
		{"GET", "/v1/approvals", "", b.people, 200},
		{"GET", "/v1/approvals?x=y", "", b.people, 400},
		{"GET", "/v1/approvals", "", stranger, 401},
		{"GET", "/v1/approvals", "", gateway, 403},
		{"POST", path, `{}`, b.people, 400},
		{"POST", path, yes, stranger, 401},
		{"POST", path, yes, gateway, 403},
		{"POST", strings.Replace(path, first.ID, "aaaaaaaaaaaaaaaaaaaaaaaaaa", 1), yes, b.people, 404},
		{"POST", path, strings.Repeat(" ", 9<<10), b.people, 413},
		{"POST", path, yes, func(h http.Header) { b.people(h); h.Del("Content-Type") }, 415},
		{"POST", path, approve("sha256:" + strings.Repeat("0", 64)), b.people, 422},
		{"POST", path, yes, b.people, 200},
		{"POST", path, yes, b.people, 200}, // again
		{"GET", "/v1/operations/" + first.ID, "", nil, 202},
		{"POST", strings.Replace(path, first.ID, second.ID, 1), `{"decision":"deny","digest":"` + second.Approval.Digest + `","reason":"no"}`, b.people, 200},
		{"GET", "/v1/operations/" + second.ID, "", nil, 200},
		{"GET", "/v1/approvals", "", b.people, 200},
		{"POST", "/v1/operations", call("third"), nil, 202},
	} {
		b.over(t, a)
	}
}
