package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
)

// What goes before a page of the audit.
const (
	AuditNext = "Broker-Audit-Next" // the last record that was looked at: after= of the next page
	AuditHead = "Broker-Audit-Head" // the newest record; the last page is the one with both alike
)

const auditPage = 1000 // records, without a limit

// audit answers GET /v1/audit: the records as they are stored, a line each.
func (a *API) audit(ctx context.Context, r *request) (answer, error) {
	after, limit, filter, err := readAuditQuery(r.http.URL.RawQuery)
	if err != nil {
		return answer{}, err
	}
	page, err := a.Auditors.Page(ctx, auditlog.Auditor{Caller: r.caller.ID()}, after, limit, filter)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, media: "application/x-ndjson", body: page.Lines, headers: map[string]string{
		AuditNext: strconv.FormatUint(page.Next, 10), AuditHead: strconv.FormatUint(page.Head, 10)}}, nil
}

// readAuditQuery reads the query strictly.
func readAuditQuery(raw string) (after uint64, limit int, f auditlog.Filter, err error) {
	bad := func(detail string) (uint64, int, auditlog.Filter, error) {
		return 0, 0, auditlog.Filter{}, fault.New("httpapi.readAuditQuery", fault.MalformedRequest, detail)
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return bad("the query cannot be read")
	}
	limit = auditPage
	for key, values := range query {
		value := values[0]
		var err error
		switch key {
		case "after":
			after, err = strconv.ParseUint(value, 10, 63)
		case "limit":
			if limit, err = strconv.Atoi(value); limit < 1 || limit > auditlog.MostRecords {
				return bad("limit: from 1 to " + strconv.Itoa(auditlog.MostRecords))
			}
		case "since":
			f.Since, err = time.Parse(time.RFC3339, value)
		case "until":
			f.Until, err = time.Parse(time.RFC3339, value)
		case "actor":
			f.Actor = value
		case "operation":
			f.Operation = value
		case "server":
			f.Server = value
		case "tool":
			f.Tool = value
		default:
			return bad("known in the query: after, limit, since, until, actor, operation, server, tool")
		}
		if err != nil || len(values) != 1 || value == "" || len(value) > 256 {
			return bad(key + ": once, a number or a time such as 2026-11-30T12:00:00Z, at most 256 bytes")
		}
	}
	f.Since, f.Until = f.Since.UTC(), f.Until.UTC()
	return after, limit, f, nil
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
