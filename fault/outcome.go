package fault

import "slices"

// A State is where an operation stands. The arrows are in package ledger.
type State string

const (
	AwaitingApproval State = "awaiting_approval"
	Reserved         State = "reserved" // begun; tools/call has not left
	Sending          State = "sending"  // tools/call may have left
	Succeeded        State = "succeeded"
	ToolError        State = "tool_error"   // the tool ran and says that it failed
	RPCError         State = "rpc_error"    // the server answered with a JSON-RPC error
	PeerRefused      State = "refused"      // an HTTP status that proves that the call was not taken up
	NotSent          State = "not_sent"     // no byte of tools/call left
	InDoubt          State = "unknown"      // it left; what became of it is not known
	ResolvedRan      State = "resolved_ran" // an operator found out
	ResolvedNotRan   State = "resolved_not_ran"
	Expired          State = "expired" // the result is gone, the state is kept
)

// Ran says whether the tool ran.
type Ran string

const (
	RanNo      Ran = "no"
	RanYes     Ran = "yes"
	RanUnknown Ran = "unknown"
)

// Evidence says who says so.
type Evidence string

const (
	EvidenceLocal    Evidence = "local"    // our own byte count
	EvidencePeer     Evidence = "peer"     // the server's answer
	EvidenceOperator Evidence = "operator" // a person looked
	EvidenceNone     Evidence = "none"
)

// Retry is the advice that follows from a state.
type Retry string

const (
	RetrySafe         Retry = "safe"           // the same key may be sent again and runs at most once
	RetryWait         Retry = "wait"           // it is still going on
	RetryReadTheError Retry = "read_the_error" // the tool has answered; a changed call needs a new key
	RetryNever        Retry = "never"          // it ran
	RetryLookFirst    Retry = "never_without_looking"
)

// An Outcome is how an operation stands or ended.
type Outcome struct {
	State    State
	Ran      Ran
	Evidence Evidence
	Cause    Reason // which limit or fault; None for a good answer
}

// An Advice is one line of the table that a gateway decides by.
type Advice struct {
	State    State
	Ran      Ran
	Evidence Evidence
	Retry    Retry
	Do       string // what a gateway does, in words
}

// Advices is that table: every state, with what it says and what follows. The
// page docs/outcomes.md shows it.
func Advices() []Advice { return slices.Clone(advices) }

var advices = []Advice{
	{Succeeded, RanYes, EvidencePeer, RetryNever, "use the result"},
	{ToolError, RanYes, EvidencePeer, RetryReadTheError, "the tool ran and says that it failed: change the call, with a new key"},
	{RPCError, RanUnknown, EvidencePeer, RetryLookFirst, "a JSON-RPC error; servers send it also after the tool ran"},
	{PeerRefused, RanNo, EvidencePeer, RetrySafe, "the same key may be sent again and runs at most once; see the cause first"},
	{NotSent, RanNo, EvidenceLocal, RetrySafe, "no byte of the call left; the same key may be sent again"},
	{InDoubt, RanUnknown, EvidenceNone, RetryLookFirst, "it was sent: find out at the server, by its own means; the same key sends nothing"},
	{Reserved, RanNo, EvidenceLocal, RetryWait, "still open, nothing has left: ask again by id or key"},
	{Sending, RanUnknown, EvidenceNone, RetryWait, "still open, and it may have left: ask again by id or key"},
	{AwaitingApproval, RanNo, EvidenceLocal, RetryWait, "a person has to decide, until `approval.expires`: wait; where `approval.decision` says approved, the same key runs it"},
	{ResolvedRan, RanYes, EvidenceOperator, RetryNever, "an admin has found out that it ran, `resolution` says who and why; what the tool answered is not known"},
	{ResolvedNotRan, RanNo, EvidenceOperator, RetrySafe, "an admin has found out that it did not run, `resolution` says who and why; the same key may be sent again"},
	{Expired, RanYes, EvidencePeer, RetryNever, "it ended so long ago that its result is gone; `ran` and `cause` are what they were"},
}

// Retry says what a caller may do next. Any state outside the list reads as
// the most careful advice.
func (o Outcome) Retry() Retry {
	for _, a := range advices {
		if a.State == o.State {
			return a.Retry
		}
	}
	return RetryLookFirst
}

// Open reports whether the operation has not ended yet.
func (s State) Open() bool {
	return s == AwaitingApproval || s == Reserved || s == Sending
}

// NotSentBecause, Doubt and Open build the outcomes whose ran and evidence
// follow from the state.
func NotSentBecause(cause Reason) Outcome {
	return Outcome{NotSent, RanNo, EvidenceLocal, cause}
}

// Doubt is the outcome of a call that left and was not understood.
func Doubt(cause Reason) Outcome {
	return Outcome{InDoubt, RanUnknown, EvidenceNone, cause}
}

// RefusedBecause is the outcome of a call that the peer did not take up.
func RefusedBecause(cause Reason) Outcome {
	return Outcome{PeerRefused, RanNo, EvidencePeer, cause}
}
