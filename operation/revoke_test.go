package operation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
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
			rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
				before, rest, _ := strings.Cut(yaml, "/oauth/token\n")
				issuer := before[strings.LastIndex(before, " ")+1:]
				return before + "/oauth/token\n    revoke: {mode: best_effort, endpoint: " + issuer + "/revoke}\n" + rest
			}})
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
			if got := ends(t, rig); !slices.Equal(got, want) {
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

// recorded is what an audit record says of an operation's end.
type recorded struct {
	Kind   audit.Kind
	Reason fault.Reason
}

// ends are the records of the end of the operations in rig's database.
func ends(t *testing.T, rig *brokertest.Rig) (all []recorded) {
	t.Helper()
	s, err := store.Open(context.Background(), store.Config{Path: rig.DatabasePath()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var lines bytes.Buffer
	if err := s.Export(context.Background(), &lines); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(lines.String()) {
		var r recorded
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if slices.Contains([]audit.Kind{audit.Outcome, audit.Drop, audit.Revocation}, r.Kind) {
			all = append(all, r)
		}
	}
	return all
}
