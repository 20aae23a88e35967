//go:build real

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devidp"
)

// A row is one death: where, and what the next process must say.
type row struct {
	at    string // a moment of package store, "sending/committed"; or of a request, see trapAt
	call  brokertest.Call
	first step // what another process does before
	act   step // default: the call
	start bool // it dies before it is ready
	tries int  // how often the row may be tried until it dies there; 0: once

	told  []string // "state cause hold", one of them; nothing: the key is not known
	ran   int      // how often the tool ran by then
	again string   // how the repeat ends where it may run; "": succeeded
}

// A step is what is done with the key of a row. What a call gets for an answer
// from a process that dies, if anything, is judged where it comes in.
type step func(*site, context.Context, brokertest.Call)

func calls(s *site, ctx context.Context, c brokertest.Call) { s.do(ctx, c) }

// isRefused calls while the provider refuses: nothing is sent.
func isRefused(s *site, ctx context.Context, c brokertest.Call) {
	fail := devidp.Fail(1, http.StatusBadRequest, "invalid_target")
	s.Provider.Break(func(next http.Handler) http.Handler { return s.around(fail(next)) })
	s.do(ctx, c)
}

// diesSending calls, and the broker is killed when the tool has run.
func diesSending(s *site, ctx context.Context, c brokertest.Call) {
	s.trap.Store(trapAt("after tools/call", s.kill))
	s.do(ctx, c)
	s.killed()
}

func stops(s *site, ctx context.Context, c brokertest.Call) {
	s.do(ctx, c)
	s.Stop()
}

func reloads(s *site, _ context.Context, _ brokertest.Call) {
	s.Edit(func(yaml string) string { return yaml + "# again\n" })
}

// What the next process may say. An operation that may have a hold has it
// pending until its drop is on disk.
const (
	nothing  = ""
	refused  = "not_sent target_rejected "
	notSent  = "not_sent process_died pending"
	inDoubt  = "unknown process_died pending"
	finished = "succeeded  pending"
	dropped  = "succeeded  dropped"
)

// moments makes the three rows of a commit out of two: before it nothing of it is
// on disk, after it all.
func moments(kind string, before, after row) []row {
	rows := []row{before, before, after}
	for i, moment := range []string{"applying", "committing", "committed"} {
		rows[i].at = kind + "/" + moment
	}
	return rows
}

// both makes the two rows of a request whose effect the broker cannot see.
func both(request string, r row) []row {
	before, after := r, r
	before.at, after.at = "before "+request, "after "+request
	return []row{before, after}
}

func told(ran int, states ...string) row { return row{told: states, ran: ran} }

// hasty is a row of what the broker gives a quarter of a second only: on a busy
// machine it may come too late to be said.
func hasty(r row) row {
	r.tries = 5
	return r
}

func commitRows() []row {
	fails := row{call: brokertest.Call{Tool: "fail"}, ran: 1, told: []string{inDoubt}}
	failed := fails
	failed.told = []string{"tool_error tool_failed pending"}
	denied := row{call: brokertest.Call{Actor: "user:8"}, told: []string{nothing}, again: "no_grant"}
	recovers := row{first: diesSending, start: true, told: []string{inDoubt}, ran: 1}
	return slices.Concat(
		moments("decision", told(0, nothing), told(0, notSent)),
		moments("sending", told(0, notSent), told(0, inDoubt)),
		moments("outcome", told(1, inDoubt), told(1, finished)),
		moments("drop", told(1, finished), told(1, dropped)),
		moments("revocation", told(1, dropped), told(1, dropped)),
		moments("outcome", fails, failed),
		moments("outcome", row{act: isRefused, told: []string{notSent}}, row{act: isRefused, told: []string{refused}}),
		// of a second attempt
		moments("decision", row{first: isRefused, told: []string{refused}}, row{first: isRefused, told: []string{notSent}}),
		moments("sending", row{first: isRefused, told: []string{notSent}}, row{first: isRefused, told: []string{inDoubt}}),
		// outside operations
		moments("denial", denied, denied),
		moments("recovery", recovers, recovers),
		moments("reload", row{act: reloads, told: []string{nothing}}, row{act: reloads, told: []string{nothing}}),
	)
}

