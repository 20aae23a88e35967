package operation_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/store"
)

// suspend stops what target names, as in `"actor":"user:7"`, and returns the id.
func suspend(t *testing.T, rig *brokertest.Rig, target string) string {
	t.Helper()
	var s httpapi.Suspension
	if a := rig.Admin(t, "POST", "/v1/suspensions", `{`+target+`,"reason":"a test"}`, &s); a.Status != 201 {
		t.Fatalf("suspending: %d %s", a.Status, a.Body)
	}
	return s.ID
}

func lift(t *testing.T, rig *brokertest.Rig, id string) {
	t.Helper()
	if a := rig.Admin(t, "DELETE", "/v1/suspensions/"+id+"?reason=over", "", nil); a.Status != 200 {
		t.Fatalf("lifting: %d %s", a.Status, a.Body)
	}
}

// held makes the call and has the server hold its method until release; what
// the caller gets in the end comes out of answer.
func held(t *testing.T, rig *brokertest.Rig, server *devmcp.Server, method string, c brokertest.Call) (release func(), answer chan brokertest.Answer) {
	t.Helper()
	arrived := server.Arrived(method)
	release, answer = server.Hold(method), make(chan brokertest.Answer, 1)
	t.Cleanup(release)
	go func() {
		a, err := rig.Do(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
		answer <- a
	}()
	if err := server.Await(t.Context(), func() bool { return server.Arrived(method) == arrived+1 }); err != nil {
		t.Fatal(err)
	}
	return release, answer
}

// TestSuspendedBetweenLegs: what is suspended while a leg is out sends no leg
// after it, reads no hold any more, and ends with its hold dropped.
func TestSuspendedBetweenLegs(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Server: "archive"}) // finds out the era
	parted(t, rig.Archive, 1)
	for i, target := range []string{`"actor":"user:7"`, `"server":"archive"`, `"profile":"company"`} {
		key := fmt.Sprint("k", i)
		release, answer := held(t, rig, rig.Archive, "initialize", brokertest.Call{Server: "archive", Key: key})
		id := suspend(t, rig, target)
		vault, requests := len(rig.Vault.Requests()), len(rig.Archive.Requests())
		release()
		a := <-answer
		if a.Status != 200 || a.State != "not_sent" || a.Cause != "suspended" || a.Ran != "no" || a.Retry != "safe" || a.Hold != "dropped" {
			t.Errorf("%s: %d %s", target, a.Status, a.Body)
		}
		if err := rig.Edit(func(y string) string { return y + "\n" }); err != nil { // a reload changes nothing about it
			t.Fatal(err)
		}
		for name, c := range map[string]brokertest.Call{"the same again": {Server: "archive", Key: key}, "a new one": {Server: "archive"}} {
			if a := rig.Call(t, c); name == "a new one" && (a.Status != 403 || a.Reason != "suspended" || a.Kind != "denied") || name != "a new one" && (a.State != "not_sent" || a.Attempt != 1) {
				t.Errorf("%s, %s: %d %s", target, name, a.Status, a.Body)
			}
		}
		if got := rig.Archive.Requests()[requests:]; len(got) != 0 {
			t.Errorf("%s: the server saw %d more requests", target, len(got))
		}
		if got := vaultCalls(rig.Vault.Requests()[vault:]); !slices.Equal(got, []string{"DELETE cubbyhole/op"}) {
			t.Errorf("%s: Vault saw %q", target, got)
		}
		lift(t, rig, id)
		if a := rig.Call(t, brokertest.Call{Server: "archive", Key: key}); a.State != "succeeded" || a.Attempt != 2 {
			t.Errorf("%s, lifted: %d %s", target, a.Status, a.Body)
		}
		parted(t, rig.Archive, 2+i)
	}
	if a := rig.Call(t, brokertest.Call{Server: "records"}); a.State != "succeeded" {
		t.Errorf("%s", a.Body)
	}
}

