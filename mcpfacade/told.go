package mcpfacade

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/strictjson"
)

// An outcome is an operation as MCP clients are told of it: in _meta of every answer, and
// by the broker's own tools.
type outcome struct {
	ID         string         `json:"operation_id"`
	RequestKey string         `json:"request_key"`
	Tool       string         `json:"tool"`
	State      fault.State    `json:"state"`
	Ran        fault.Ran      `json:"ran"`
	Evidence   fault.Evidence `json:"evidence"`
	Retry      fault.Retry    `json:"retry"`
	Cause      fault.Reason   `json:"cause,omitempty"`

	Late        bool               `json:"late,omitempty"`        // the answer came after the operation was cut off
	DrainsUntil time.Time          `json:"drains_until,omitzero"` // until then it may still come
	Replayed    bool               `json:"replayed,omitempty"`    // this request did not begin it
	Withheld    fault.Reason       `json:"withheld,omitempty"`
	Durability  string             `json:"durability,omitempty"` // volatile: the outcome is not on disk
	LookWith    *operation.Look    `json:"look_with,omitempty"`
	Resolution  *ledger.Resolution `json:"resolution,omitempty"`
	Approval    *approval          `json:"approval,omitempty"`
	Superseded  string             `json:"superseded_by,omitempty"`
	Created     time.Time          `json:"created"`
	Updated     time.Time          `json:"updated"`
	Deadline    time.Time          `json:"deadline"`
}

// An approval is what an operation waits for, or did not get.
type approval struct {
	Decision string    `json:"decision,omitempty"` // absent: nobody has decided
	Reason   string    `json:"reason,omitempty"`
	Expires  time.Time `json:"expires"`
}

func (f *Facade) outcome(a operation.Answer) outcome {
	o := outcome{ID: a.ID, RequestKey: a.RequestKey, Tool: a.Tool, State: a.Outcome.State, Ran: a.Outcome.Ran, Evidence: a.Outcome.Evidence,
		Retry: a.Operation.Retry(f.Now()), Cause: a.Outcome.Cause, Late: a.Late, DrainsUntil: a.DrainsUntil.UTC(), Replayed: a.Replayed, Withheld: a.Withheld,
		LookWith: a.Look, Resolution: a.Resolution, Superseded: a.SupersededBy, Created: a.Created.UTC(), Updated: a.Updated.UTC(), Deadline: a.Deadline.UTC()}
	if a.Volatile {
		o.Durability = "volatile"
	}
	if p := a.Approval; p != nil {
		o.Approval = &approval{p.Decision, p.Reason, p.Expires.UTC()}
	}
	return o
}

// isResult reports whether the operation has a result of its tool to hand out, which a
// JSON-RPC error is not.
func isResult(a operation.Answer) bool {
	return a.Result != nil && (a.Outcome.State == fault.Succeeded || a.Outcome.State == fault.ToolError)
}

// told is how a call ended: with the server's own result, or in our words.
func (f *Facade) told(a operation.Answer) *mcp.CallToolResult {
	o := f.outcome(a)
	if isResult(a) {
		return passed(a, f.meta(o))
	}
	return &mcp.CallToolResult{Meta: f.meta(o), IsError: true, Content: append(texts(words(o)), said(a)...)}
}

func (f *Facade) meta(o outcome) mcp.Meta {
	return mcp.Meta{metaID: o.ID, metaKey: o.RequestKey, metaOutcome: o}
}

// passed is a server's result: its blocks and its structured content are its own bytes. What
// it has put into _meta stays there, but for names of ours and of the protocol's, which
// would speak for us.
func passed(a operation.Answer, meta mcp.Meta) *mcp.CallToolResult {
	members := strictjson.Parts(a.Result)
	result := &mcp.CallToolResult{Meta: meta, IsError: a.Outcome.State == fault.ToolError, Content: blocks(members["content"])}
	if structured, there := members["structuredContent"]; there {
		result.StructuredContent = json.RawMessage(structured)
	}
	for name, value := range strictjson.Parts(members["_meta"]) {
		if !strings.HasPrefix(name, "onbehalf/") && !strings.HasPrefix(name, "io.modelcontextprotocol/") {
			meta[name] = json.RawMessage(value)
		}
	}
	return result
}

// A block is one of a server's, as it came.
type block struct {
	mcp.TextContent // what the library asks a block to be
	raw             strictjson.Raw
}

func (b *block) MarshalJSON() ([]byte, error) { return b.raw, nil }

func blocks(list strictjson.Raw) []mcp.Content {
	all := []mcp.Content{}
	for _, raw := range strictjson.Elements(list) {
		all = append(all, &block{raw: raw})
	}
	return all
}

func texts(all ...string) (list []mcp.Content) {
	for _, text := range all {
		list = append(list, &mcp.TextContent{Text: text})
	}
	return list
}

