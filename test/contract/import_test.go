package contract

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// A refusal is why an import gives no list.
type refusal struct {
	name   string
	brk    func(*testing.T, *rig)
	status int // 200: the server was asked
	reason fault.Reason
}

// TestImportRefused (55, 56): each reason for which there is no list. The tools stay
// as they were, and what is told of the server says why. What the file already says
// is refused before anything is asked, and is no import.
func TestImportRefused(t *testing.T) {
	rows := []refusal{
		{"503", func(t *testing.T, r *rig) { r.server.on("tools/list", status(503)) }, 200, fault.Intermediary},
		{"401", func(t *testing.T, r *rig) { r.server.on("tools/list", status(401)) }, 200, fault.Unauthorized},
		{"RPC error", func(t *testing.T, r *rig) {
			r.server.on("tools/list", func(w http.ResponseWriter, q question) { reply(w, q, `"error":{"code":-32603,"message":"broken"}`) })
		}, 200, fault.ServerError},
		{"no tools array", func(t *testing.T, r *rig) { r.server.on("tools/list", r.server.answers(`{"resultType":"complete"}`)) }, 200, fault.ReplyMalformed},
		{"501 tools", func(t *testing.T, r *rig) { r.server.lists(many(501)...) }, 200, fault.ReplyTooLarge},
		{"a second page that fails", func(t *testing.T, r *rig) {
			r.server.walks(func(cursor *string) string {
				if cursor == nil {
					return page("2", search)
				}
				return `{}`
			})
		}, 200, fault.ReplyMalformed},
		{"no data class", func(t *testing.T, r *rig) { r.edit(t, "data_class: "+r.class, "") }, 403, fault.ServerInert},
		// The contract imports a server that is switched off, too; ours sends it nothing.
		{"switched off", func(t *testing.T, r *rig) { r.edit(t, "enabled: true", "enabled: false") }, 403, fault.ServerDisabled},
	}
	each(t, func(t *testing.T, r *rig) {
		for _, row := range rows {
			t.Run(row.name, func(t *testing.T) {
				if row.status == 200 {
					r.server.on("tools/list", nil)
					r.server.lists(search, tool("find", anything))
					r.imports(t)
				}
				row.refuses(t, r)
			})
		}
	})
}

// refuses breaks an import and looks at what it says and leaves.
func (row refusal) refuses(t *testing.T, r *rig) {
	before, kept := r.seen(t).Import, r.kept(t)
	row.brk(t, r)
	asked := len(r.server.questions())
	var got httpapi.ImportAnswer
	a := r.Admin(t, "POST", "/v1/servers/peer/import", "", &got)
	if a.Status != row.status || a.Reason+got.Refused != row.reason || got.Imported+len(got.Skipped)+got.Orphaned != 0 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	now, want := r.seen(t).Import, before
	if row.status == 200 {
		want = httpapi.Imported{Status: "error", Problem: string(row.reason), At: now.At, Good: before.Good, Tools: 2}
	} else if len(r.server.questions()) != asked {
		t.Error("the server was asked all the same")
	}
	if now != want || row.status == 200 && !now.At.After(before.At) {
		t.Errorf("%+v, want %+v", now, want)
	}
	if len(kept) != 2 || !sameTools(kept, r.kept(t), false) {
		t.Errorf("%+v, and before %+v", r.kept(t), kept)
	}
}

// TestImportConfigured (55): what the contract refuses at an import, the file does
// not even say: no URL, and one identifier twice.
func TestImportConfigured(t *testing.T) {
	for problem, change := range map[string]func(r *rig, yaml string) string{
		"servers.peer.url: is missing": func(r *rig, yaml string) string { return strings.Replace(yaml, "    url: "+r.server.URL+"\n", "", 1) },
		"servers.peer.url":             func(r *rig, yaml string) string { return strings.Replace(yaml, r.server.URL, `""`, 1) },
		"servers.peer: is given twice": func(r *rig, yaml string) string {
			return strings.Replace(yaml, "\n  peer:\n", "\n  peer: {}\n  peer:\n", 1)
		},
	} {
		r := start(t, profiles[0], "requires_approval: false")
		if err := r.Edit(func(yaml string) string { return change(r, yaml) }); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%v, want %q", err, problem)
		}
	}
}