const (
	subjectRead = "GET /v1/kv/data/broker/subjects/7"
	keyRead     = "GET /v1/kv/data/broker/client"
	exchange    = "POST /oauth/token"
	holdPut     = "POST /v1/cubbyhole/op/"
	holdRead    = "GET /v1/cubbyhole/op/ " // and which one
	holdDrop    = "DELETE /v1/cubbyhole/op/"
	revoke      = "POST /revoke"
)

// requestRows are what the two eras have in common; reads is how often the hold is
// read, the last time for the revocation.
func requestRows(reads int, more ...[]row) []row {
	// Outcome and drop are side by side.
	ended := hasty(told(1, inDoubt, finished))
	return slices.Concat(
		both(subjectRead, told(0, notSent)), both(keyRead, told(0, notSent)), both(exchange, told(0, notSent)), both(holdPut, told(0, notSent)),
		both("server/discover", told(0, notSent)),
		[]row{{at: "before tools/call", told: []string{inDoubt}}, {at: "after tools/call", told: []string{inDoubt}, ran: 1}},
		both(fmt.Sprint(holdRead, reads), ended), both(holdDrop, ended), both(revoke, told(1, dropped)),
		slices.Concat(more...),
	)
}

// modernRows are those of the server whose late answers are listened for.
func modernRows() []row {
	late := row{call: brokertest.Call{Tool: "slow", Timeout: "2s"}, ran: 1, told: []string{"unknown wall_clock dropped"}}
	came := late
	came.told = []string{dropped}
	return requestRows(3,
		moments("late", late, came),
		both(holdRead+"1", told(0, notSent)), // for server/discover
		both(holdRead+"2", told(0, notSent)), // for tools/call
	)
}

func legacyRows() []row {
	cutOff := hasty(row{call: brokertest.Call{Tool: "slow", Timeout: "2s"}, ran: 1, told: []string{inDoubt, "unknown wall_clock pending"}})
	return requestRows(6,
		both(holdRead+"1", told(0, notSent)), both(holdRead+"2", told(0, notSent)), both(holdRead+"3", told(0, notSent)), both(holdRead+"4", told(0, notSent)),
		both("initialize", told(0, notSent)), both("notifications/initialized", told(0, notSent)),
		both(holdRead+"5", hasty(told(1, inDoubt, finished))), both("DELETE /mcp", hasty(told(1, inDoubt, finished))),
		both("notifications/cancelled", cutOff),
	)
}

// processRows are the requests at the two ends of a process.
func processRows() []row {
	starts := row{first: diesSending, start: true, told: []string{inDoubt}, ran: 1}
	return slices.Concat(
		both("GET /v1/auth/token/lookup-self", starts), both("PUT "+mint, starts),
		both("POST /v1/auth/token/revoke-self", row{act: stops, told: []string{dropped}, ran: 1}),
	)
}

// TestKillMatrix kills the broker at every commit and at every request of an
// operation, in both eras.
func TestKillMatrix(t *testing.T) {
	s := start(t)
	for server, rows := range map[string][]row{
		"records": slices.Concat(commitRows(), modernRows(), processRows()),
		"archive": slices.Concat(commitRows(), legacyRows()),
	} {
		for i, r := range rows {
			r.call.Server, r.call.Key = server, fmt.Sprintf("%s-%d", server, i)
			t.Run(fmt.Sprintf("%s/%d %s", server, i, strings.ReplaceAll(r.at, "/", " ")), func(t *testing.T) {
				before := s.count(wrong)
				err := s.die(t.Context(), r)
				for try := 1; try < r.tries && err == errNotDead; try++ {
					r.call.Key += "-again"
					err = s.die(t.Context(), r)
				}
				if err != nil {
					s.is(wrong, "%s, %s: %v", server, r.at, err)
				}
				if s.count(wrong) != before {
					t.Fail()
				}
			})
		}
	}
	s.judgeLeaks(t)
	s.judgeHolds(t)
	s.report(t)
}