// said is what the server gave as a JSON-RPC error, where it did.
func said(a operation.Answer) []mcp.Content {
	if a.Result == nil || isResult(a) {
		return nil
	}
	return texts("The server answered with this JSON-RPC error: " + string(a.Result))
}

// words say how an operation stands that has no result to show, and what to do: they are
// what a model reads.
func words(o outcome) string {
	lines := []string{
		fmt.Sprintf("This call has no result to show. state: %s; ran: %s; evidence: %s; retry: %s; cause: %s.", o.State, o.Ran, o.Evidence, o.Retry, or(string(o.Cause), "none")),
		fmt.Sprintf("operation: %s; request key: %s.", o.ID, o.RequestKey),
		meaning(o),
		"What to do: " + advice(o),
	}
	return strings.Join(lines, "\n")
}

// meaning is what the table of outcomes says of the state.
func meaning(o outcome) string {
	switch {
	case o.Withheld != fault.None:
		return fmt.Sprintf("There is a result, and it is withheld: %s.", o.Withheld)
	case o.State == fault.AwaitingApproval:
		return "A person has to approve this call before it is made. Nothing has left the broker."
	}
	return map[fault.Ran]string{fault.RanNo: "The tool has not run.", fault.RanYes: "The tool has run.",
		fault.RanUnknown: "The call may have reached the tool: whether it ran is not known."}[o.Ran]
}

func advice(o outcome) string {
	look := fmt.Sprintf("ask %s with {%q: %q}", getTool, "operation_id", o.ID)
	again := fmt.Sprintf("make the same call again with the same arguments, and with %q: %q in _meta where your client can send it", metaKey, o.RequestKey)
	switch {
	case o.State == fault.AwaitingApproval && o.Approval != nil && o.Approval.Decision == ledger.Approved:
		return "it is approved: " + again + "."
	case o.State == fault.AwaitingApproval:
		return "tell the person that you work for that somebody has to decide about it, until " + until(o) + ". When approval.decision is approved (" + look + "), " + again + ". That runs it, once."
	case o.Withheld != fault.None:
		return "do not call again. Whoever runs the broker can say why it is withheld."
	case o.Retry == fault.RetryWait:
		return "it is still going on. Do not call again: " + look + " until it has ended."
	case o.Retry == fault.RetrySafe:
		return "look at the cause. Where that can pass, make the call once more with the same arguments" + keyed(o) + "."
	case o.Retry == fault.RetryReadTheError:
		return "read the error and change the call."
	case o.Retry == fault.RetryNever:
		return "do not call again: it ran."
	}
	text := "do not call again before you have looked."
	if o.LookWith != nil {
		arguments, _ := json.Marshal(o.LookWith.Arguments)
		text += fmt.Sprintf(" Look with the tool %q and the arguments %s: it only reads.", o.LookWith.Tool, arguments)
	}
	if !o.DrainsUntil.IsZero() {
		text += " The answer may still come until " + o.DrainsUntil.Format(time.RFC3339) + ": " + look + " then."
	}
	return text + " That nothing is found does not prove that it did not run. If you cannot find out, say so to the person that you work for."
}

func keyed(o outcome) string {
	return fmt.Sprintf(", and with %q: %q in _meta where your client can send it: by its key it runs at most once", metaKey, o.RequestKey)
}

func until(o outcome) string {
	if o.Approval == nil {
		return o.Deadline.Format(time.RFC3339)
	}
	return o.Approval.Expires.Format(time.RFC3339)
}

func or(text, absent string) string {
	if text == "" {
		return absent
	}
	return text
}

// refused answers a call that began nothing, with no more than the HTTP API would say.
func (f *Facade) refused(err error, key string) *mcp.CallToolResult {
	e := f.classified(err)
	meta := mcp.Meta{metaRefusal: map[string]any{"kind": e.Kind(), "reason": e.Reason, "detail": e.Detail}}
	text := fmt.Sprintf("Nothing was begun: %s (%s).", e.Reason, e.Kind())
	if e.Detail != "" {
		text += " " + e.Detail + "."
	}
	if key != "" {
		meta[metaKey] = key
		text += fmt.Sprintf(" request key: %s.", key)
	}
	return &mcp.CallToolResult{Meta: meta, IsError: true, Content: texts(text + "\nWhat to do: " + next(e.Kind()))}
}

// next is what a refusal's kind asks for.
func next(k fault.Kind) string {
	switch k {
	case fault.Invalid:
		return "mend what is named and call again."
	case fault.Conflict:
		return "use a new key for a new request."
	case fault.Busy, fault.Unavailable:
		return "call again later; nothing has left the broker."
	case fault.Denied, fault.Unauthenticated:
		return "do not call again: asking again does not help. Whoever runs the broker decides what is allowed."
	case fault.NotFound:
		return "look at what you have asked for: it is not there, or not yours."
	}
	return "tell the person that you work for; whoever runs the broker finds the reason in its log."
}
