package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
)

// What goes before a page of the audit.
const (
	AuditFirst = "Broker-Audit-First" // the first record there is: those before it were pruned
	AuditNext  = "Broker-Audit-Next"  // the last record that was looked at: after= of the next page
	AuditHead  = "Broker-Audit-Head"  // the newest record; the last page is the one with both alike
)

const auditPage = 1000 // records, without a limit

// audit answers GET /v1/audit: the records as they are stored, a line each.
func (a *API) audit(ctx context.Context, r *request) (answer, error) {
	after, limit, filter, err := readAuditQuery(r.http.URL.RawQuery)
	if err != nil {
		return answer{}, err
	}
	page, err := a.Auditors.Page(ctx, auditor(r), after, limit, filter)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, media: "application/x-ndjson", body: page.Lines, headers: map[string]string{
		AuditFirst: strconv.FormatUint(page.First, 10), AuditNext: strconv.FormatUint(page.Next, 10), AuditHead: strconv.FormatUint(page.Head, 10)}}, nil
}

func readAuditQuery(raw string) (after uint64, limit int, f auditlog.Filter, err error) {
	limit = auditPage
	err = readQuery(raw, number("after", &after), upTo("limit", &limit, auditlog.MostRecords), moment("since", &f.Since), moment("until", &f.Until),
		word("actor", &f.Actor), word("operation", &f.Operation), word("server", &f.Server), word("tool", &f.Tool))
	return after, limit, f, err
}

// search answers GET /v1/audit/operations: operations of all callers, newest first,
// without arguments and results.
func (a *API) search(ctx context.Context, r *request) (answer, error) {
	var s ledger.Search
	var after ledger.Place
	limit := listLimit
	err := readQuery(r.http.URL.RawQuery, param{"after", func(text string) (err error) { after, err = ledger.ParsePlace(text); return err }},
		upTo("limit", &limit, mostOperations), moment("since", &s.Since), moment("until", &s.Until), word("id", &s.ID), word("request_key", &s.RequestKey),
		word("caller", &s.Caller), word("actor", &s.Actor), word("server", &s.Server), word("tool", &s.Tool),
		param{"state", func(text string) (err error) { s.State, err = readState(text); return err }})
	if err != nil {
		return answer{}, err
	}
	if err := a.Auditors.Look(ctx, auditor(r), auditlog.Operations,
		auditlog.Filter{Since: s.Since, Until: s.Until, Actor: s.Actor, Operation: s.ID, Server: s.Server, Tool: s.Tool}); err != nil {
		return answer{}, err
	}
	jobs, next, err := a.Rows.Search(ctx, s, after, limit)
	if err != nil {
		return answer{}, err
	}
	found := Found{Operations: []Operation{}, Ledger: a.ledger()}
	for _, job := range jobs {
		found.Operations = append(found.Operations, a.shownToAll(job))
	}
	if next != (ledger.Place{}) {
		found.Next = next.Words()
	}
	return inJSON(http.StatusOK, found), nil
}

// Found is a page of a search. It may be empty though there is a next one.
type Found struct {
	Operations []Operation `json:"operations"`
	Next       string      `json:"next,omitempty"` // after= of the next page
	Ledger     Ledger      `json:"ledger"`
}

const mostOperations = 1000 // of a page

func readState(text string) (fault.State, error) {
	for _, a := range fault.Advices() {
		if string(a.State) == text {
			return a.State, nil
		}
	}
	return "", errors.New("a state of docs/outcomes.md")
}

// An AuditEnd is the head of the audit.
type AuditEnd struct {
	Seq    uint64       `json:"seq"`
	Hash   audit.Digest `json:"hash"`
	Signed *SignedHead  `json:"signed,omitempty"`
	Ledger Ledger       `json:"ledger"`
}

// A SignedHead is the newest signed head.
type SignedHead struct {
	Size       uint64    `json:"size"`
	At         time.Time `json:"at"`
	Checkpoint string    `json:"checkpoint"`
}

// auditHead answers GET /v1/audit/head.
func (a *API) auditHead(ctx context.Context, r *request) (answer, error) {
	if r.http.URL.RawQuery != "" {
		return answer{}, fault.New("httpapi.auditHead", fault.MalformedRequest, "this address takes no query")
	}
	head, err := a.Auditors.Head(ctx)
	if err != nil {
		return answer{}, err
	}
	end := AuditEnd{Seq: head.Chain.Seq, Hash: head.Chain.Hash, Ledger: a.ledger()}
	if head.Signed > 0 {
		end.Signed = &SignedHead{head.Signed, head.At, head.Checkpoint}
	}
	return inJSON(http.StatusOK, end), nil
}
