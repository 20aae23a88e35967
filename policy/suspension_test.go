package policy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

var (
	user7   = policy.Target{Sort: "actor", Name: "user:7"}
	records = policy.Target{Sort: "server", Name: "records"}
	company = policy.Target{Sort: "profile", Name: "company"}
)

func durable() error { return nil }

// suspend puts a suspension of target into force at now; until zero: until lifted.
func suspend(t testing.TB, h *policy.Holder, id string, target policy.Target, until time.Time) {
	t.Helper()
	s := policy.Suspension{ID: id, Target: target, Reason: "leaked: " + id, By: "admin", Since: now, Until: until}
	if _, repeated, err := h.Suspend(s, durable); repeated || err != nil {
		t.Fatalf("Suspend(%v) = %v, %v", s, repeated, err)
	}
}

// ids are the ids of what stands at the given time.
func ids(s *policy.Snapshot, at time.Time) (list []string) {
	for _, x := range s.Suspensions(at) {
		list = append(list, x.ID)
	}
	return list
}

// TestSuspensionWins: what is suspended is refused as suspended, whatever else
// the file says of it, and nothing else changes its verdict.
func TestSuspensionWins(t *testing.T) {
	s := load(t, config(t))
	gateway := question(t, s, "gateway", "", "records", "").Caller
	profileOf := map[string]string{"records": "company", "asking": "company", "odd": "company"}
	rng := rand.New(rand.NewPCG(5, 6))
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	targets := []policy.Target{user7, records, company, {Sort: "actor", Name: "user:8"}, {Sort: "actor", Name: "user:nobody"}, {Sort: "server", Name: "nowhere"},
		{Sort: "server", Name: "static"}, {Sort: "server", Name: "company"}, {Sort: "profile", Name: "records"}}
	seen := map[bool]int{}
	for range 2000 {
		h := policy.NewHolder(s)
		rng.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
		chosen := targets[:rng.IntN(4)]
		for i, target := range chosen {
			suspend(t, h, fmt.Sprint(i), target, time.Time{})
		}
		stopped := func(sort, name string) bool { return slices.Contains(chosen, policy.Target{Sort: sort, Name: name}) }
		caller, actor, server, tool, at := pick(anyCaller), pick(anyActor), pick(anyServer), pick(anyTool), anyTime[rng.IntN(len(anyTime))]
		_, want := s.Explain(caller, actor, server, tool, at)
		wins := stopped("actor", actor) || stopped("server", server) || stopped("profile", profileOf[server])
		if wins {
			want = "suspended"
		}
		if _, got := h.Current().Explain(caller, actor, server, tool, at); got != want {
			t.Fatalf("with %v suspended, %q %q %q %q: %q, want %q", chosen, caller, actor, server, tool, got, want)
		}
		_, err := h.Current().DecideDiscovery(gateway, server, at)
		if (reason(err) == fault.Suspended) != (stopped("server", server) || stopped("profile", profileOf[server])) {
			t.Fatalf("with %v suspended, discovery at %q: %v", chosen, server, err)
		}
		seen[wins]++
	}
	if seen[true] < 100 || seen[false] < 100 {
		t.Errorf("%d were suspended, %d were not: that shows little", seen[true], seen[false])
	}
}

// TestStandsUnlessSuspended: what runs is stopped by each part of it, and by
// nothing else, also after another file.
func TestStandsUnlessSuspended(t *testing.T) {
	s := load(t, config(t))
	q := question(t, s, "gateway", "user:7", "records", "search")
	execution, err := s.Decide(q, now)
	if err != nil {
		t.Fatal(err)
	}
	discovery, err := s.DecideDiscovery(q.Caller, "records", now)
	if err != nil {
		t.Fatal(err)
	}
	static, err := s.Decide(question(t, s, "gateway", "user:7", "static", "search"), now)
	if err != nil {
		t.Fatal(err)
	}
	moved := config(t, "profiles:\n", `profiles:
  second:
    token_endpoint: https://identity.example.org/oauth/token
    client: {id: broker, auth: basic, key: "vault:kv/broker/client#key"}
    allowed_audiences: [mcp-api]
    allowed_scopes: [records.read]
    response: {token_format: jwt}
    grants:
      "user:7":
        enabled: true
        credential: "vault:kv/broker/subjects/7#token"
        allowed_audiences: [mcp-api]
        allowed_scopes: [records.read]
`, "profile: company, audience: mcp-api, scopes: [records.read], disc", "profile: second, audience: mcp-api, scopes: [records.read], disc")
	for _, r := range []struct {
		target                       policy.Target
		file                         string
		execution, discovery, static fault.Reason
	}{
		{user7, "", fault.Suspended, fault.None, fault.Suspended},
		{records, "", fault.Suspended, fault.Suspended, fault.None},
		{company, "", fault.Suspended, fault.Suspended, fault.None},
		{company, moved, fault.Suspended, fault.Suspended, fault.None}, // it began with it
		{policy.Target{Sort: "profile", Name: "second"}, moved, fault.Suspended, fault.Suspended, fault.None},
		{policy.Target{Sort: "profile", Name: "second"}, "", fault.None, fault.None, fault.None},
		{policy.Target{Sort: "actor", Name: "user:8"}, "", fault.None, fault.None, fault.None},
		{policy.Target{Sort: "server", Name: "static"}, "", fault.None, fault.None, fault.Suspended},
		{user7, config(t, `"user:7":`, `"user:6":`), fault.Suspended, fault.None, fault.Suspended}, // the word that tells most
	} {
		h := policy.NewHolder(s)
		suspend(t, h, "a", r.target, time.Time{})
		if r.file != "" {
			h.Swap(load(t, r.file))
		}
		for i, d := range []policy.Decision{execution, discovery, static} {
			want := []fault.Reason{r.execution, r.discovery, r.static}[i]
			if err := h.Current().Stands(d, now); reason(err) != want {
				t.Errorf("%v suspended, decision %d: %v, want %q", r.target, i, err, want)
			}
		}
	}
}

