// Package grants is what a running broker knows of its grants: who may do what as whom,
// and when that was last used. It is read by people who review, page by page.
//
// What always holds:
//
//   - Who may do what is said by package policy, by the steps that decide; this package
//     adds what the ledger and Vault know.
//   - A page costs what is looked at for it, and that is bounded. One may be empty though
//     there are more: as long as it has a Next.
//   - "Never used" is said with the time since when uses are counted.
//   - A credential is asked for to see that it is there; its value is dropped unread.
package grants

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/vault"
)

// A Row is a row of package policy with what is known of it besides.
type Row struct {
	policy.Row
	Uses     *int      `json:"uses,omitempty"` // operations that it let begin, each attempt counted; nil: no grant is needed
	LastUsed time.Time `json:"last_used,omitzero"`
	Stored   string    `json:"stored,omitempty"` // of [Reader.Orphaned]: a word below, or why Vault did not say
}

// Words for Row.Stored.
const (
	There      = "there"
	Missing    = "missing"
	NotInVault = "not kept in Vault"
)

// A Page is some rows.
type Page struct {
	Rows     []Row
	Next     Place     // of the page that follows
	More     bool      // there may be one
	Counted  time.Time // since when uses are
	Snapshot string    // the hash of the configuration that it was read from
}

// A Place is where a page ends.
type Place struct {
	policy.RowID
	Expires string // of [Reader.Expiring], which is sorted by it first
}

