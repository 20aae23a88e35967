package fault

import (
	"maps"
	"slices"
)

// A Reason is one word of the closed list below. It is the `reason` of a
// problem answer, the `cause` of an outcome and the reason in an audit record.
type Reason string

// None is the cause of an outcome that needs none.
const None Reason = ""

// The request itself.
const (
	MalformedRequest   Reason = "malformed_request"
	UnsupportedMedia   Reason = "unsupported_media_type"
	RequestTooLarge    Reason = "request_too_large"
	UnknownRoute       Reason = "unknown_route"
	MethodNotAllowed   Reason = "method_not_allowed"
	HostNotAllowed     Reason = "host_not_allowed"
	CallerUnknown      Reason = "caller_unknown"
	RoleMissing        Reason = "role_missing"
	ActorMissing       Reason = "actor_missing"
	ActorInvalid       Reason = "actor_invalid"
	ActorNotAllowed    Reason = "actor_not_allowed"
	AssertionInvalid   Reason = "assertion_invalid"
	AssertionReplayed  Reason = "assertion_replayed"
	SignInFailed       Reason = "sign_in_failed" // the provider did not vouch for a person, or the answer is none to what was asked
	SignInDenied       Reason = "sign_in_denied" // it vouches for one who may not come in
	RateLimited        Reason = "rate_limited"
	TooManyOperations  Reason = "too_many_operations"
	Draining           Reason = "draining"
	ServerBusy         Reason = "server_busy" // an import or a probe of it is under way
	OperationNotFound  Reason = "operation_not_found"
	NotInDoubt         Reason = "not_in_doubt" // what an admin says of an operation cannot be taken as it stands
	SuspensionNotFound Reason = "suspension_not_found"
	TooManySuspensions Reason = "too_many_suspensions"
	RequestKeyConflict Reason = "request_key_conflict"
	NoRecord           Reason = "no_record" // the ledger does not reach back to when the key was first sent
)

// Policy. The order is the order of Decide.
const (
	Suspended          Reason = "suspended" // an admin has stopped the actor, the server or the profile
	ServerUnknown      Reason = "server_unknown"
	ServerNotAllowed   Reason = "server_not_allowed" // not in this caller's list
	ServerDisabled     Reason = "server_disabled"
	ServerInert        Reason = "server_inert" // no data class declared
	ToolUnknown        Reason = "tool_unknown"
	ToolDisabled       Reason = "tool_disabled"
	ToolNotOffered     Reason = "tool_not_offered" // the last import did not find it
	ToolChanged        Reason = "tool_changed"     // its definition is not the one that was looked at
	AdminRequired      Reason = "admin_required"
	ZoneExceeded       Reason = "zone_exceeded"
	NoGrant            Reason = "no_grant"
	GrantDisabled      Reason = "grant_disabled"
	GrantExpired       Reason = "grant_expired"
	AudienceNotAllowed Reason = "audience_not_allowed"
	ScopeNotAllowed    Reason = "scope_not_allowed"
	RunBudgetSpent     Reason = "run_budget_spent"  // the calls of one run are used up
	HourBudgetSpent    Reason = "hour_budget_spent" // those of this caller for this actor within an hour
	ArgumentsInvalid   Reason = "arguments_invalid" // they do not fit the tool's schema
	DiscoveryMissing   Reason = "discovery_credential_missing"
	GrantRevoked       Reason = "grant_revoked" // it stood when the operation began
)

// Approvals: what a person is asked, and what becomes of a call that waits for it.
const (
	ApproverMissing    Reason = "approver_missing"
	ApproverNotAllowed Reason = "approver_not_allowed" // this caller may not bring this approver, or may no longer
	ApproverIsActor    Reason = "approver_is_actor"
	ApprovalNotFound   Reason = "approval_not_found"
	ApprovalMismatch   Reason = "approval_mismatch"     // another digest than the one that was asked for
	NotAwaiting        Reason = "not_awaiting_approval" // decided otherwise, or not waited for any more
	ApprovalDenied     Reason = "approval_denied"
	ApprovalExpired    Reason = "approval_expired"
	ApprovalVoid       Reason = "approval_void" // there is none that holds for this very call
)

// Our own store and process.
const (
	StoreFailed      Reason = "store_failed"
	StoreUnavailable Reason = "store_unavailable"
	ProcessDied      Reason = "process_died"
	ResultClosed     Reason = "result_closed"   // it is there, and no key of ours opens it
	BrokerStopping   Reason = "broker_stopping" // the operation was cut: the time for its end was spent
	InternalError    Reason = "internal_error"
)

