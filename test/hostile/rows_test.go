package hostile_test

import (
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/test/hostile/server"
)

// A row is one behaviour in one era, and what is expected of the client. The
// outcome stands with the behaviour, in words; see outcomeOf.
type row struct {
	server.Behaviour
	pin policy.Era
	odd
	want   fault.Outcome
	slower int // how often it was played in vain
}

// odd is what a row has that others of its leg have not.
type odd struct {
	path      string        // the server's view; "": see row.usualPath
	short     bool          // a deadline passes though the outcome is another
	idle      time.Duration // the idle window of the call
	arguments int           // bytes
	progress  []float64     // what is passed on; nil: progress is not asked for
	tools     int           // listed
	invalid   int           // left out of the list
	pings     int           // that the client answers; -1: as many as it likes
	noSession bool
	session   string // of a legacy server; "": s-1
	version   string // that a legacy server gives; "": 2025-11-25
}

const (
	legacyPath = "initialize initialized call"
	fastIdle   = 250 * time.Millisecond
)

// oddities, by behaviour. Everything else is as usual.
var oddities = map[string]odd{
	"code-version-for-ever":          {path: "call call"},
	"code-version-once":              {path: "call call"},
	"code-header-for-ever":           {path: "call list"}, // the list asks for nothing else: the same again would be refused again
	"code-header-then-listed":        {path: "call list call"},
	"code-header-listed-and-refused": {path: "call list call"},
	"code-header-list-hangs":         {path: "call list", short: true},
	"unread-413":                     {arguments: 200 << 10},
	"unread-silence":                 {arguments: 200 << 10},

	"progress":               {progress: []float64{1, 2}},
	"progress-backwards":     {progress: []float64{5, 7}},
	"progress-of-another":    {progress: []float64{}},
	"progress-no-number":     {progress: []float64{}},
	"progress-with-token":    {progress: []float64{1, 2}},
	"progress-large-message": {progress: []float64{1}},
	"progress-flood":         {progress: []float64{1}},
	"progress-for-ever":      {progress: []float64{1}},

	"stream-ends-after-progress": {progress: []float64{1}},

	"pings":                          {pings: 1},
	"pings-with-number":              {pings: 1},
	"pings-and-refuses-the-answer":   {pings: 1},
	"pings-and-redirects-the-answer": {pings: 1},
	"pings-and-hangs-the-answer":     {pings: 1},
	"pings-and-cuts-the-answer":      {pings: 1},
	"pings-for-ever":                 {pings: -1},
	"pings-10000":                    {pings: -1},

	"discover-modern":              {path: "discover call"},
	"discover-version-modern":      {path: "discover call"},
	"discovered-in-vain":           {path: "discover call"},
	"discovered-and-gone":          {path: "discover call"},
	"discover-legacy-only":         {path: "discover " + legacyPath},
	"discover-method-unknown":      {path: "discover " + legacyPath},
	"discover-404-method-unknown":  {path: "discover " + legacyPath},
	"discover-400-bare":            {path: "discover " + legacyPath},
	"discover-400-not-initialized": {path: "discover " + legacyPath},
	"discover-400-server-error":    {path: "discover " + legacyPath},
	"discover-no-versions":         {path: "discover " + legacyPath},
	"discover-404":                 {path: "discover " + legacyPath},
	"discover-405":                 {path: "discover " + legacyPath},
	"discover-version-legacy":      {path: "discover " + legacyPath},

	"initialize-older":         {version: "2025-03-26"},
	"initialized-404-once":     {path: "initialize initialized " + legacyPath},
	"initialized-404-for-ever": {path: "initialize initialized initialize initialized"},
	"session-none":             {noSession: true},
	"session-empty":            {noSession: true},
	"session-lf":               {session: "a"},
	"session-256":              {session: strings.Repeat("x", 256)},
	"session-markup":           {session: `"><script>{}%0d%0aX:`},
	"session-token":            {session: token},

	"list-two-pages":             {path: "list list", tools: 2},
	"list-empty-cursor":          {path: "list list", tools: 1},
	"list-stream":                {tools: 1},
	"list-empty-cursor-for-ever": {path: "list list"},
	"list-cursor-repeats":        {path: "list list"},
	"list-cursors-in-a-circle":   {path: "list list list list"},
	"list-endless":               {path: strings.TrimSpace(strings.Repeat("list ", 50))},
	"list-500-tools":             {tools: 500},
	"list-remote-schema":         {tools: 1},
	"list-odd-names":             {tools: 14},
	"list-tool-null":             {tools: 1},
	"list-tool-text":             {tools: 2},
	"list-name-empty":            {tools: 2},
	"list-name-absent":           {tools: 2},
	"list-names-twice":           {tools: 2},
	"list-names-twice-apart":     {path: "list list", tools: 2},
	"list-odd-lifetime":          {tools: 1},
	"list-lifetime-huge":         {tools: 1},
	"list-poison-headers":        {tools: 1, invalid: 10},
	"list-second-page-fails":     {path: "list list"},
	"list-second-page-redirects": {path: "list list"},
	"list-second-page-hangs":     {path: "list list"},
	"list-pages-ever-slower":     {path: "list list list"},
}