// TestExplainSuspension: the first check says what stops the call.
func TestExplainSuspension(t *testing.T) {
	s := load(t, config(t))
	first := func(s *policy.Snapshot) policy.Check {
		checks, _ := s.Explain("gateway", "user:7", "records", "search", now)
		return checks[0]
	}
	if got, want := first(s), (policy.Check{Name: "not suspended", Value: "not looked at: the file does not say", OK: true}); got != want {
		t.Errorf("of a file: %+v, want %+v", got, want)
	}
	h := policy.NewHolder(s)
	if got, want := first(h.Current()), (policy.Check{Name: "not suspended", Value: "no suspension", OK: true}); got != want {
		t.Errorf("of a holder: %+v, want %+v", got, want)
	}
	suspend(t, h, "abc", company, time.Time{})
	if got, want := first(h.Current()), (policy.Check{Name: "not suspended", Value: "profile company", Where: "suspension abc"}); got != want {
		t.Errorf("suspended: %+v, want %+v", got, want)
	}
}

func TestSuspensionEnds(t *testing.T) {
	h := policy.NewHolder(load(t, config(t)))
	end := now.Add(time.Hour)
	suspend(t, h, "a", user7, end)
	q := question(t, h.Current(), "gateway", "user:7", "records", "search")
	for at, want := range map[time.Time]fault.Reason{
		now: fault.Suspended, end.Add(-1): fault.Suspended, end: fault.None, end.Add(1): fault.None,
		end.In(time.FixedZone("", 3600)): fault.None,
	} {
		if _, err := h.Current().Decide(q, at); reason(err) != want {
			t.Errorf("at %v: %v, want %q", at, err, want)
		}
		if stands := len(h.Current().Suspensions(at)) == 1; stands != (want == fault.Suspended) {
			t.Errorf("at %v it is listed: %v", at, stands)
		}
	}
	if _, _, err := h.Lift("a", end, func(policy.Suspension) error { return nil }); reason(err) != fault.SuspensionNotFound {
		t.Errorf("lifting what is over: %v", err)
	}
	suspend(t, h, "b", user7, end.Add(time.Hour))
	if _, others, err := h.Lift("b", end, func(policy.Suspension) error { return nil }); others != 0 || err != nil {
		t.Errorf("lifting beside what is over: %d others, %v", others, err)
	}
}