// TestSuspendedWhileOut: a call that has left is not called back. How it ended
// is told to those who wait and to those who ask; its result only when it is lifted.
func TestSuspendedWhileOut(t *testing.T) {
	rig := brokertest.New(t, nil)
	release, answer := held(t, rig, rig.Records, "tools/call", brokertest.Call{Key: "k"})
	id := suspend(t, rig, `"actor":"user:7"`)
	release()
	for name, a := range map[string]brokertest.Answer{
		"the caller that waits": <-answer,
		"a repeat":              rig.Call(t, brokertest.Call{Key: "k"}),
		"a retrieval":           rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}),
	} {
		if a.Status != 200 || a.State != "succeeded" || a.Ran != "yes" || a.Evidence != "peer" || a.Retry != "never" || a.Withheld != "suspended" || a.Result != nil || a.Text != "" {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	lift(t, rig, id)
	if a := rig.Get(t, "/v1/operations?request_key=k", brokertest.Call{}); a.Withheld != "" || a.Result == nil {
		t.Errorf("lifted: %s", a.Body)
	}
	if n := rig.Records.Calls("whoami"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
}

// TestSuspensionsStay: over a reload, over a restart, also of what the
// configuration did not know, until their time comes.
func TestSuspensionsStay(t *testing.T) {
	var ahead atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	rig := brokertest.New(t, &brokertest.Options{Now: clock})
	until := clock().Add(4 * time.Second).UTC().Truncate(time.Second)
	for _, body := range []string{`{"server":"records","reason":"r","until":"` + until.Format(time.RFC3339) + `"}`,
		`{"server":"fresh","reason":"r"}`, `{"actor":"user:8","reason":"r"}`} {
		if a := rig.Admin(t, "POST", "/v1/suspensions", body, nil); a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	denied := func(when string, c brokertest.Call, want fault.Reason) {
		t.Helper()
		if a := rig.Call(t, c); a.Reason != want || want == "" && a.State != "succeeded" {
			t.Errorf("%s, %s for %s: %d %s, want %q", when, c.Server, c.Actor, a.Status, a.Body, want)
		}
	}
	all := func(when string) {
		t.Helper()
		denied(when, brokertest.Call{Server: "records"}, fault.Suspended)
		denied(when, brokertest.Call{Server: "fresh"}, fault.Suspended)
		denied(when, brokertest.Call{Server: "archive"}, fault.None)
		denied(when, brokertest.Call{Server: "archive", Actor: "user:8"}, fault.Suspended)
	}
	all("at once")
	err := rig.Edit(func(y string) string { // "fresh" comes to exist, and user:8 gets a grant
		y = strings.Replace(y, "servers: [records, archive]", "servers: [records, archive, fresh]", 1)
		archive := y[strings.Index(y, "  archive:\n"):]
		y += strings.Replace(archive, "  archive:\n", "  fresh:\n", 1)
		grant := y[strings.Index(y, `      "user:7":`):strings.Index(y, "\nservers:")]
		return strings.Replace(y, grant, grant+strings.ReplaceAll(strings.ReplaceAll(grant, "user:7", "user:8"), "subjects/7", "subjects/8"), 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	all("after a reload")
	if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	all("after a restart")
	ahead.Store(int64(time.Until(until))) // its time has come
	denied("when its time has come", brokertest.Call{Server: "records"}, fault.None)
	denied("when its time has come", brokertest.Call{Server: "fresh"}, fault.Suspended)
	var list struct{ Suspensions []httpapi.Suspension }
	if rig.Admin(t, "GET", "/v1/suspensions", "", &list); len(list.Suspensions) != 2 || list.Suspensions[0].Server != "fresh" || !list.Suspensions[0].Known {
		t.Errorf("listed: %+v", list)
	}
	for _, s := range list.Suspensions {
		lift(t, rig, s.ID)
	}
	denied("lifted", brokertest.Call{Server: "fresh"}, fault.None)
	denied("lifted", brokertest.Call{Server: "archive", Actor: "user:8"}, fault.None)
	if err := errors.Join(rig.Stop(), rig.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	denied("lifted, after a restart", brokertest.Call{Server: "fresh"}, fault.None)
}

// TestSuspensionNotWritten: a suspension that could not be written is refused
// and not in force; what is on disk nevertheless is, after a restart.
func TestSuspensionNotWritten(t *testing.T) {
	for _, tc := range []struct {
		name          string
		at            store.Moment
		before, after string // of a call: state or reason
	}{
		{"refused by the store", store.Applying, "succeeded", "succeeded"},
		{"the commit fails", store.Committing, "store_failed", "succeeded"},
		{"it is on disk and told as failed", store.Committed, "store_failed", "suspended"},
	} {
		b := &bench{t: t}
		b.Rig = brokertest.New(t, &brokertest.Options{Tamper: b.interfere})
		b.commit(audit.Suspension, tc.at)
		if a := b.Admin(t, "POST", "/v1/suspensions", `{"actor":"user:7","reason":"r"}`, nil); a.Status != 503 || a.Reason != fault.StoreFailed {
			t.Errorf("%s: %d %s", tc.name, a.Status, a.Body)
		}
		word := func() string { a := b.Call(t, brokertest.Call{}); return string(a.State) + string(a.Reason) }
		if got := word(); got != tc.before {
			t.Errorf("%s: a call ends as %s, want %s", tc.name, got, tc.before)
		}
		b.tamper.Store(nil)
		b.must(b.Stop())
		b.must(b.Restart(t.Context()))
		if got := word(); got != tc.after {
			t.Errorf("%s: after a restart a call ends as %s, want %s", tc.name, got, tc.after)
		}
	}
}

// TestSuspensionOrder: once a suspension was answered, no hold is read for a leg
// that leaves. Every leg has a read of its own, so there are never more legs in
// all than there were reads by then.
func TestSuspensionOrder(t *testing.T) {
	rig := brokertest.New(t, nil)
	rig.Call(t, brokertest.Call{Server: "archive"})
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for !stop.Load() {
				if _, err := rig.Do(t.Context(), brokertest.Call{Server: "archive"}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	err := rig.Archive.Await(t.Context(), func() bool { return rig.Archive.Calls("whoami") >= 20 })
	if err != nil {
		t.Fatal(err)
	}
	suspend(t, rig, `"server":"archive"`)
	reads := 0
	for _, r := range rig.Vault.Requests() {
		if r.Method == "GET" && strings.HasPrefix(r.Path, holds) {
			reads++
		}
	}
	stop.Store(true)
	all.Wait()
	if err := rig.Stop(); err != nil {
		t.Fatal(err)
	}
	if legs := len(rig.Archive.Requests()); legs > reads {
		t.Errorf("%d legs left, and there were %d reads when the suspension was answered", legs, reads)
	}
	if n := rig.Vault.Residue(); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

// TestWhoeverRevokes: what is taken from a caller while a leg is out stops the
// next one; what is not its own does not.
func TestWhoeverRevokes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		edit  func(rig *brokertest.Rig, yaml string) string
		cause fault.Reason
	}{
		{"the caller", func(_ *brokertest.Rig, y string) string { return strings.Replace(y, "  portal:\n", "  porter:\n", 1) }, fault.GrantRevoked},
		{"its role", func(_ *brokertest.Rig, y string) string {
			return strings.Replace(y, "portal:\n    roles: [operate]", "portal:\n    roles: [audit]", 1)
		}, fault.GrantRevoked},
		{"its bearer", func(rig *brokertest.Rig, y string) string {
			return strings.Replace(y, audit.DigestOf(rig.PortalBearer()).String(), audit.DigestOf("another").String(), 1)
		}, fault.GrantRevoked},
		{"the actor", func(_ *brokertest.Rig, y string) string {
			return strings.Replace(y, `subjects: ["user:"]`, `subjects: ["user:8"]`, 1)
		}, fault.GrantRevoked},
		{"its issuer", func(_ *brokertest.Rig, y string) string {
			return strings.Replace(y, "portal.example", "other.example", 1)
		}, fault.GrantRevoked},
		{"nothing: its bearer is rotated", func(rig *brokertest.Rig, y string) string {
			old := audit.DigestOf(rig.PortalBearer()).String()
			return strings.Replace(y, old, audit.DigestOf("another").String()+`", "`+old, 1)
		}, fault.None},
		{"nothing: another caller's actor", func(_ *brokertest.Rig, y string) string {
			return strings.Replace(y, `asserted: ["user:7", "user:8"]`, `asserted: ["user:8"]`, 1)
		}, fault.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rig := brokertest.New(t, nil)
			release, answer := held(t, rig, rig.Records, "server/discover", brokertest.Call{Bearer: rig.PortalBearer(), Assertion: rig.Assert("user:7")})
			changed := false
			err := rig.Edit(func(y string) string { edited := tc.edit(rig, y); changed = edited != y; return edited })
			if err != nil || !changed {
				t.Fatalf("the edit: %v", err)
			}
			release()
			a := <-answer
			state := fault.Succeeded
			if tc.cause != fault.None {
				state = fault.NotSent
			}
			if a.Status != 200 || a.State != state || a.Cause != tc.cause || a.Hold != "dropped" || (rig.Records.Calls("whoami") == 1) != (tc.cause == fault.None) {
				t.Errorf("%d %s", a.Status, a.Body)
			}
		})
	}
}

// TestRevokedWhileOut: who may no longer speak for the actor is told how the
// call ended, and not what it found.
func TestRevokedWhileOut(t *testing.T) {
	rig := brokertest.New(t, nil)
	release, answer := held(t, rig, rig.Records, "tools/call", brokertest.Call{})
	err := rig.Edit(func(y string) string {
		return strings.Replace(y, `asserted: ["user:7", "user:8"]`, `asserted: ["user:8"]`, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	release()
	if a := <-answer; a.State != "succeeded" || a.Withheld != "grant_revoked" || a.Result != nil || bytes.Contains(a.Body, []byte("mcp-records")) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}
