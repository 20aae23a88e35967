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

// refusingStatus are statuses by which a server says that it did not take the
// request up; classify has codes that say the same in the body of a 400.
// codeParams is not among them: servers send it, with HTTP 400 too, when a tool
// has run and its output does not fit its schema.
var refusingStatus = []int{403, 406, 411, 413, 414, 415, 431}

// classify says what an ending proves about the call. It is the only place that
// does; TestClassify has a row for every line. What no line expects is in doubt.
func classify(e ending) fault.Outcome {
	status, code := e.status, e.rpc.code()
	switch {
	// Nothing left, or nothing came back.
	case !e.sent:
		return fault.NotSentBecause(e.failure)
	case status == 0:
		return fault.Doubt(e.failure)

	// The server refused, and says so with a status that leaves no doubt.
	case status == 401:
		return fault.RefusedBecause(fault.Unauthorized)
	case status == 403 && e.challenge.Error == errorInsufficientScope:
		return fault.RefusedBecause(fault.InsufficientScope)
	case status == 405:
		return fault.RefusedBecause(fault.MethodRefused)
	case slices.Contains(refusingStatus, status):
		return fault.RefusedBecause(fault.StatusRefused)
	case status == 400 && code == codeVersion:
		return fault.RefusedBecause(fault.VersionUnsupported)
	case status == 400 && code == codeHeader:
		return fault.RefusedBecause(fault.HeaderMismatch)
	case status == 400 && code == codeCapability:
		return fault.RefusedBecause(fault.CapabilityMissing)
	case status == 400 && (code == codeParse || code == codeRequest):
		return fault.RefusedBecause(fault.StatusRefused)
	case (status == 400 || status == 404 && !e.session) && code == codeMethod:
		return fault.RefusedBecause(fault.MethodRefused)
	case status == 301, status == 307, status == 308:
		return fault.RefusedBecause(fault.Redirected)

	// A status that proves nothing. A 303 usually means that the work is done,
	// and a session can expire after the tool has run.
	case status/100 == 3:
		return fault.Doubt(fault.Redirected)
	case status == 404 && e.session:
		return fault.Doubt(fault.SessionLost)
	case e.accepted:
		return fault.Outcome{State: fault.Succeeded, Ran: fault.RanNo, Evidence: fault.EvidencePeer}
	case status/100 == 2 && status != 200:
		return fault.Doubt(fault.ReplyMalformed)
	case status != 200 && e.rpc != nil:
		return fault.Doubt(fault.StatusUnclear)
	case status != 200:
		return fault.Doubt(fault.Intermediary)

	// 200, and the answer in it.
	case e.failure != fault.None:
		return fault.Doubt(e.failure)
	case e.rpc != nil && e.echoed:
		return fault.Outcome{State: fault.RPCError, Ran: fault.RanUnknown, Evidence: fault.EvidencePeer, Cause: fault.SecretEchoed}
	case e.rpc != nil:
		return fault.Outcome{State: fault.RPCError, Ran: fault.RanUnknown, Evidence: fault.EvidencePeer, Cause: fault.ServerError}
	case e.echoed:
		return fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer, Cause: fault.SecretEchoed}
	case e.failed:
		return fault.Outcome{State: fault.ToolError, Ran: fault.RanYes, Evidence: fault.EvidencePeer, Cause: fault.ToolFailed}
	case e.result != nil:
		return fault.Outcome{State: fault.Succeeded, Ran: fault.RanYes, Evidence: fault.EvidencePeer}
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