// Words writes a place so that [ParsePlace] reads it.
func (p Place) Words() string {
	b, _ := json.Marshal([]string{p.Actor, p.Profile, p.Server, p.Tool, p.Expires})
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParsePlace reads a place.
func ParsePlace(text string) (Place, error) {
	var w []string
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil || len(w) != 5 {
		return Place{}, errors.New("it is no place where a page ends")
	}
	return Place{policy.RowID{Actor: w[0], Profile: w[1], Server: w[2], Tool: w[3]}, w[4]}, nil
}

// A Reader reads the newest snapshot.
type Reader struct {
	Policy *policy.Holder
	Ledger *ledger.Ledger
	Vault  *vault.Client
	Now    func() time.Time
}

// A Question is what a page is about: a filter, where the page begins, and how many rows
// it may have.
type Question struct {
	policy.Filter
	After Place
	Limit int
}

func (q Question) filter() policy.Filter {
	f := q.Filter
	f.After = q.After.RowID
	return f
}

// List returns what each grant makes possible, see [policy.Snapshot.List].
func (r *Reader) List(ctx context.Context, q Question) (Page, error) {
	s := r.Policy.Current()
	return r.page(ctx, s, q, s.List(q.filter(), r.Now()), all)
}

// WhoCan returns for whom the tool may be called now, see [policy.Snapshot.WhoCan].
func (r *Reader) WhoCan(ctx context.Context, q Question) (Page, error) {
	s := r.Policy.Current()
	return r.page(ctx, s, q, s.WhoCan(q.filter(), r.Now()), all)
}

// Unused returns the rows of List that were not used for so many days. Where uses are
// counted for a shorter time, it is since then that they were not.
func (r *Reader) Unused(ctx context.Context, q Question, days int) (Page, error) {
	s := r.Policy.Current()
	since := r.Now().AddDate(0, 0, -days)
	return r.page(ctx, s, q, s.List(q.filter(), r.Now()), func(row Row) bool { return row.LastUsed.Before(since) })
}

// Expiring returns the grants that have expired or soon will have, see
// [policy.Snapshot.Expiring].
func (r *Reader) Expiring(ctx context.Context, q Question, days int) (Page, error) {
	s := r.Policy.Current()
	after := q.After
	rest := func(yield func(policy.Row) bool) {
		for row := range s.Expiring(days, r.Now()) {
			if (row.Expires > after.Expires || row.Expires == after.Expires && row.ID().Compare(after.RowID) > 0) && !yield(row) {
				return
			}
		}
	}
	return r.page(ctx, s, q, rest, all)
}

// Orphaned returns the grants that open no tool of an enabled server, and with asked also
// those whose credential Vault does not have: of the grants that the page is made from,
// as many as its limit says, each is read there once.
func (r *Reader) Orphaned(ctx context.Context, q Question, asked bool) (Page, error) {
	s := r.Policy.Current()
	rows := s.Whole(q.filter(), r.Now())
	if !asked {
		return r.page(ctx, s, q, rows, orphan)
	}
	p, err := r.page(ctx, s, q, rows, all)
	if err != nil {
		return Page{}, err
	}
	r.look(ctx, s, p.Rows)
	p.Rows = slices.DeleteFunc(p.Rows, func(row Row) bool { return !orphan(row) })
	return p, nil
}

func all(Row) bool { return true }

func orphan(row Row) bool { return row.Why != "" }

const (
	atOnce = 1000   // rows whose uses are read together
	lookAt = 10_000 // rows that a page is made from
)

// page fills a page with the rows that keep wants. They come in their order.
func (r *Reader) page(ctx context.Context, s *policy.Snapshot, q Question, rows iter.Seq[policy.Row], keep func(Row) bool) (p Page, err error) {
	p = Page{Rows: []Row{}, Snapshot: s.Hash}
	if _, p.Counted, err = r.Ledger.Uses(ctx, q.Filter, "", ""); err != nil {
		return Page{}, err
	}
	looked := 0
	for chunk := range chunks(rows, atOnce) {
		uses, err := r.uses(ctx, q.Filter, chunk)
		if err != nil {
			return Page{}, err
		}
		for _, row := range chunk {
			if len(p.Rows) == q.Limit || looked == lookAt {
				p.More = true
				return p, nil
			}
			looked++
			p.Next = Place{row.ID(), row.Expires}
			if used := usedAs(row, uses[row.ID()]); keep(used) {
				p.Rows = append(p.Rows, used)
			}
		}
	}
	return p, nil
}

func usedAs(row policy.Row, use ledger.Use) Row {
	for _, list := range []*[]string{&row.Callers, &row.Audiences, &row.Scopes} {
		*list = append([]string{}, *list...) // in JSON a list, also where it is empty
	}
	if row.Status == policy.NoGrantNeeded {
		return Row{Row: row}
	}
	return Row{Row: row, Uses: &use.Count, LastUsed: use.Last}
}

// uses are those of the rows; of one without a server, those of the whole grant.
func (r *Reader) uses(ctx context.Context, f policy.Filter, rows []policy.Row) (map[policy.RowID]ledger.Use, error) {
	first, last := rows[0].Actor, rows[0].Actor
	for _, row := range rows {
		first, last = min(first, row.Actor), max(last, row.Actor)
	}
	uses, _, err := r.Ledger.Uses(ctx, f, first, last)
	whole := map[policy.RowID]ledger.Use{}
	for id, use := range uses {
		grant := policy.RowID{Actor: id.Actor, Profile: id.Profile}
		sum := whole[grant]
		sum.Count += use.Count
		if use.Last.After(sum.Last) {
			sum.Last = use.Last
		}
		whole[grant], whole[id] = sum, use
	}
	return whole, err
}

// chunks is [slices.Chunk] of what comes one by one.
func chunks(rows iter.Seq[policy.Row], size int) iter.Seq[[]policy.Row] {
	return func(yield func([]policy.Row) bool) {
		var some []policy.Row
		for row := range rows {
			if some = append(some, row); len(some) == size {
				if !yield(some) {
					return
				}
				some = nil
			}
		}
		if some != nil {
			yield(some)
		}
	}
}

const (
	askers = 8               // readings of Vault at one time
	asking = 5 * time.Second // for all of a page; what was not answered by then says so
)

// look asks Vault for the credential of each row. Its policy gives the broker's login the
// secrets and not their metadata, so each is read, and dropped unread.
func (r *Reader) look(ctx context.Context, s *policy.Snapshot, rows []Row) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	next := make(chan *Row)
	var all sync.WaitGroup
	for range min(askers, len(rows)) {
		all.Go(func() {
			for row := range next {
				row.Stored = r.stored(ctx, s, row.Row)
				if row.Stored == Missing && row.Why == "" {
					row.Why = string(fault.CredentialMissing)
				}
			}
		})
	}
	for i := range rows {
		next <- &rows[i]
	}
	close(next)
	all.Wait()
}

func (r *Reader) stored(ctx context.Context, s *policy.Snapshot, row policy.Row) string {
	g, ok := s.Grant(row.Profile, row.Actor)
	if !ok || g.Credential.Ref.IsZero() {
		return NotInVault
	}
	_, err := r.Vault.Credential(ctx, g.Credential.Ref)
	switch {
	case err == nil:
		return There
	case fault.ReasonOf(err) == fault.CredentialMissing:
		return Missing
	}
	return string(fault.ReasonOf(err))
}