// Vault: the subject credential, the client key, the hold.
const (
	VaultUnreachable      Reason = "vault_unreachable"
	VaultSealed           Reason = "vault_sealed"
	VaultDenied           Reason = "vault_denied"
	VaultRateLimited      Reason = "vault_rate_limited"
	VaultUnexpected       Reason = "vault_unexpected" // an answer that is none: 3xx, not JSON, a 2xx that is not the right one
	VaultNotReady         Reason = "vault_not_ready"  // no live login or epoch
	CredentialMissing     Reason = "credential_missing"
	CredentialRejected    Reason = "credential_rejected"    // there, but not a token that may be sent
	CredentialChanged     Reason = "credential_changed"     // somebody else replaced it meanwhile
	CredentialUnversioned Reason = "credential_unversioned" // in a KV engine that has no check-and-set
	SubjectExpired        Reason = "subject_expired"        // the actor's token has ended
	RotationLost          Reason = "rotation_lost"          // the provider replaced the refresh token and Vault did not take the new one
	HoldFailed            Reason = "hold_failed"
	HoldGone              Reason = "hold_gone"
	HoldChanged           Reason = "hold_changed"
	SessionClosed         Reason = "session_closed"
	CheckStale            Reason = "check_stale" // more than a second between the check and the first byte
)

// The exchange.
const (
	ProviderUnreachable Reason = "provider_unreachable"
	ProviderRateLimited Reason = "provider_rate_limited"
	ProviderRedirect    Reason = "provider_redirect"
	ProviderError       Reason = "provider_error"       // it failed and did not say why
	ProviderConfig      Reason = "provider_config"      // it does not accept us as a client
	SubjectRejected     Reason = "subject_rejected"     // it does not accept the actor's credential
	TargetRejected      Reason = "target_rejected"      // it does not issue for this audience
	ScopeRejected       Reason = "scope_rejected"       // it does not issue these scopes
	InteractionRequired Reason = "interaction_required" // the person has to do something first
	ExchangeMalformed   Reason = "exchange_malformed"
	WrongTokenType      Reason = "wrong_token_type"
	WrongAudience       Reason = "wrong_audience"
	WrongSubject        Reason = "wrong_subject"
	WrongActor          Reason = "wrong_actor"
	WrongIssuer         Reason = "wrong_issuer"
	ScopeWidened        Reason = "scope_widened"
	ScopeNarrowed       Reason = "scope_narrowed"
	LifetimeTooShort    Reason = "lifetime_too_short"
	WrongSignature      Reason = "wrong_signature"     // no key of the provider's verifies the token
	WrongBinding        Reason = "wrong_binding"       // bound to a key or certificate that is not ours
	TokenInactive       Reason = "token_inactive"      // introspection says so
	TokenNotYetValid    Reason = "token_not_yet_valid" // its nbf is in the future
	KeysUnavailable     Reason = "keys_unavailable"    // the keys that would verify it cannot be had
)

// The MCP legs. Before the call was sent:
const (
	BudgetSpent        Reason = "budget_spent"
	CallerCancelled    Reason = "caller_cancelled"
	CallerGone         Reason = "caller_disconnected" // and the operator has it end for that
	HostRefused        Reason = "host_refused"        // the address is not one we may dial
	ConnectFailed      Reason = "connect_failed"
	TLSFailed          Reason = "tls_failed"
	VersionUnsupported Reason = "version_unsupported"
)

// Answers of the server, or of something between.
const (
	Unauthorized            Reason = "unauthorized"
	InsufficientScope       Reason = "insufficient_scope"
	Redirected              Reason = "redirected"
	StatusRefused           Reason = "status_refused"     // a 4xx of the refusal list
	MethodRefused           Reason = "method_refused"     // 405, or a 4xx that says -32601
	HeaderMismatch          Reason = "header_mismatch"    // 400 that says -32020
	CapabilityMissing       Reason = "capability_missing" // 400 that says -32021
	StatusUnclear           Reason = "status_unclear"     // a status that proves nothing, with a JSON-RPC body
	Intermediary            Reason = "intermediary"       // the same without one: somebody between
	SessionLost             Reason = "session_lost"       // 404 to a request that carried a session id
	ServerError             Reason = "server_error"       // a JSON-RPC error
	ToolFailed              Reason = "tool_failed"        // isError: true
	UnsupportedContinuation Reason = "unsupported_continuation"
	SecretEchoed            Reason = "secret_echoed"
)

// Cut off: the call was sent and no answer that we understand came back.
const (
	WallClock       Reason = "wall_clock" // the operation's own deadline
	Idle            Reason = "idle"       // no byte for as long as the idle window
	WriteFailed     Reason = "write_failed"
	ConnectionLost  Reason = "connection_lost"
	StreamEnded     Reason = "stream_ended"
	ReplyMalformed  Reason = "reply_malformed"
	ReplyTooLarge   Reason = "reply_too_large"
	ReplyMismatched Reason = "reply_mismatched" // another id, or more than one answer
	ServerAsked     Reason = "server_asked"     // a request of the server on our stream
)