// TestImportSkips (57): each tool that is not taken is told with its reason, and the
// rest is taken. Of two names the first keeps it. The contract's builtins are other
// servers' tools here.
func TestImportSkips(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		long := strings.Repeat("x", 64-len("mcp_peer_"))
		r.server.lists(search, tool("Search", anything), tool("a.b", anything), tool("a/b", anything), tool("a b", anything), tool("é", anything), tool(`a\n`, anything),
			tool(long, anything), tool(long+"x", anything), `{"name":"bare"}`, tool("text", `{"type":"string"}`), `{"name":"find","description":7,"annotations":[1],"inputSchema":{"type":"object"}}`,
			search, `"find"`, `{"inputSchema":{"type":"object"}}`)
		got := r.imports(t)
		wants := []struct{ tool, why string }{
			{"Search", `"Search" differs from "search" in case alone`},
			{"a.b", `"a.b" cannot be given a valid local name`},
			{"a/b", `"a/b" cannot be given a valid local name`},
			{"a b", `"a b" cannot be given a valid local name`},
			{"é", `"\u00e9" cannot be given a valid local name`},
			{`a\n`, `"a\\n" cannot be given a valid local name`},
			{long + "x", `cannot be given a valid local name`},
			{"bare", `"bare" was skipped: the server advertised no parameter schema`},
			{"text", `"text" was skipped: its top-level type is not object`},
			{"search", `"search" is listed twice`},
			{"", "entry 14 is not a tool"},
			{"", "entry 15 has no name"},
		}
		if got.Imported != 3 || got.Refused != "" || len(got.Skipped) != len(wants) || names(r.kept(t)) != "find search "+long {
			t.Fatalf("%+v", got)
		}
		problem := r.seen(t).Import
		if problem.Status != "partial" || problem.Tools != 3 || strings.Count(problem.Problem, "\n") != len(wants)-1 {
			t.Errorf("%+v", problem)
		}
		for i, want := range wants {
			if s := got.Skipped[i]; s.Tool != want.tool || !strings.Contains(s.Why, want.why) || !strings.Contains(problem.Problem, s.Why) {
				t.Errorf("%+v, want %s: %s", s, want.tool, want.why)
			}
		}
		if k := r.kept(t)["find"]; k.Description != "" {
			t.Errorf("a description that is none: %q", k.Description)
		}
	})
}

// TestHeaderThatIsNone (149): a tool that the modern protocol has clients leave out is
// told like any other that is not taken. In the legacy one the word means nothing.
func TestHeaderThatIsNone(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.server.lists(search, tool("find", `{"type":"object","properties":{"q":{"type":"string","x-mcp-header":""}}}`))
		got := r.imports(t)
		if !r.modern {
			if got.Imported != 2 || len(got.Skipped) != 0 {
				t.Errorf("%+v", got)
			}
			return
		}
		if got.Imported != 1 || len(got.Skipped) != 1 || got.Skipped[0].Tool != "find" || got.Skipped[0].Why != `"find" has an x-mcp-header that the specification does not allow` {
			t.Errorf("%+v", got)
		}
		if s := r.seen(t).Import; s.Status != "partial" || s.Problem != got.Skipped[0].Why {
			t.Errorf("%+v", s)
		}
	})
}

// TestTakenName (57, 145): a local name is one server's, whoever lists it later.
func TestTakenName(t *testing.T) {
	r := start(t, profiles[0], "requires_approval: false")
	second := newServer(t, profiles[0])
	r.must(t, r.Edit(func(yaml string) string {
		yaml = strings.ReplaceAll(yaml, "servers: [records, archive, peer]", "servers: [records, archive, peer, peer_x]")
		return yaml + "  peer_x:\n    url: " + second.URL + "\n    allow_cidrs: [\"127.0.0.0/8\"]\n    enabled: true\n    data_class: publicContent\n    auth: {mode: legacy}\n"
	}))
	r.server.lists(tool("x_find", anything))
	second.lists(tool("find", anything), tool("other", anything))
	r.imports(t)
	kept := r.kept(t)
	var got httpapi.ImportAnswer
	r.Admin(t, "POST", "/v1/servers/peer_x/import", "", &got)
	if got.Imported != 1 || len(got.Skipped) != 1 || got.Skipped[0].Why != `"find" would be "mcp_peer_x_find", which is a tool of server "peer"` {
		t.Errorf("%+v", got)
	}
	if s := r.seenOf(t, "peer_x").Import; s.Status != "partial" || s.Problem != got.Skipped[0].Why {
		t.Errorf("%+v", s)
	}
	if !sameTools(kept, r.kept(t), false) || r.seen(t).Import.Status != "ok" {
		t.Errorf("the other server's rows were touched: %+v", r.kept(t))
	}
}