// TestSuspendTwice: the same again is the one that stands; anything else stands
// for itself, and the last of them to end decides.
func TestSuspendTwice(t *testing.T) {
	soon, later := now.Add(time.Hour), now.Add(2*time.Hour)
	h := policy.NewHolder(load(t, config(t)))
	q := question(t, h.Current(), "gateway", "user:7", "records", "search")
	first := policy.Suspension{ID: "a", Target: user7, Reason: "phished", By: "admin", Since: now, Until: soon}
	change := func(f func(*policy.Suspension)) policy.Suspension { s := first; f(&s); return s }
	for _, r := range []struct {
		s        policy.Suspension
		repeated bool
	}{
		{first, false},
		{change(func(s *policy.Suspension) { s.ID, s.Since = "b", now.Add(time.Minute) }), true},
		{change(func(s *policy.Suspension) { s.ID, s.Until = "c", soon.In(time.FixedZone("", 3600)) }), true},
		{change(func(s *policy.Suspension) { s.ID, s.Reason = "d", "lost a laptop" }), false},
		{change(func(s *policy.Suspension) { s.ID, s.By = "e", "second" }), false},
		{change(func(s *policy.Suspension) { s.ID, s.Until = "f", later }), false},
		{change(func(s *policy.Suspension) { s.ID, s.Until, s.Reason = "g", now.Add(time.Minute), "short" }), false},
		{change(func(s *policy.Suspension) { s.ID, s.Since, s.Until = "h", soon, later }), true}, // as f
		{change(func(s *policy.Suspension) { s.ID, s.Target = "i", records }), false},
	} {
		written := false
		got, repeated, err := h.Suspend(r.s, func() error { written = true; return nil })
		if err != nil || repeated != r.repeated || written == r.repeated || got.ID == r.s.ID == r.repeated {
			t.Errorf("Suspend(%v) = %v, %v, %v, written %v", r.s, got.ID, repeated, err, written)
		}
	}
	if got := ids(h.Current(), now); !slices.Equal(got, []string{"a", "d", "e", "f", "g", "i"}) {
		t.Errorf("standing: %q", got)
	}
	lift := func(id string, others int) {
		t.Helper()
		_, n, err := h.Lift(id, now, func(s policy.Suspension) error {
			if s.ID != id {
				t.Errorf("write was given %q", s.ID)
			}
			return nil
		})
		if n != others || err != nil {
			t.Errorf("Lift(%q) = %d others, %v, want %d", id, n, err, others)
		}
	}
	denied := func(at time.Time, want fault.Reason) {
		t.Helper()
		if _, err := h.Current().Decide(q, at); reason(err) != want {
			t.Errorf("at %v: %v, want %q", at, err, want)
		}
	}
	lift("i", 0)
	denied(later.Add(-1), fault.Suspended) // f
	denied(later, fault.None)
	lift("f", 4)
	denied(soon.Add(-1), fault.Suspended)
	denied(soon, fault.None)
	lift("a", 3)
	lift("d", 2)
	lift("e", 1)
	denied(now, fault.Suspended) // g
	denied(now.Add(time.Minute), fault.None)
	lift("g", 0)
	denied(now, fault.None)
	if _, _, err := h.Lift("g", now, nil); reason(err) != fault.SuspensionNotFound {
		t.Errorf("lifting again: %v", err)
	}
	// what no longer stands is not a repeat
	if _, repeated, err := h.Suspend(first, durable); repeated || err != nil {
		t.Errorf("again after it was lifted: %v, %v", repeated, err)
	}
	over := change(func(s *policy.Suspension) { s.ID, s.Since = "j", soon })
	if _, repeated, err := h.Suspend(over, durable); repeated || err != nil {
		t.Errorf("again after it was over: %v, %v", repeated, err)
	}
}

// TestNotWrittenNotInForce: what could not be made durable has not happened.
func TestNotWrittenNotInForce(t *testing.T) {
	h := policy.NewHolder(load(t, config(t)))
	broken := errors.New("the disk is gone")
	s := policy.Suspension{ID: "a", Target: user7, Reason: "r", By: "admin", Since: now}
	before := h.Current()
	if _, _, err := h.Suspend(s, func() error {
		if len(h.Current().Suspensions(now)) != 0 {
			t.Error("it is in force before it is on disk")
		}
		return broken
	}); err != broken || h.Current() != before {
		t.Errorf("not written: %v, in force: %q", err, ids(h.Current(), now))
	}
	if _, _, err := h.Suspend(s, durable); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Lift("a", now, func(policy.Suspension) error {
		if len(h.Current().Suspensions(now)) != 1 {
			t.Error("it is lifted before that is on disk")
		}
		return broken
	}); err != broken || len(ids(h.Current(), now)) != 1 {
		t.Errorf("lifting not written: %v, in force: %q", err, ids(h.Current(), now))
	}
}

// TestChangesAtOnce: of files and suspensions that change at once none is lost,
// and a suspension brings no old file back.
func TestChangesAtOnce(t *testing.T) {
	files := []*policy.Snapshot{load(t, config(t)), load(t, config(t, "timeout: 20s", "timeout: 10s"))}
	h := policy.NewHolder(files[0])
	const n = 200
	var all, swaps sync.WaitGroup
	var over atomic.Bool
	swaps.Go(func() {
		for i := 0; i == 0 || !over.Load() || i%2 == 1; i++ { // the last is files[1]
			h.Swap(files[i%2])
			if h.Current().Hash != files[i%2].Hash {
				t.Error("a suspension brought an old file back")
			}
		}
	})
	for _, who := range []string{"a", "b"} {
		all.Go(func() {
			for i := range n {
				s := policy.Suspension{ID: fmt.Sprint(who, i), Target: user7, Reason: fmt.Sprint(i), By: who, Since: now}
				if _, _, err := h.Suspend(s, durable); err != nil || !slices.Contains(ids(h.Current(), now), s.ID) {
					t.Errorf("%s: %v, and it is not in force", s.ID, err)
				}
				if i%2 == 0 {
					if _, _, err := h.Lift(s.ID, now, func(policy.Suspension) error { return nil }); err != nil || slices.Contains(ids(h.Current(), now), s.ID) {
						t.Errorf("%s: %v, and it is still in force", s.ID, err)
					}
				}
			}
		})
	}
	all.Wait()
	over.Store(true)
	swaps.Wait()
	if got := len(ids(h.Current(), now)); got != n || h.Current().Hash != files[1].Hash {
		t.Errorf("%d in force, want %d; file %s", got, n, h.Current().Hash)
	}
}