// kinds is the closed list. A reason that is not in it does not exist.
var kinds = map[Reason]Kind{
	MalformedRequest: Invalid, UnsupportedMedia: Invalid, RequestTooLarge: Invalid,
	UnknownRoute: NotFound, MethodNotAllowed: Invalid, HostNotAllowed: Invalid,
	CallerUnknown: Unauthenticated, RoleMissing: Denied, ActorMissing: Unauthenticated, ActorInvalid: Unauthenticated,
	ActorNotAllowed: Denied, AssertionInvalid: Unauthenticated, AssertionReplayed: Unauthenticated,
	SignInFailed: Unauthenticated, SignInDenied: Denied,
	RateLimited: Busy, TooManyOperations: Busy, Draining: Unavailable, ServerBusy: Busy,
	OperationNotFound: NotFound, NotInDoubt: Conflict, SuspensionNotFound: NotFound, TooManySuspensions: Busy, RequestKeyConflict: Conflict, NoRecord: Conflict,

	Suspended: Denied, ServerUnknown: Denied, ServerNotAllowed: Denied, ServerDisabled: Denied, ServerInert: Denied,
	ToolUnknown: Denied, ToolDisabled: Denied, ToolNotOffered: Denied, ToolChanged: Denied, AdminRequired: Denied, ZoneExceeded: Denied, NoGrant: Denied, GrantDisabled: Denied,
	GrantExpired: Denied, AudienceNotAllowed: Denied, ScopeNotAllowed: Denied, RunBudgetSpent: Denied, HourBudgetSpent: Busy, ArgumentsInvalid: Invalid,
	DiscoveryMissing: Denied, GrantRevoked: Denied,

	ApproverMissing: Unauthenticated, ApproverNotAllowed: Denied, ApproverIsActor: Denied, ApprovalNotFound: NotFound,
	ApprovalMismatch: Conflict, NotAwaiting: Conflict, ApprovalDenied: Denied, ApprovalExpired: Conflict, ApprovalVoid: Denied,

	StoreFailed: Unavailable, StoreUnavailable: Unavailable, ProcessDied: Unknown, BrokerStopping: Unknown,
	ResultClosed: Unavailable, InternalError: Internal,

	VaultUnreachable: Unavailable, VaultSealed: Unavailable, VaultDenied: Unavailable, VaultRateLimited: Unavailable,
	VaultUnexpected: Unavailable, VaultNotReady: Unavailable, CredentialMissing: Unavailable, CredentialRejected: Unavailable,
	CredentialChanged: Unavailable, CredentialUnversioned: Unavailable, SubjectExpired: Unavailable, RotationLost: Unavailable,
	HoldFailed: Unavailable, HoldGone: Unavailable, HoldChanged: Unavailable, SessionClosed: Unavailable, CheckStale: Spent,

	ProviderUnreachable: Unavailable, ProviderRateLimited: Unavailable, ProviderRedirect: Refused, ProviderError: Refused,
	ProviderConfig: Refused, SubjectRejected: Refused, TargetRejected: Refused, ScopeRejected: Refused,
	InteractionRequired: Refused, ExchangeMalformed: Refused, WrongTokenType: Refused, WrongAudience: Refused,
	WrongSubject: Refused, WrongActor: Refused, WrongIssuer: Refused, ScopeWidened: Refused, ScopeNarrowed: Refused,
	LifetimeTooShort: Refused, WrongSignature: Refused, WrongBinding: Refused, TokenInactive: Refused, TokenNotYetValid: Refused,
	KeysUnavailable: Unavailable,

	BudgetSpent: Spent, CallerCancelled: Spent, CallerGone: Spent, HostRefused: Unavailable, ConnectFailed: Unavailable,
	TLSFailed: Unavailable, VersionUnsupported: Refused,

	Unauthorized: Refused, InsufficientScope: Refused, Redirected: Refused, StatusRefused: Refused,
	MethodRefused: Refused, HeaderMismatch: Refused, CapabilityMissing: Refused,
	StatusUnclear: Unknown, Intermediary: Unknown, SessionLost: Unknown, ServerError: Unknown, ToolFailed: Refused,
	UnsupportedContinuation: Unknown, SecretEchoed: Unknown,

	WallClock: Unknown, Idle: Unknown, WriteFailed: Unknown, ConnectionLost: Unknown, StreamEnded: Unknown, ReplyMalformed: Unknown,
	ReplyTooLarge: Unknown, ReplyMismatched: Unknown, ServerAsked: Unknown,
}

// Kind returns the kind of r; a word outside the list is [Internal].
func (r Reason) Kind() Kind {
	if k, ok := kinds[r]; ok {
		return k
	}
	return Internal
}

// Known reports whether r is in the closed list.
func (r Reason) Known() bool { _, ok := kinds[r]; return ok }

// Reasons returns the closed list, sorted.
func Reasons() []Reason { return slices.Sorted(maps.Keys(kinds)) }
