package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/audit/ocsf"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/fault"
)

const recordsShown = 100

type auditPage struct {
	Filter        auditlog.Filter
	Records       []shownRecord
	Older, Newer  string // addresses; empty: there are none
	Head          auditlog.Head
	From, To      uint64 // the records that were looked at
	Export, OCSF  string // addresses of files, by the same filter
	Verified      *audit.Report
	VerifyProblem string
}

// A shownRecord is what a line says, for people: the members that most have, and the
// line itself.
type shownRecord struct {
	Seq    uint64
	Time   time.Time
	Kind   audit.Kind
	Caller string
	Actor  string
	Server string
	Tool   string
	Reason string
	State  string
	Count  int
	Line   []byte
}

// audit shows records, the newest first; the newest of all where none are asked for.
func (u *UI) audit(ctx context.Context, v *visit) (answer, error) {
	return u.records(ctx, v, auditPage{})
}

func (u *UI) records(ctx context.Context, v *visit, p auditPage) (answer, error) {
	f, err := filterOf(v)
	if err != nil {
		return answer{}, err
	}
	if p.Head, err = u.Auditors.Head(ctx); err != nil {
		return answer{}, err
	}
	step := uint64(recordsShown)
	if f != (auditlog.Filter{}) {
		step = auditlog.MostRecords // as many as a page of the reader is made from
	}
	after, err := strconv.ParseUint(v.query("after"), 10, 63)
	if err != nil {
		after = p.Head.Chain.Seq - min(p.Head.Chain.Seq, step)
	}
	page, err := u.Auditors.Page(ctx, v.auditor(), after, recordsShown, f)
	if err != nil {
		return answer{}, err
	}
	after = max(after, page.First-1) // what is before that was pruned
	p.Filter, p.From, p.To = f, after+1, page.Next
	for line := range bytes.Lines(page.Lines) {
		r := shownRecord{Line: bytes.TrimSpace(line)}
		_ = json.Unmarshal(line, &r) // one that is none is shown as its line
		p.Records = append(p.Records, r)
	}
	slices.Reverse(p.Records)
	query := v.http.URL.RawQuery
	p.Export, p.OCSF = "/ui/audit/export?"+query, "/ui/audit/export?format=ocsf&"+query
	if page.Next < page.Head {
		p.Newer = v.again("after", strconv.FormatUint(page.Next, 10))
	}
	if after >= page.First {
		p.Older = v.again("after", strconv.FormatUint(after-min(after, step), 10))
	}
	return answer{page: "audit", title: "Audit", model: p}, nil
}

func filterOf(v *visit) (f auditlog.Filter, err error) {
	f = auditlog.Filter{Actor: v.query("actor"), Operation: v.query("operation"), Server: v.query("server"), Tool: v.query("tool")}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if v.query(name) == "" {
			continue
		}
		day, err := time.Parse(time.DateOnly, v.query(name))
		if err != nil {
			return f, fault.New("webui.filterOf", fault.MalformedRequest, name+": a day, such as 2026-11-30")
		}
		*at = day
	}
	return f, nil
}

// verify reads the whole chain and says whether it is whole, up to what the writer has
// in memory.
func (u *UI) verify(ctx context.Context, v *visit) (answer, error) {
	head, err := u.Auditors.Head(ctx)
	if err != nil {
		return answer{}, err
	}
	all := func() *io.PipeReader {
		in, out := io.Pipe()
		go func() { out.CloseWithError(u.copy(ctx, v, auditlog.Filter{}, head.Chain.Seq, plain(out))) }()
		return in
	}
	in := all()
	evidence := audit.Evidence{Expect: head.Chain, Cut: audit.FindCut(in)}
	in.Close()
	in = all()
	report, err := evidence.Verify(in)
	in.Close()
	var bad *audit.BadRecord
	switch {
	case errors.As(err, &bad):
		return u.records(ctx, v, auditPage{VerifyProblem: bad.Error()})
	case err != nil:
		return answer{}, err
	}
	return u.records(ctx, v, auditPage{Verified: &report})
}

// export gives records as a file, as they are stored or in OCSF.
func (u *UI) export(ctx context.Context, v *visit) (answer, error) {
	f, err := filterOf(v)
	if err != nil {
		return answer{}, err
	}
	head, err := u.Auditors.Head(ctx)
	if err != nil {
		return answer{}, err
	}
	d := &download{name: "audit.jsonl", media: "application/x-ndjson"}
	format := plain
	if v.query("format") == "ocsf" {
		d.name, format = "audit.ocsf.jsonl", inOCSF
	}
	d.write = func(w http.ResponseWriter) error { return u.copy(ctx, v, f, head.Chain.Seq, format(w)) }
	return answer{download: d}, nil
}

func plain(w io.Writer) func([]byte) error {
	return func(lines []byte) error { _, err := w.Write(lines); return err }
}

func inOCSF(w io.Writer) func([]byte) error {
	return func(lines []byte) error { return ocsf.Write(w, lines) }
}

// copy hands on what there is up to a record, a page at a time.
func (u *UI) copy(ctx context.Context, v *visit, f auditlog.Filter, end uint64, to func([]byte) error) error {
	for next := uint64(0); next < end; {
		page, err := u.Auditors.Page(ctx, v.auditor(), next, int(min(auditlog.MostRecords, end-next)), f)
		if err != nil {
			return err
		}
		if next > 0 && page.First > next+1 {
			return fault.New("webui.copy", fault.StoreUnavailable, "the records were pruned meanwhile; ask again")
		}
		if err := to(page.Lines); err != nil {
			return err
		}
		next = page.Next
	}
	return nil
}
