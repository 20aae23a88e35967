package fault

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

// Retry says what a caller may do next. Any state outside the list reads as
// the most careful advice.
func (o Outcome) Retry() Retry {
	switch o.State {
	case NotSent, PeerRefused, ResolvedNotRan:
		return RetrySafe
	case AwaitingApproval, Reserved, Sending:
		return RetryWait
	case ToolError:
		return RetryReadTheError
	case Succeeded, ResolvedRan, Expired:
		return RetryNever
	default: // InDoubt, RPCError
		return RetryLookFirst
	}
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
