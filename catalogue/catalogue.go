// Package catalogue keeps what servers said they offer.
//
// [Read] takes what a server advertised and says, tool by tool, what is taken and
// what is skipped, and why. [Catalogue.Import] brings the rows in line with it:
//
//	(new) → live ⇄ orphaned
//
// A tool is orphaned when its server no longer lists it, or lists it in a way that
// is skipped. One that comes back is live again, and marked as returned from then
// on: whether that is trusted is for policy to say, which knows the pins.
//
// What always holds:
//
//   - An import is one commit: all of its rows and its audit record, or nothing.
//   - No row and no definition is ever deleted, and an import of one server
//     changes no row of another. A local name stays its tool's.
//   - A pin stands for a definition as it was advertised: it changes with every
//     character of a value, and not with the order of members.
//   - Every local name is 1 to 64 of A-Z a-z 0-9 _ -, and is one tool's. Nothing
//     is rewritten to make it fit.
//   - Text of a server that is kept for people and models was made visible by
//     [Shown] and is bounded. Definitions keep their bytes.
//   - [Catalogue.Contact] neither waits for the disk nor fails.
//
// This package makes no network request, decides nothing about who may call what,
// and does not limit how many tools a server may have: who asked the server does.
package catalogue

import (
	"context"
	"sync"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/strictjson"
)

// A Catalogue is safe for concurrent use. A store has one.
type Catalogue struct {
	store *store.Store
	now   func() time.Time

	importing sync.Mutex // held from the reading of the rows to the commit that changes them

	mu       sync.Mutex // guards contacts; held for map work only
	contacts map[string]contact
}

// New returns the catalogue in s. now is the clock of rows and records; nil: time.Now.
func New(s *store.Store, now func() time.Time) *Catalogue {
	if now == nil {
		now = time.Now
	}
	return &Catalogue{store: s, now: now, contacts: map[string]contact{}}
}

// stamped gives a record what the catalogue knows better than its caller. Its time
// is that of the rows, too.
func (c *Catalogue) stamped(rec audit.Record, kind audit.Kind, server string) audit.Record {
	rec.Kind, rec.Server = kind, server
	if rec.Time.IsZero() {
		rec.Time = c.now()
	}
	return rec
}

// Status is how the last import of a server ended.
type Status string

const (
	NeverImported Status = "never_imported"
	OK            Status = "ok"
	Partial       Status = "partial" // some tools were skipped
	Failed        Status = "error"   // there was no list; the tools are those of the last good import
)

// A Server is what is known of one server.
type Server struct {
	Name     string
	Status   Status
	Problem  string    // why it is not ok
	Imported time.Time // the last attempt, also one in vain
	Good     time.Time // the last import that had a list
	Tools    int       // that the last good import took
	Contact  time.Time // the last time that it answered
	Latency  time.Duration

	// As the last good probe found it.
	Era             policy.Era
	Version         string // of the protocol, as the server chose
	Software        string
	SoftwareVersion string

	Is     string       // as the last probe found it; empty: there was none
	Probe  fault.Reason // why it was in vain; None: it was not
	Probed time.Time
}

const serverColumns = `server, status, problem, imported, good, tools, contact, latency, era, version, software, software_version, liveness, probe, probed`

// Servers returns every server that was imported, probed or in contact, by name.
func (c *Catalogue) Servers(ctx context.Context) ([]Server, error) {
	list, err := c.servers(ctx)
	if err != nil {
		return nil, store.Failure("catalogue.Servers", err)
	}
	return c.withContacts(list), nil
}

func (c *Catalogue) servers(ctx context.Context) (list []Server, err error) {
	rows, err := c.store.Read().QueryContext(ctx, `SELECT `+serverColumns+` FROM servers`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s Server
		var imported, good, contact, probed int64
		if err := rows.Scan(&s.Name, &s.Status, &s.Problem, &imported, &good, &s.Tools, &contact, &s.Latency,
			&s.Era, &s.Version, &s.Software, &s.SoftwareVersion, &s.Is, &s.Probe, &probed); err != nil {
			return nil, err
		}
		s.Imported, s.Good, s.Contact, s.Probed = store.TimeOf(imported), store.TimeOf(good), store.TimeOf(contact), store.TimeOf(probed)
		list = append(list, s)
	}
	return list, rows.Err()
}

// A Kept is a tool as it stands in the catalogue.
type Kept struct {
	Tool               // without its Definition: see [Catalogue.Definition]; without a Schema where its row holds none
	Since    time.Time // when it was first seen
	Seen     time.Time // when it was last seen
	Orphaned time.Time // since when it is no longer offered; zero: it is
	Returned time.Time // when it last came back from being orphaned; zero: never
}

// Tools returns every tool that the server has ever had, by name.
func (c *Catalogue) Tools(ctx context.Context, server string) ([]Kept, error) {
	list, err := c.tools(ctx, server)
	return list, store.Failure("catalogue.Tools", err)
}

func (c *Catalogue) tools(ctx context.Context, server string) ([]Kept, error) {
	rows, err := c.store.Read().QueryContext(ctx, `SELECT server, name, local, title, description, schema, pin, since, seen, orphaned, returned
		FROM tools WHERE server = ? ORDER BY name`, server)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []Kept{}
	for rows.Next() {
		var k Kept
		var schema []byte
		var since, seen, orphaned, returned int64
		if err := rows.Scan(&k.Server, &k.Name, &k.Local, &k.Title, &k.Description, &schema, &k.Pin, &since, &seen, &orphaned, &returned); err != nil {
			return nil, err
		}
		k.Schema = object(schema)
		k.Since, k.Seen, k.Orphaned, k.Returned = store.TimeOf(since), store.TimeOf(seen), store.TimeOf(orphaned), store.TimeOf(returned)
		list = append(list, k)
	}
	return list, rows.Err()
}

// object is a schema in a row; nil for what is none. A row can be changed by hand, and
// one that was must not keep the others from being read.
func object(stored []byte) strictjson.Raw {
	if raw := strictjson.Raw(stored); strictjson.Check(raw) == nil && raw.Kind() == '{' {
		return raw
	}
	return nil
}

// View returns what every server offers, all from one moment. A server that was
// never imported well is absent.
func (c *Catalogue) View(ctx context.Context) (policy.Offers, error) {
	view, err := c.view(ctx)
	return view, store.Failure("catalogue.View", err)
}

func (c *Catalogue) view(ctx context.Context) (policy.Offers, error) {
	rows, err := c.store.Read().QueryContext(ctx, `SELECT servers.server, COALESCE(name, ''), COALESCE(pin, ''),
		COALESCE(orphaned, 0) <> 0, COALESCE(returned, 0) <> 0
		FROM servers LEFT JOIN tools ON tools.server = servers.server WHERE good <> 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	view := policy.Offers{}
	for rows.Next() {
		var server, name string
		var o policy.Offer
		if err := rows.Scan(&server, &name, &o.Pin, &o.Orphaned, &o.Returned); err != nil {
			return nil, err
		}
		if view[server] == nil {
			view[server] = map[string]policy.Offer{}
		}
		if name != "" { // the one row of a server without tools
			view[server][name] = o
		}
	}
	return view, rows.Err()
}
