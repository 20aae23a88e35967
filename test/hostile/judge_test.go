package hostile_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/test/hostile/server"
)

// slack is what an operation may take beyond its deadline: it is wide, since
// it is there to tell a client that ends from one that does not.
const slack = 3 * time.Second

// complaints says what is wrong with what was observed.
func (r row) complaints(got observation) (wrong []string) {
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	add(got.outcome != r.want, "outcome %+v, want %+v", got.outcome, r.want)
	add((got.result != nil) != r.answers(), "result %.60q, want one: %v", got.result, r.answers())
	add(got.took > r.budget()+slack, "took %v of %v", got.took, r.budget())

	// What the client says about the tool, and what the tool did.
	add(got.ran > 1, "the tool ran %d times", got.ran)
	add(got.outcome.Ran == fault.RanNo && got.ran > 0 && !r.Lies, "it says that the tool did not run, and it did")
	add(got.outcome.Ran == fault.RanYes && got.ran == 0, "it says that the tool ran, and it did not")

	add(pathOf(got.seen) != r.wantPath(), "path %q, want %q", pathOf(got.seen), r.wantPath())
	add(r.pings >= 0 && count(got.seen, "answer") != r.pings, "%d pings were answered, want %d", count(got.seen, "answer"), r.pings)
	add(!slices.Equal(got.progress, r.progress), "progress %v, want %v", got.progress, r.progress)
	add(got.tools != r.tools || got.invalid != r.invalid, "%d tools, %d left out, want %d, %d", got.tools, got.invalid, r.tools, r.invalid)
	return slices.Concat(wrong, r.partingComplaints(got.seen), r.headerComplaints(got.seen))
}

// answers reports whether there is a result or an error to pass on.
func (r row) answers() bool {
	passed := []fault.State{fault.Succeeded, fault.ToolError, fault.RPCError}
	return !r.lists() && slices.Contains(passed, r.want.State) && r.want.Cause != fault.SecretEchoed
}

// wantPath is what the server sees before the farewell.
func (r row) wantPath() string {
	last := "call"
	if r.lists() {
		last = "list"
	}
	switch usual := strings.TrimSuffix(legacyPath, "call") + last; {
	case r.path != "" && (r.pin != policy.EraLegacy || strings.HasPrefix(r.path, "initialize")):
		return r.path
	case r.path != "":
		return strings.TrimSuffix(usual, last) + r.path
	case r.Leg == "server/discover":
		return "discover"
	case r.pin == policy.EraModern:
		return last
	case r.want.State == fault.NotSent && !r.lists(): // up to the leg that failed
		before, _, _ := strings.Cut(usual, short(r.Leg)+" ")
		return before + short(r.Leg)
	default:
		return usual
	}
}

// pathOf is what came, in order, without what a client says at the end of a
// session or in answer to a ping: that may come on a connection of its own.
func pathOf(seen []server.Request) string {
	var path []string
	for _, q := range seen {
		if kind := kindOf(q); kind != "cancelled" && kind != "DELETE" && kind != "answer" {
			path = append(path, kind)
		}
	}
	return strings.Join(path, " ")
}

func kindOf(q server.Request) string {
	switch {
	case q.HTTP == "POST" && q.RPC != "":
		return short(q.RPC)
	case q.HTTP == "POST":
		return "answer"
	case q.HTTP == "DELETE" && q.RPC == "":
		return "DELETE"
	}
	return q.HTTP + " " + q.RPC // nothing that a client should do
}

func short(method string) string { return method[strings.LastIndex(method, "/")+1:] }

func count(seen []server.Request, kind string) (n int) {
	for _, q := range seen {
		if kindOf(q) == kind {
			n++
		}
	}
	return n
}

// partingComplaints are about the end of a legacy session. A call that was given
// up is cancelled once, an answered one never; a session that the server still
// has is deleted once.
func (r row) partingComplaints(seen []server.Request) (wrong []string) {
	cancels, deletes := count(seen, "cancelled"), count(seen, "DELETE")
	inSession := slices.ContainsFunc(seen, func(q server.Request) bool { return q.Session != "" })
	legacy := strings.Contains(pathOf(seen), "initialized")
	givenUp := r.want == fault.Doubt(fault.WallClock) || r.want == fault.Doubt(fault.Idle)
	answered := r.want.State != fault.InDoubt && !r.lists()
	gone := r.want.Cause == fault.SessionLost
	if cancels > 1 || cancels == 1 && answered || cancels == 0 && givenUp && legacy {
		wrong = append(wrong, fmt.Sprintf("%d cancellations", cancels))
	}
	if deletes > 1 || deletes == 1 && gone || deletes == 0 && inSession && !gone {
		wrong = append(wrong, fmt.Sprintf("%d DELETE", deletes))
	}
	return wrong
}

// headerComplaints are about what every request has to carry.
func (r row) headerComplaints(seen []server.Request) (wrong []string) {
	ids := map[string]bool{}
	legacy := strings.Contains(pathOf(seen), "initialize")
	for _, q := range seen {
		kind := kindOf(q)
		switch {
		case !q.Bearer:
			wrong = append(wrong, kind+" came without the credential")
		case q.ID != "" && kind != "answer" && ids[q.ID]:
			wrong = append(wrong, kind+" came under an id that was used")
		case legacy && kind != "discover" && !r.legacyHeaders(q), (!legacy || kind == "discover") && !modernHeaders(q):
			wrong = append(wrong, fmt.Sprintf("%s came with %+v", kind, q))
		}
		ids[q.ID] = true
	}
	return wrong
}

func modernHeaders(q server.Request) bool {
	named := kindOf(q) == "call" && q.Name == "search" || kindOf(q) != "call" && q.Name == ""
	return q.Version == "2026-07-28" && q.Session == "" && q.Method == q.RPC && named
}

// legacyHeaders: version and session come with the answer to initialize, and
// hold from then on. After a handshake that failed there may be no version.
func (r row) legacyHeaders(q server.Request) bool {
	version, session := cmp.Or(r.version, "2025-11-25"), cmp.Or(r.session, "s-1")
	if r.noSession {
		session = ""
	}
	switch kindOf(q) {
	case "initialize":
		version, session = "", ""
	case "DELETE":
		version = q.Version
	}
	return q.Version == version && q.Session == session && q.Method == "" && q.Name == "" && q.Params == nil
}
