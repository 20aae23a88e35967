package webui

import (
	"context"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

type cataloguePage struct {
	Servers []catalogueServer
}

type catalogueServer struct {
	serverRow
	Tools []toolRow
}

// A toolRow is a tool as it was last imported, with what the operator says of it.
type toolRow struct {
	catalogue.Kept
	Rule     policy.Tool
	Declared bool
}

// State is what became of the tool, in one word.
func (t toolRow) State() string {
	switch {
	case !t.Orphaned.IsZero():
		return "no longer offered"
	case t.Rule.Pin != "" && t.Rule.Pin != t.Pin:
		return "changed"
	case !t.Declared:
		return "not declared"
	case !t.Rule.Enabled:
		return "disabled"
	case t.Rule.Pin == "":
		return "not pinned"
	}
	return "as pinned"
}

// catalogue shows what servers offer, and what of it is not what was looked at.
func (u *UI) catalogue(ctx context.Context, v *visit) (answer, error) {
	only := v.query("server")
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Catalogue, auditlog.Filter{Server: only}); err != nil {
		return answer{}, err
	}
	servers, err := u.servers(ctx, u.Policy.Current())
	if err != nil {
		return answer{}, err
	}
	p := cataloguePage{}
	for _, s := range servers {
		if only != "" && s.ID != only {
			continue
		}
		kept, err := u.Catalogue.Tools(ctx, s.ID)
		if err != nil {
			return answer{}, err
		}
		row := catalogueServer{serverRow: s}
		for _, k := range kept {
			rule, declared := s.Tools[k.Name]
			row.Tools = append(row.Tools, toolRow{k, rule, declared})
		}
		p.Servers = append(p.Servers, row)
	}
	return answer{page: "catalogue", title: "Catalogue", model: p}, nil
}

type toolPage struct {
	toolRow
	Definition strictjson.Raw
	Changes    []catalogue.Change // from what is pinned
	Unseen     bool               // what is pinned was never imported
}

// tool shows a definition, and what is different in it from the one that is pinned.
func (u *UI) tool(ctx context.Context, v *visit) (answer, error) {
	server, name := v.http.PathValue("server"), v.http.PathValue("tool")
	if err := u.Auditors.Look(ctx, v.auditor(), auditlog.Catalogue, auditlog.Filter{Server: server, Tool: name}); err != nil {
		return answer{}, err
	}
	declared, ok := u.Policy.Current().Server(server)
	if !ok {
		return answer{}, fault.New("webui.tool", fault.UnknownRoute, "there is no such server")
	}
	kept, err := u.Catalogue.Tools(ctx, server)
	if err != nil {
		return answer{}, err
	}
	for _, k := range kept {
		if k.Name != name {
			continue
		}
		rule, named := declared.Tools[name]
		p := toolPage{toolRow: toolRow{k, rule, named}}
		if p.Definition, _, err = u.Catalogue.Definition(ctx, server, name, k.Pin); err != nil {
			return answer{}, err
		}
		if rule.Pin != "" && rule.Pin != k.Pin {
			old, found, err := u.Catalogue.Definition(ctx, server, name, rule.Pin)
			if err != nil {
				return answer{}, err
			}
			p.Unseen, p.Changes = !found, catalogue.Diff(old, p.Definition)
		}
		return answer{page: "tool", title: "Tool", model: p}, nil
	}
	return answer{}, fault.New("webui.tool", fault.UnknownRoute, "the server has never offered this tool")
}