// TestReconcile (58 to 61): a history of imports, and what each says and leaves.
func TestReconcile(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		find, more := tool("find", anything), tool("find", `{"type":"object","description":"more"}`)
		var before map[string]httpapi.KeptTool
		for _, step := range []struct {
			name   string
			tools  []string
			told   string // imported, skipped, orphaned; then new, changed, vanished, returned
			status string
			kept   string // "-" before an orphan
		}{
			{"the first", []string{search, find}, "2 0 0 new[find search] changed[] vanished[] returned[]", "ok", "find search"},
			{"the same", []string{search, find}, "2 0 0 new[] changed[] vanished[] returned[]", "ok", "find search"},
			{"changed in place", []string{more, search}, "2 0 0 new[] changed[find] vanished[] returned[]", "ok", "find search"},
			{"vanished", []string{search}, "1 0 1 new[] changed[] vanished[find] returned[]", "ok", "-find search"},
			{"an old orphan is counted", []string{search}, "1 0 1 new[] changed[] vanished[] returned[]", "ok", "-find search"},
			{"returned", []string{search, more}, "2 0 0 new[] changed[] vanished[] returned[find]", "ok", "find search"},
			{"renamed", []string{search, tool("seek", anything)}, "2 0 1 new[seek] changed[] vanished[find] returned[]", "ok", "-find search seek"},
			{"newly unfit", []string{tool("search", `{"type":"string"}`), tool("seek", anything)}, "1 1 2 new[] changed[] vanished[search] returned[]", "partial", "-find -search seek"},
			{"none at all", nil, "0 0 3 new[] changed[] vanished[seek] returned[]", "ok", "-find -search -seek"},
		} {
			r.server.lists(step.tools...)
			got := r.imports(t)
			if told := reported(got); told != step.told {
				t.Errorf("%s: %s, want %s", step.name, told, step.told)
			}
			kept, s := r.kept(t), r.seen(t).Import
			if alive(kept) != step.kept || string(s.Status) != step.status || s.Tools != got.Imported || !s.At.Equal(s.Good) || (s.Problem == "") != (len(got.Skipped) == 0) {
				t.Errorf("%s: %s and %+v, want %s and %s", step.name, alive(kept), s, step.kept, step.status)
			}
			for name, k := range kept {
				if wrong := wrongStamp(before[name], k, s.At); wrong != "" {
					t.Errorf("%s: %s of %+v, which was %+v, at %v", step.name, wrong, k, before[name], s.At)
				}
			}
			if step.name == "the same" && !sameTools(before, kept, true) {
				t.Errorf("an import without news changed %+v to %+v", before, kept)
			}
			before = kept
		}
		if n := len(r.offered(t)); n != 0 {
			t.Errorf("%d tools that are gone are offered", n)
		}
		r.notSent(t)
		if s := r.seenOf(t, "records").Import; s.Status != "never_imported" || !s.At.IsZero() {
			t.Errorf("another server was touched: %+v", s)
		}
	})
}

// wrongStamp names the time of a tool that is not what it should be after an import
// at that time, which is one for all of it; was is zero for a new tool.
func wrongStamp(was, is httpapi.KeptTool, at time.Time) string {
	gone, before := !is.Orphaned.IsZero(), !was.Orphaned.IsZero()
	switch {
	case was.Name != "" && !is.Since.Equal(was.Since), was.Name == "" && !is.Since.Equal(at):
		return "since"
	case !gone && !is.Seen.Equal(at), gone && !is.Seen.Equal(was.Seen):
		return "seen"
	case gone && before && !is.Orphaned.Equal(was.Orphaned), gone && !before && !is.Orphaned.Equal(at):
		return "orphaned_at"
	case before && !gone && !is.Returned.Equal(at):
		return "returned_at"
	}
	return ""
}

// reported is an answer in one line.
func reported(got httpapi.ImportAnswer) string {
	var changed []string
	for _, c := range got.Changed {
		changed = append(changed, c.Tool)
	}
	return fmt.Sprintf("%d %d %d new%v changed%v vanished%v returned%v", got.Imported, len(got.Skipped), got.Orphaned, got.New, changed, got.Vanished, got.Returned)
}

// alive are the names in a catalogue, orphans with a mark.
func alive(kept map[string]httpapi.KeptTool) string {
	marked := map[string]string{}
	for name, k := range kept {
		marked[name] = name
		if !k.Orphaned.IsZero() {
			marked[name] = "-" + name
		}
	}
	var list []string
	for name := range strings.FieldsSeq(names(kept)) {
		list = append(list, marked[name])
	}
	return strings.Join(list, " ")
}