// TestRestore: what is left of an earlier process is in force; what has passed is not.
func TestRestore(t *testing.T) {
	h := policy.NewHolder(load(t, config(t)))
	h.Restore([]policy.Suspension{{ID: "a", Target: user7}, {ID: "b", Target: records, Until: now}, {ID: "c", Target: records, Until: now.Add(1)}}, now)
	if got := ids(h.Current(), now); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("standing: %q", got)
	}
}

func TestTooManySuspensions(t *testing.T) {
	h := policy.NewHolder(load(t, config(t)))
	var list []policy.Suspension
	for i := range 10_000 {
		list = append(list, policy.Suspension{ID: fmt.Sprint(i), Target: policy.Target{Sort: "actor", Name: fmt.Sprint("user:n", i)}, Until: now.Add(time.Hour)})
	}
	h.Restore(list, now)
	s := policy.Suspension{ID: "more", Target: user7, Reason: "r", By: "admin", Since: now}
	if _, _, err := h.Suspend(s, func() error { t.Error("it was written"); return nil }); reason(err) != fault.TooManySuspensions {
		t.Errorf("one more: %v", err)
	}
	s.Since = now.Add(time.Hour) // the others are over
	if _, _, err := h.Suspend(s, durable); err != nil || len(ids(h.Current(), s.Since)) != 1 {
		t.Errorf("when the others are over: %v", err)
	}
}

func TestTargets(t *testing.T) {
	s := load(t, config(t))
	for target, r := range map[policy.Target]struct{ good, known bool }{
		user7:                            {true, true},
		{Sort: "actor", Name: "user:8"}:  {true, true}, // a disabled grant names it
		{Sort: "actor", Name: "user:9"}:  {true, false},
		records:                          {true, true},
		{Sort: "server", Name: "nine"}:   {true, false},
		company:                          {true, true},
		{Sort: "profile", Name: "other"}: {true, false},

		{Sort: "actor", Name: "user:"}:           {}, // nobody in particular is everybody
		{Sort: "actor", Name: "service:"}:        {},
		{Sort: "actor", Name: "7"}:               {},
		{Sort: "actor", Name: ""}:                {},
		{Sort: "actor", Name: "user:7\n"}:        {},
		{Sort: "actor", Name: "user:*"}:          {},
		{Sort: "server", Name: "Records"}:        {},
		{Sort: "server", Name: "records\u200b"}:  {},
		{Sort: "server", Name: ""}:               {},
		{Sort: "profile", Name: "com pany"}:      {},
		{Sort: "profile", Name: "-"}:             {},
		{Sort: "caller", Name: "gateway"}:        {},
		{}:                                       {},
		{Sort: "actor:user", Name: "7"}:          {},
		{Sort: "server", Name: "records/search"}: {},
	} {
		if what := target.Problem(); (what == "") != r.good || s.Knows(target) != r.known {
			t.Errorf("%q: problem %q, known %v", target, what, s.Knows(target))
		}
	}
	for text, good := range map[string]bool{
		"SEC-118: phished": true, "§ geändert – 変更": true, strings.Repeat("a", 512): true,
		"": false, " ": false, " a": false, "a\n": false, "a\nb": false, "a\x1b[2Jb": false, "a\u202eb": false, "a\u200bb": false,
		"a\u00a0b": false, "a\xffb": false, strings.Repeat("a", 513): false,
	} {
		if what := policy.ReasonProblem(text); (what == "") != good {
			t.Errorf("%q: %q", text, what)
		}
	}
}

func BenchmarkStands(b *testing.B) {
	s, err := policy.Load(many(b, 100_000))
	if err != nil {
		b.Fatal(err)
	}
	q := question(b, s, "gateway", "user:7", "records", "search")
	d, err := s.Decide(q, now)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{0, 10_000} {
		h := policy.NewHolder(s)
		var list []policy.Suspension
		for i := range n {
			list = append(list, policy.Suspension{ID: fmt.Sprint(i), Target: policy.Target{Sort: "actor", Name: fmt.Sprint("user:n", i)}})
		}
		h.Restore(list, now)
		b.Run(fmt.Sprintf("suspensions=%d/decide", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := h.Current().Decide(q, now); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("suspensions=%d/stands", n), func(b *testing.B) {
			for b.Loop() {
				if err := h.Current().Stands(d, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
