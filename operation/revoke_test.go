package operation_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
)

// TestRevocation: where the profile says so, the exchanged token is ended at the
// provider, once, after its hold is gone and off the answer's path. It has a leg and
// an audit record of its own, also where it fails, and never changes the outcome.
func TestRevocation(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		reason fault.Reason
	}{
		{"revoked", http.StatusOK, fault.None},
		{"the provider fails", http.StatusInternalServerError, fault.ProviderError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rig := brokertest.New(t, &brokertest.Options{Config: revoking})
			rig.Provider.Break(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/revoke" && tc.status != http.StatusOK {
						w.WriteHeader(tc.status)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			a := rig.Call(t, brokertest.Call{})
			if a.State != "succeeded" || a.Hold != "dropped" {
				t.Fatalf("%s", a.Body)
			}
			if err := rig.Stop(); err != nil { // when all is recorded
				t.Fatal(err)
			}
			want := []recorded{{audit.Outcome, fault.None}, {audit.Drop, fault.None}, {audit.Revocation, tc.reason}}
			if got := reasons(ends(t, rig)); !slices.Equal(got, want) {
				t.Errorf("recorded %+v, want %+v", got, want)
			}
			if err := rig.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			legs := rig.Get(t, "/v1/operations/"+a.ID, brokertest.Call{}).Legs
			if last := legs[len(legs)-1]; last.Name != "revoke" || last.Reason != tc.reason || legs[len(legs)-2].Name != "drop" {
				t.Errorf("legs %+v, want the drop and then revoke with reason %q", legs, tc.reason)
			}
		})
	}
}

// revoking is the configuration with revocation switched on.
func revoking(yaml string) string {
	before, rest, _ := strings.Cut(yaml, "/oauth/token\n")
	issuer := before[strings.LastIndex(before, " ")+1:]
	return before + "/oauth/token\n    revoke: {mode: best_effort, endpoint: " + issuer + "/revoke}\n" + rest
}

// holdRevocation has the provider's one revocation wait for release; asked is closed
// when it is there.
func holdRevocation(t *testing.T, provider *devidp.Provider) (asked <-chan struct{}, release func()) {
	there, released := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	provider.Break(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/revoke" {
				close(there)
				<-released
			}
			next.ServeHTTP(w, r)
		})
	})
	return there, release
}

// TestRefusedIsRevoked: a token that failed the broker's checks is ended at the
// provider. The operation ends for the reason that it would end for without that,
// and the token is in nothing that is said or written.
func TestRefusedIsRevoked(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: revoking})
	rig.Provider.Alter(func(g *devidp.Grant) { g.Audience = []string{"mcp-archive"} })
	a := rig.Call(t, brokertest.Call{})
	if a.State != "not_sent" || a.Cause != fault.WrongAudience || a.Retry != "safe" || a.Hold != "" {
		t.Fatalf("%s", a.Body)
	}
	if err := rig.Stop(); err != nil { // when all is recorded
		t.Fatal(err)
	}
	records := ends(t, rig)
	if got, want := reasons(records), []recorded{{audit.Outcome, fault.WrongAudience}, {audit.Revocation, fault.None}}; !slices.Equal(got, want) {
		t.Fatalf("recorded %+v, want %+v", got, want)
	}
	token := rig.Provider.Issued()[0]
	if _, _, _, err := rig.Provider.Verify(token, "mcp-archive"); err == nil {
		t.Error("the token is good")
	}
	if want := audit.DigestOf(token).String(); records[0].Token != want || records[1].Token != want {
		t.Errorf("fingerprints %q and %q, want %q", records[0].Token, records[1].Token, want)
	}
	database, err := os.ReadFile(rig.DatabasePath())
	if err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]string{"answer": string(a.Body), "log": rig.Log(), "database": string(database)} {
		if strings.Contains(said, token) {
			t.Errorf("the token is in the %s", name)
		}
	}
}

// TestNarrowedIsRecorded: where fewer scopes were granted than were asked for, and
// the profile permits that, the operation runs and its records say so.
func TestNarrowedIsRecorded(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		yaml = strings.ReplaceAll(yaml, "scopes: [records.read]", "scopes: [records.read, records.write]")
		return strings.Replace(yaml, "response: {", "response: {required_scopes: [records.read], ", 1)
	}})
	for _, granted := range []string{"records.read records.write", "records.read"} {
		rig.Provider.Alter(func(g *devidp.Grant) { g.Scopes = strings.Fields(granted) })
		if a := rig.Call(t, brokertest.Call{}); a.State != "succeeded" {
			t.Fatalf("%s", a.Body)
		}
	}
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range ends(t, rig) {
		got = append(got, fmt.Sprintf("%s %s %t", r.Kind, r.Scopes, r.Narrowed))
	}
	want := []string{
		"outcome [records.read records.write] false", "drop [records.read records.write] false",
		"outcome [records.read] true", "drop [records.read] true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}

// recorded is what an audit record says of an operation's end.
type recorded struct {
	Kind   audit.Kind
	Reason fault.Reason
}

// ended is that and more of the same record.
type ended struct {
	recorded
	Token    string
	Scopes   []string
	Narrowed bool
}

func reasons(records []ended) (all []recorded) {
	for _, r := range records {
		all = append(all, r.recorded)
	}
	return all
}

// ends are the records of the end of the operations in rig's database.
func ends(t *testing.T, rig *brokertest.Rig) (all []ended) {
	t.Helper()
	for line := range strings.Lines(rig.Audit(t)) {
		var r ended
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if slices.Contains([]audit.Kind{audit.Outcome, audit.Drop, audit.Revocation}, r.Kind) {
			all = append(all, r)
		}
	}
	return all
}