// again are behaviours that are met a second time, with an idle window: silence
// ends a call before its deadline, and a sign of life does not.
var again = []struct {
	behaviour, expect string
}{
	{"never-answers", "unknown: idle"},
	{"half-head-stays", "unknown: idle"},
	{"half-body-stays", "unknown: idle"},
	{"stream-silent", "unknown: idle"},
	{"stream-never-dispatched", "unknown: idle"},
	{"drips-body", "unknown: wall clock"},
	{"stream-heartbeats", "unknown: wall clock"},
	{"progress-for-ever", "unknown: wall clock"},
	{"late-but-in-time", "succeeded"},
}

// rows is the whole table.
func rows(t *testing.T) (all []row) {
	t.Helper()
	named := map[string]server.Behaviour{}
	for _, b := range server.All() {
		named[b.Name] = b
		all = append(all, rowsOf(t, b, oddities[b.Name])...)
	}
	for name := range oddities {
		if named[name].Name == "" {
			t.Errorf("there is no behaviour %q", name)
		}
	}
	for _, a := range again {
		b, o := named[a.behaviour], oddities[a.behaviour]
		b.Expect, o.idle = a.expect, fastIdle
		all = append(all, rowsOf(t, b, o)...)
	}
	return all
}

func rowsOf(t *testing.T, b server.Behaviour, o odd) (all []row) {
	t.Helper()
	for _, pin := range pins(b) {
		r := row{Behaviour: b, pin: pin, odd: o, want: outcomeOf(t, b.Expect)}
		if r.lists() && r.want.State == fault.Succeeded {
			r.want.Ran = fault.RanNo
		}
		all = append(all, r)
	}
	return all
}

// pins are what the operator says of the server's era: what it plays, or
// nothing where the client has to find out.
func pins(b server.Behaviour) []policy.Era {
	switch {
	case b.Leg == "server/discover" || strings.HasPrefix(b.Name, "discovered"):
		return []policy.Era{policy.EraAuto}
	case b.Era == server.Both:
		return []policy.Era{policy.EraModern, policy.EraLegacy}
	}
	return []policy.Era{policy.Era(b.Era)}
}

// outcomeOf reads "state: cause". Who says so, and whether the tool ran, follow
// from the state.
func outcomeOf(t *testing.T, words string) fault.Outcome {
	t.Helper()
	state, cause, _ := strings.Cut(words, ": ")
	reason := fault.Reason(strings.ReplaceAll(cause, " ", "_"))
	if reason != fault.None && !reason.Known() {
		t.Errorf("there is no reason %q", reason)
	}
	peer := func(s fault.State, r fault.Ran) fault.Outcome {
		return fault.Outcome{State: s, Ran: r, Evidence: fault.EvidencePeer, Cause: reason}
	}
	switch state {
	case "succeeded":
		return peer(fault.Succeeded, fault.RanYes)
	case "tool error":
		return peer(fault.ToolError, fault.RanYes)
	case "rpc error":
		return peer(fault.RPCError, fault.RanUnknown)
	case "refused":
		return fault.RefusedBecause(reason)
	case "unknown":
		return fault.Doubt(reason)
	case "not sent":
		return fault.NotSentBecause(reason)
	}
	t.Errorf("there is no state %q", state)
	return fault.Outcome{}
}

func (r row) name() string {
	name := r.Name + "/" + string(r.pin)
	if r.idle > 0 {
		name += "/idle"
	}
	return name
}

func (r row) lists() bool { return r.Leg == "tools/list" }

// waits reports whether the row ends with its deadline.
func (r row) waits() bool {
	return r.short || r.want.Cause == fault.WallClock || r.want.Cause == fault.Idle
}

// budget is short where the deadline has to pass. Elsewhere it only keeps a
// client that hangs from keeping the test.
func (r row) budget() time.Duration {
	switch {
	case r.idle > 0:
		return 4 * r.idle << r.slower
	case r.waits():
		return 250 * time.Millisecond << r.slower
	}
	return 20 * time.Second
}

// reached reports whether the server saw the leg that the row is about.
func (r row) reached(got observation) bool {
	if !r.waits() {
		return true
	}
	if r.path != "" {
		return pathOf(got.seen) == r.wantPath()
	}
	leg := r.Leg
	if leg == "notifications/cancelled" {
		leg = "tools/call"
	}
	return strings.Contains(" "+pathOf(got.seen)+" ", " "+short(leg)+" ")
}