// die lets the broker die as r says and judges what the next process makes of it.
func (s *site) die(ctx context.Context, r row) error {
	s.operated(1)
	s.Kill()
	if r.first != nil {
		if err := s.restart(ctx); err != nil {
			return err
		}
		r.first(s, ctx, r.call)
		s.Kill()
	}
	if err := s.dieNow(ctx, r); err != nil {
		return err
	}
	s.killed()
	s.trap.Store(nil)
	if err := s.restart(ctx); err != nil {
		return err
	}
	return s.judgeRow(ctx, r)
}

// dieNow starts a process that will die and does with it what makes it die.
func (s *site) dieNow(ctx context.Context, r row) error {
	var environ []string
	sprung := make(chan struct{})
	if strings.HasPrefix(r.at, "before ") || strings.HasPrefix(r.at, "after ") {
		t := trapAt(r.at, s.kill)
		s.trap.Store(t)
		sprung = t.sprung
	} else {
		environ = []string{"BROKER_CRASH_AT=" + r.at}
		close(sprung)
	}
	err := s.restart(ctx, environ...)
	if r.start != (err != nil) {
		return fmt.Errorf("the start of the process that was to die: %v", err)
	}
	if !r.start {
		act := r.act
		if act == nil {
			act = calls
		}
		act(s, ctx, r.call)
	}
	if err := s.dead(ctx); err != nil {
		return errNotDead
	}
	select {
	case <-sprung:
		return nil
	case <-time.After(10 * time.Second):
		return errors.New("it died somewhere else")
	}
}

var errNotDead = errors.New("it did not die")

func (s *site) kill() { s.Kill() }

// judgeRow asks for the operation, and then for its call once more.
func (s *site) judgeRow(ctx context.Context, r row) error {
	a, err := s.look(ctx, r.call)
	if err != nil {
		return err
	}
	known := nothing
	if a.Status != http.StatusNotFound {
		known = fmt.Sprintf("%s %s %s", a.State, a.Cause, a.Hold)
	}
	if runs := s.runs(r.call.Key); !slices.Contains(r.told, known) || runs != r.ran {
		return fmt.Errorf("%q after %d runs, want %q after %d", known, runs, r.told, r.ran)
	}
	if a.State == fault.Succeeded && len(a.Result) == 0 {
		return fmt.Errorf("succeeded without a result: %s", a.Body)
	}
	b, err := s.do(ctx, r.call)
	if err != nil {
		return err
	}
	s.judgeAudit(ctx)
	if known == nothing || a.Retry == fault.RetrySafe {
		return s.judgeAgain(r, a, b)
	}
	if b.ID != a.ID || b.State != a.State || b.Attempt != a.Attempt || !bytes.Equal(b.Result, a.Result) || s.runs(r.call.Key) != r.ran {
		return fmt.Errorf("the repeat is another job: %s\n%s", a.Body, b.Body)
	}
	return nil
}

// judgeAgain: what did not run may run now, once, as the next attempt.
func (s *site) judgeAgain(r row, a, b brokertest.Answer) error {
	want, runs := r.again, 0
	if want == "" {
		want, runs = string(fault.Succeeded), 1
	}
	if got := string(b.State) + string(b.Reason); got != want || s.runs(r.call.Key) != runs || runs == 1 && b.Attempt != a.Attempt+1 {
		return fmt.Errorf("the repeat after %d runs, want %s: %s", s.runs(r.call.Key), want, b.Body)
	}
	return nil
}
