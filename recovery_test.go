package broker_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

// lastStart is the last start record of a broker that has stopped. It is read from a
// copy: opened in its place, the file would be told from the one that was closed.
func lastStart(t *testing.T, rig *brokertest.Rig) audit.Started {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.db")
	copyFile(t, rig.DatabasePath(), path)
	s, err := store.Open(t.Context(), store.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var last struct {
		Kind, Snapshot string
		Started        *audit.Started
	}
	kinds := ""
	for line := range strings.Lines(storetest.Audit(t, s)) {
		var r struct {
			Kind, Snapshot string
			Started        *audit.Started
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == "start" {
			last = r
			kinds = ""
		}
		kinds += r.Kind + " "
	}
	if last.Started == nil || last.Snapshot == "" || !strings.HasPrefix(kinds, "start recovery ") {
		t.Fatalf("the last start: %s, %+v", kinds, last)
	}
	return *last.Started
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err := errors.Join(err, os.WriteFile(to, b, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// ledgerOf is what an answer says of its ledger, and of a key that is not there.
func ledgerOf(t *testing.T, a brokertest.Answer) (id string, neverSent bool) {
	t.Helper()
	var body struct {
		Ledger    struct{ ID string }
		NeverSent bool `json:"never_sent"`
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		t.Fatal(err)
	}
	return body.Ledger.ID, body.NeverSent
}

// TestStart: what a start finds is in the audit, and an older copy of the file is
// a ledger that knows nothing of keys that are older than itself.
func TestStart(t *testing.T) {
	rig := brokertest.New(t, nil)
	again := func(then func()) {
		t.Helper()
		if err := rig.Stop(); err != nil {
			t.Fatal(err)
		}
		then()
		if err := rig.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	older := rig.DatabasePath() + ".older"
	var found []audit.Started
	look := func() { found = append(found, lastStart(t, rig)) }

	again(func() { look(); copyFile(t, rig.DatabasePath(), older) })
	key := uuid.Must(uuid.NewV7()).String()
	first := rig.Call(t, brokertest.Call{Key: key})
	missing := uuid.Must(uuid.NewV7()).String()
	id, never := ledgerOf(t, rig.Get(t, "/v1/operations?request_key="+missing, brokertest.Call{}))
	if !never || first.State != "succeeded" {
		t.Errorf("the first ledger: never sent %v, %s", never, first.Body)
	}
	again(func() { look(); copyFile(t, older, rig.DatabasePath()) })
	for _, k := range []string{key, missing} {
		a := rig.Get(t, "/v1/operations?request_key="+k, brokertest.Call{})
		if now, never := ledgerOf(t, a); a.Status != http.StatusNotFound || never || now == id {
			t.Errorf("a key of before: ledger %s, was %s: %d %s", now, id, a.Status, a.Body)
		}
		if a := rig.Call(t, brokertest.Call{Key: k}); a.Reason != "no_record" {
			t.Errorf("a key of before, again: %d %s", a.Status, a.Body)
		}
	}
	if n := rig.Records.Calls("whoami"); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
	again(look)

	if found[0].Ledger != id || found[1].Ledger != id || found[2].Ledger == id {
		t.Errorf("ledgers: %+v, the API said %s", found, id)
	}
	for i, want := range []audit.Started{
		{Clean: true},
		{Clean: true},
		{Former: id},
	} {
		want.Version, want.Ledger, want.Previous = broker.Version, found[i].Ledger, found[i].Previous
		if (found[i].Previous == audit.Place{}) != (i == 0) {
			t.Errorf("start %d: the record before it is %+v", i, found[i].Previous)
		}
		if found[i] != want {
			t.Errorf("start %d: %+v, want %+v", i, found[i], want)
		}
	}
}
