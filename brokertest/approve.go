package brokertest

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/httpapi"
)

// Approving has calls of both servers wait for a person, see [Options.Config].
func Approving(yaml string) string {
	return strings.ReplaceAll(yaml, "requires_approval: false", "requires_approval: true")
}

// PeopleBearer is the bearer of the caller "people", which brings the decisions of
// every user.
func (r *Rig) PeopleBearer() string { return "people-" + r.Bearer }

// AssertApprover signs an assertion that a person decides; claims may add to it and
// change it.
func (r *Rig) AssertApprover(person string, claims map[string]any) string {
	all := jwt.MapClaims{"iss": "https://people.example", "aud": "approvals", "sub": person}
	for name, value := range claims {
		all[name] = value
	}
	return r.sign(all)
}

// People makes a request as the caller "people", with these headers besides.
func (r *Rig) People(t testing.TB, headers http.Header, method, path, body string, into any) AdminAnswer {
	t.Helper()
	all := http.Header{"Authorization": {"Bearer " + r.PeopleBearer()}}
	for name, values := range headers {
		all[name] = values
	}
	return r.as(t, all, method, path, body, into)
}

// Pending are the calls that wait for a person.
func (r *Rig) Pending(t testing.TB) []httpapi.Pending {
	t.Helper()
	var list struct{ Approvals []httpapi.Pending }
	if a := r.People(t, nil, "GET", "/v1/approvals", "", &list); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return list.Approvals
}

// Decide has user:8 decide about a call that waits: "approve" or "deny".
func (r *Rig) Decide(t testing.TB, a Answer, decision string) AdminAnswer {
	t.Helper()
	return r.DecideAs(t, a, decision, r.AssertApprover("user:8", nil))
}

// DecideAs is Decide with that assertion.
func (r *Rig) DecideAs(t testing.TB, a Answer, decision, assertion string) AdminAnswer {
	t.Helper()
	digest := ""
	if a.Approval != nil {
		digest = a.Approval.Digest
	}
	body, _ := json.Marshal(map[string]string{"decision": decision, "digest": digest, "reason": "looked at it"})
	return r.People(t, http.Header{"Broker-Approver-Assertion": {assertion}}, "POST", "/v1/approvals/"+a.ID, string(body), nil)
}
