package operation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// A Tool is what an actor may be offered, and how a gateway calls it.
type Tool struct {
	Name        string         `json:"name"` // for the model: mcp_<server>_<tool>, or as whoever asks names it
	Server      string         `json:"server"`
	Tool        string         `json:"tool"` // for the call
	Title       string         `json:"title,omitempty"`
	Description string         `json:"description"`
	Schema      strictjson.Raw `json:"input_schema,omitempty"` // absent: the server was never imported
	Pin         string         `json:"pin,omitempty"`

	Effect           string  `json:"effect"` // "write", "idempotent" or "read", as the operator says
	RequiresApproval bool    `json:"requires_approval"`
	Timeout          float64 `json:"timeout_ms"`
	Expected         float64 `json:"expected_ms,omitempty"`
	LookWith         string  `json:"look_with,omitempty"` // the name of the tool that says what became of a call
}

// Offered are the tools of these servers that a call of this caller for this actor would
// be allowed, by the decision that a call is held to. called is how whoever asks names a
// tool.
func (r *Runner) Offered(ctx context.Context, caller identity.Caller, actor identity.Actor, servers []*policy.Server, called func(server, tool string) string) ([]Tool, error) {
	all := []Tool{}
	snapshot := r.policy.Current()
	for _, server := range servers {
		var kept map[string]catalogue.Kept
		for _, name := range server.ToolNames() {
			d, err := snapshot.Decide(policy.Question{Caller: caller, Actor: actor, Server: server.ID, Tool: name}, r.now())
			if err != nil {
				continue
			}
			if kept == nil {
				if kept, err = r.catalogued(ctx, server.ID); err != nil {
					return nil, err
				}
			}
			if k, there := kept[name]; !there || k.Schema != nil { // else a call would be refused: its arguments fit nothing
				all = append(all, offered(d, k, called))
			}
		}
	}
	return all, nil
}

func (r *Runner) catalogued(ctx context.Context, server string) (map[string]catalogue.Kept, error) {
	tools, err := r.catalogue.Tools(ctx, server)
	byName := map[string]catalogue.Kept{}
	for _, k := range tools {
		byName[k.Name] = k
	}
	return byName, err
}

// offered is a tool as a model gets to know it.
func offered(d policy.Decision, k catalogue.Kept, called func(server, tool string) string) Tool {
	server, rule := d.Server(), d.Server().Tools[d.Tool()]
	t := Tool{Name: called(server.ID, d.Tool()), Server: server.ID, Tool: d.Tool(), Title: k.Title, Schema: k.Schema, Pin: k.Pin,
		Effect: rule.Effect, RequiresApproval: server.RequiresApproval, Timeout: float64(d.Budget().Milliseconds()), Expected: float64(rule.Expected.Milliseconds())}
	if server.Recovery.Tool != "" && rule.Effect != "read" {
		t.LookWith = called(server.ID, server.Recovery.Tool)
	}
	t.Description = described(d, k, t.LookWith)
	return t
}

// described is what the server says of its tool, and what a model has to know of a
// call that is cut off: the description is the one place where that reaches it.
func described(d policy.Decision, k catalogue.Kept, look string) string {
	server, rule := d.Server(), d.Server().Tools[d.Tool()]
	text := []string{strings.TrimSpace(fmt.Sprintf("[via the external MCP server %q] %s", server.ID, strings.TrimSpace(k.Description)))}
	if rule.Expected > 0 {
		text = append(text, fmt.Sprintf("A call takes about %s when all is well: reserve %s to %s. The limit is the client's own setting; no argument changes it.",
			seconds(rule.Expected), seconds(rule.Expected), seconds(d.Budget())))
	}
	if rule.Effect == "read" {
		return strings.Join(text, "\n\n")
	}
	text = append(text, "If a call is cut off, it may have run, or may still be running: do not call again before you have looked. "+
		"The same request key never runs it twice, and gets its result when that is there.")
	if look != "" {
		text = append(text, fmt.Sprintf("To look: %s. It only reads, costs nothing and may be repeated. That something is not there and that it is not yours is one answer.", look))
	}
	return strings.Join(text, "\n\n")
}

func seconds(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