// sameTools reports whether two catalogues are the same. seen: the tools may have
// been seen again.
func sameTools(a, b map[string]httpapi.KeptTool, seen bool) bool {
	if names(a) != names(b) {
		return false
	}
	for name, x := range a {
		y := b[name]
		if seen {
			x.Seen = y.Seen
		}
		if fmt.Sprintf("%+v", x) != fmt.Sprintf("%+v", y) {
			return false
		}
	}
	return true
}

// TestWithdrawn (8, 61, 62): importing grants nothing; and what is withdrawn is gone
// from the offer at once, while its rows stay.
func TestWithdrawn(t *testing.T) {
	for what, withdraw := range map[string]func(*testing.T, *rig){
		"the data class": func(t *testing.T, r *rig) { r.edit(t, "data_class: "+r.class, "") },
		"the server":     func(t *testing.T, r *rig) { r.edit(t, "enabled: true", "enabled: false") },
	} {
		t.Run(what, func(t *testing.T) {
			each(t, func(t *testing.T, r *rig) {
				r.server.lists(search, tool("find", anything), tool("unnamed", anything), tool("off", anything))
				r.imports(t)
				if got := names(r.offered(t)); got != "find search" {
					t.Errorf("offered: %s", got)
				}
				kept := r.kept(t)
				withdraw(t, r)
				if got := r.offered(t); len(got) != 0 {
					t.Errorf("still offered: %s", names(got))
				}
				if a := r.call(t, brokertest.Call{}); a.Status != 403 {
					t.Errorf("%s", a.Body)
				}
				if now := r.kept(t); names(now) != names(kept) || r.seen(t).Import.Tools != 4 {
					t.Errorf("the rows are %s", names(now))
				}
				r.notSent(t)
			})
		})
	}
}

// many are that many tools.
func many(n int) (tools []string) {
	for i := range n {
		tools = append(tools, tool(fmt.Sprint("t", i), anything))
	}
	return tools
}

// in has a server list tools, so many a page, with a new cursor for each.
func (s *server) in(perPage int, tools []string) {
	pages := slices.Collect(slices.Chunk(tools, perPage))
	s.walks(func(cursor *string) string {
		n := 0
		if cursor != nil {
			fmt.Sscanf(*cursor, "page-%d", &n)
		}
		if n == len(pages)-1 {
			return page("", pages[n]...)
		}
		return page(fmt.Sprintf("page-%d", n+1), pages[n]...)
	})
}

// TestManyTools (52, 55): 500 tools on 50 pages are taken, and taken again without a
// change. One tool more, one page more, or a cursor again ends the walk at that page.
func TestManyTools(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.server.in(10, many(500))
		if got := r.imports(t); got.Imported != 500 || len(got.New) != 500 || got.Refused != "" || len(r.server.of("tools/list")) != 50 {
			t.Fatalf("%d tools: %s", got.Imported, got.Refused)
		}
		first := r.kept(t)
		if got := r.imports(t); reported(got) != "500 0 0 new[] changed[] vanished[] returned[]" || !sameTools(first, r.kept(t), true) {
			t.Errorf("again: %s", reported(got))
		}
		before := r.kept(t)
		for _, row := range []struct {
			name   string
			lists  func()
			pages  int
			reason fault.Reason
		}{
			{"501 tools of 750", func() { r.server.in(25, many(750)) }, 21, fault.ReplyTooLarge},
			{"51 pages", func() { r.server.in(1, many(51)) }, 50, fault.ReplyTooLarge},
			{"a cursor again", func() {
				r.server.walks(func(cursor *string) string {
					n := len(r.server.of("tools/list"))
					return page(fmt.Sprint("cursor-", n%2), tool(fmt.Sprint("t", n), anything))
				})
			}, 3, fault.ReplyMalformed},
		} {
			asked := len(r.server.of("tools/list"))
			row.lists()
			if got := r.imports(t); got.Refused != row.reason || len(r.server.of("tools/list"))-asked != row.pages {
				t.Errorf("%s: %q after %d pages, want %q after %d", row.name, got.Refused, len(r.server.of("tools/list"))-asked, row.reason, row.pages)
			}
			if s := r.seen(t).Import; s.Status != "error" || s.Tools != 500 || !sameTools(before, r.kept(t), false) {
				t.Errorf("%s: %+v", row.name, s)
			}
		}
	})
}
