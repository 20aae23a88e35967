package mcpclient

import (
	"net/http"
	"slices"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/strictjson"
)

// An ending is all that is known of a leg when it is over.
type ending struct {
	sent     bool         // at least one byte was handed to the network
	failure  fault.Reason // why there is no answer, or none that we take
	status   int          // 0: no head of an answer came in
	session  bool         // the request carried a session id
	accepted bool         // a notification was answered 2xx
	header   http.Header  // of an answer with status 200
	reply                 // with a bad status rpc at most
	echoed   bool         // our own token is in the reply
	failed   bool         // the tool ran and says that it failed

	challenge Challenge
}

// A Verdict is what one observation of a call proves.
type Verdict struct {
	Seen    string // the observation, in words
	Outcome fault.Outcome

	is func(ending) bool
}

// Verdicts are the table by which every call is judged, in its order: the first
// line that fits decides, and what no line fits is in doubt. Where a line's
// outcome has no cause, the cause is the leg's own. A line says "refused" only if
// the status alone proves that the tool did not run.
func Verdicts() []Verdict { return slices.Clone(verdicts) }

var (
	refused = fault.RefusedBecause
	doubt   = fault.Doubt
)

func peer(s fault.State, ran fault.Ran, cause fault.Reason) fault.Outcome {
	return fault.Outcome{State: s, Ran: ran, Evidence: fault.EvidencePeer, Cause: cause}
}

func status(codes ...int) func(ending) bool {
	return func(e ending) bool { return slices.Contains(codes, e.status) }
}

// bad400 is a 400 with one of these JSON-RPC codes in its body.
func bad400(codes ...int64) func(ending) bool {
	return func(e ending) bool { return e.status == 400 && slices.Contains(codes, e.rpc.code()) }
}

var verdicts = []Verdict{
	{"no byte was handed to the network", fault.NotSentBecause(fault.None), func(e ending) bool { return !e.sent }},
	{"it left, and no answer began", doubt(fault.None), status(0)},

	// The server refused, and says so with a status that leaves no doubt.
	{"401", refused(fault.Unauthorized), status(401)},
	{"403 whose challenge says `insufficient_scope`", refused(fault.InsufficientScope), func(e ending) bool {
		return e.status == 403 && e.challenge.Error == errorInsufficientScope
	}},
	{"405", refused(fault.MethodRefused), status(405)},
	{"403, 406, 411, 413, 414, 415, 431", refused(fault.StatusRefused), status(403, 406, 411, 413, 414, 415, 431)},
	{"400 with -32022", refused(fault.VersionUnsupported), bad400(codeVersion)},
	{"400 with -32020", refused(fault.HeaderMismatch), bad400(codeHeader)},
	{"400 with -32021", refused(fault.CapabilityMissing), bad400(codeCapability)},
	// Not codeParams: servers send it, with a 400 too, when a tool has run and its output does not fit.
	{"400 with -32700 or -32600", refused(fault.StatusRefused), bad400(codeParse, codeRequest)},
	{"400 with -32601, or 404 with it outside a session", refused(fault.MethodRefused), func(e ending) bool {
		return (e.status == 400 || e.status == 404 && !e.session) && e.rpc.code() == codeMethod
	}},
	{"301, 307, 308", refused(fault.Redirected), status(301, 307, 308)},

	// A status that proves nothing. A 303 usually means that the work is done,
	// and a session can expire after the tool has run.
	{"any other 3xx", doubt(fault.Redirected), func(e ending) bool { return e.status/100 == 3 }},
	{"404 in a session", doubt(fault.SessionLost), func(e ending) bool { return e.status == 404 && e.session }},
	{"2xx to a notification, which has no answer", peer(fault.Succeeded, fault.RanNo, fault.None), func(e ending) bool { return e.accepted }},
	{"any other 2xx than 200", doubt(fault.ReplyMalformed), func(e ending) bool { return e.status/100 == 2 && e.status != 200 }},
	{"any other status, with a JSON-RPC body", doubt(fault.StatusUnclear), func(e ending) bool { return e.status != 200 && e.rpc != nil }},
	{"any other status, without one", doubt(fault.Intermediary), func(e ending) bool { return e.status != 200 }},

	// 200, and the answer in it.
	{"200, and no answer of ours in it before it ended", doubt(fault.None), func(e ending) bool { return e.failure != fault.None }},
	{"a JSON-RPC error that holds our token", peer(fault.RPCError, fault.RanUnknown, fault.SecretEchoed), func(e ending) bool { return e.rpc != nil && e.echoed }},
	{"a JSON-RPC error, of whatever code", peer(fault.RPCError, fault.RanUnknown, fault.ServerError), func(e ending) bool { return e.rpc != nil }},
	{"a result that holds our token", peer(fault.Succeeded, fault.RanYes, fault.SecretEchoed), func(e ending) bool { return e.echoed }},
	{"a result with `isError: true`", peer(fault.ToolError, fault.RanYes, fault.ToolFailed), func(e ending) bool { return e.failed }},
	{"a result", peer(fault.Succeeded, fault.RanYes, fault.None), func(e ending) bool { return e.result != nil }},
}

// classify says what an ending proves about the call. It is the only place that
// does; TestClassify has a row for every line of the table.
func classify(e ending) fault.Outcome {
	for _, v := range verdicts {
		if v.is(e) {
			o := v.Outcome
			if o.Cause == fault.None {
				o.Cause = e.failure
			}
			return o
		}
	}
	return fault.Doubt(fault.InternalError)
}

// beforehand is the ending of a call that was not sent because the leg before
// it ended like e.
func (e ending) beforehand() ending {
	return ending{failure: classify(e).Cause, challenge: e.challenge}
}

// answer returns the bytes that may be passed on.
func (e ending) answer() strictjson.Raw {
	switch {
	case e.echoed || e.status != http.StatusOK || e.failure != fault.None:
		return nil
	case e.rpc != nil:
		return e.rpc.raw
	}
	return e.result
}

// readToolResult looks into the result of tools/call, as far as it decides
// what became of the call. Nothing else in it is for us.
func (e *ending) readToolResult() {
	if e.result == nil || e.failure != fault.None {
		return
	}
	m := strictjson.Parts(e.result)
	_, hasTask := m["task"]
	content, hasContent := m["content"]
	_, isList := elements(content)
	switch reason := resultType(m); {
	case reason != fault.None:
		e.failure = reason
	case hasTask && !hasContent: // a task of 2025-11-25
		e.failure = fault.UnsupportedContinuation
	case !isList:
		e.failure = fault.ReplyMalformed
	case string(m["isError"]) == "true":
		e.failed = true
	case m["isError"] != nil && string(m["isError"]) != "false":
		e.failure = fault.ReplyMalformed
	}
}

// resultType says what keeps a result from being complete. Absence is older
// than the word; a word that we do not know makes the result invalid.
func resultType(m map[string]strictjson.Raw) fault.Reason {
	raw, present := m["resultType"]
	switch string(raw) {
	case `"complete"`:
		return fault.None
	case `"input_required"`, `"task"`:
		return fault.UnsupportedContinuation
	}
	if present {
		return fault.ReplyMalformed
	}
	return fault.None
}
