package policy

// Offers are the tools of each server as its last good import found them, by server
// and then by remote name. A server that was never imported is not in it. It never
// changes: an import makes another one.
type Offers map[string]map[string]Offer

// An Offer is one tool that a server has offered.
type Offer struct {
	Pin      string // "sha256:…" over its definition
	Orphaned bool   // the last import did not find it
	Returned bool   // it had vanished and came back: nobody has looked at it since
}

// Offer returns what is known of a tool; imported says whether its server was ever
// imported.
func (s *Snapshot) Offer(server, tool string) (o Offer, there, imported bool) {
	tools, imported := s.offers[server]
	o, there = tools[tool]
	return o, there, imported
}

// Changed returns the tools of a server that are refused for what they have become,
// sorted.
func (s *Snapshot) Changed(server string) []string {
	all := []string{}
	declared, ok := s.Server(server)
	if !ok {
		return all
	}
	for _, name := range declared.ToolNames() {
		t := &trial{snapshot: s, server: server, tool: name, srv: declared, rule: declared.Tools[name]}
		if _, there, _ := s.Offer(server, name); there && !toolUnchanged(t).ok {
			all = append(all, name)
		}
	}
	return all
}

// SetOffers makes o what is offered. Every leg that leaves after it is checked
// against it.
func (h *Holder) SetOffers(o Offers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := *h.Current()
	fresh.offers = o
	h.p.Store(&fresh)
}

// toolOffered asks for what the operator has named to be there. A server that was
// never imported offers what was named, but what is pinned has to be seen first.
func toolOffered(t *trial) finding {
	o, there, imported := t.snapshot.Offer(t.server, t.tool)
	switch {
	case t.offline:
		return finding{true, notLookedAt, t.rule.Where}
	case !imported && t.rule.Pin == "":
		return finding{true, "never imported", t.rule.Where}
	case !imported:
		return finding{false, "never imported, and pinned", t.rule.Where}
	case !there || o.Orphaned:
		return finding{false, "not found by the last import", t.rule.Where}
	}
	return finding{true, o.Pin, t.rule.Where}
}

// toolUnchanged asks for what was looked at to be what is there. Without a pin
// nobody has said what it was, so it is what it is, unless it has been away.
func toolUnchanged(t *trial) finding {
	o, _, _ := t.snapshot.Offer(t.server, t.tool)
	switch {
	case t.offline:
		return finding{true, notLookedAt, t.rule.Where}
	case t.rule.Pin == "":
		return finding{!o.Returned, "not pinned", t.rule.Where}
	case t.rule.Pin != o.Pin:
		return finding{false, "pinned to " + t.rule.Pin + ", and now " + o.Pin, t.rule.Where}
	}
	return finding{true, o.Pin, t.rule.Where}
}
