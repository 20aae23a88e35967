package catalogue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/strictjson"
)

// A Report is what an import found and did. The lists of names are in their order.
type Report struct {
	Server   string
	Imported int // tools that were taken
	Skipped  []Skip
	Orphaned int // tools that are orphaned now, also those that were before

	New      []string
	Changed  []audit.Redefined
	Vanished []string // orphaned by this import
	Returned []string // revived by this import; Changed, too, if they came back with another definition
}

// Import brings the rows of server in line with what it advertised: what is listed
// is inserted or updated in place and live, what is not, or is skipped, is orphaned.
// An empty list is a list. dropped are tools that the client has left out already, with
// its reason. Rows and rec, whose kind, server and imported it fills,
// are one commit with one time.
func (c *Catalogue) Import(ctx context.Context, server string, advertised []strictjson.Raw, rec audit.Record, dropped ...Skip) (Report, error) {
	// The tools are read before the commit, since the store's only writer would wait
	// for them; so nobody else may change the rows meanwhile.
	c.importing.Lock()
	defer c.importing.Unlock()
	known, others, err := c.held(ctx, server)
	if err != nil {
		return Report{}, store.Failure("catalogue.Import", err)
	}
	tools, skipped := Read(server, advertised, func(local string) string { return others[strings.ToLower(local)] })
	rep := compare(server, known, tools, append(dropped, skipped...))

	rec = c.stamped(rec, audit.Import, server)
	rec.Imported = &audit.Imported{Tools: rep.Imported, Skipped: len(rep.Skipped), Orphaned: rep.Orphaned,
		New: rep.New, Changed: rep.Changed, Vanished: rep.Vanished, Returned: rep.Returned}
	at := store.Nanoseconds(rec.Time)
	err = c.store.Commit(ctx, func(tx *store.Tx) error {
		for _, t := range tools {
			if err := keep(tx, t, t.Pin != known[t.Name].pin, at); err != nil {
				return err
			}
		}
		for _, name := range rep.Vanished {
			if _, err := tx.Exec(`UPDATE tools SET orphaned = ? WHERE server = ? AND name = ?`, at, server, name); err != nil {
				return err
			}
		}
		return rep.keep(tx, at)
	}, rec)
	if err != nil {
		return Report{}, store.Failure("catalogue.Import", err)
	}
	return rep, nil
}

// row is what an import needs to know of a tool that is there.
type row struct {
	pin      string
	orphaned bool
}

// held returns the tools of server by name, and by local name in lower case which
// other server has it. Orphans hold their names, too.
func (c *Catalogue) held(ctx context.Context, server string) (known map[string]row, others map[string]string, err error) {
	rows, err := c.store.Read().QueryContext(ctx, `SELECT server, name, local, pin, orphaned <> 0 FROM tools`)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	known, others = map[string]row{}, map[string]string{}
	for rows.Next() {
		var by, name, local string
		var r row
		if err := rows.Scan(&by, &name, &local, &r.pin, &r.orphaned); err != nil {
			return nil, nil, err
		}
		if by == server {
			known[name] = r
		} else {
			others[strings.ToLower(local)] = by
		}
	}
	return known, others, rows.Err()
}

// compare says what becomes of the rows of server. It changes nothing.
func compare(server string, known map[string]row, tools []Tool, skipped []Skip) Report {
	rep := Report{Server: server, Imported: len(tools), Skipped: skipped}
	listed := map[string]bool{}
	for _, t := range tools {
		listed[t.Name] = true
		was, there := known[t.Name]
		if !there {
			rep.New = append(rep.New, t.Name)
			continue
		}
		if was.orphaned {
			rep.Returned = append(rep.Returned, t.Name)
		}
		if was.pin != t.Pin {
			rep.Changed = append(rep.Changed, audit.Redefined{Tool: t.Name, Old: was.pin, New: t.Pin})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		switch {
		case listed[name]:
			continue
		case !known[name].orphaned:
			rep.Vanished = append(rep.Vanished, name)
		}
		rep.Orphaned++
	}
	slices.Sort(rep.New)
	slices.Sort(rep.Returned)
	slices.SortFunc(rep.Changed, func(a, b audit.Redefined) int { return cmp.Compare(a.Tool, b.Tool) })
	return rep
}

// keep writes a tool that is listed. One that comes back has its return marked; the
// mark stays.
func keep(tx *store.Tx, t Tool, redefined bool, at int64) error {
	_, err := tx.Exec(`INSERT INTO tools (server, name, local, title, description, schema, pin, since, seen, orphaned, returned)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)
		ON CONFLICT (server, name) DO UPDATE SET title = excluded.title, description = excluded.description,
			schema = excluded.schema, pin = excluded.pin, seen = excluded.seen, orphaned = 0,
			returned = CASE WHEN tools.orphaned <> 0 THEN excluded.seen ELSE tools.returned END`,
		t.Server, t.Name, t.Local, t.Title, t.Description, string(t.Schema), t.Pin, at, at)
	if err != nil || !redefined {
		return err
	}
	_, err = tx.Exec(`INSERT INTO definitions (server, name, pin, definition, first_seen) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (server, name, pin) DO NOTHING`, t.Server, t.Name, t.Pin, string(t.Definition), at)
	return err
}

// keep writes how the import of a server ended.
func (rep Report) keep(tx *store.Tx, at int64) error {
	status := OK
	if len(rep.Skipped) > 0 {
		status = Partial
	}
	_, err := tx.Exec(`INSERT INTO servers (server, status, problem, imported, good, tools) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (server) DO UPDATE SET status = excluded.status, problem = excluded.problem,
			imported = excluded.imported, good = excluded.good, tools = excluded.tools`,
		rep.Server, string(status), rep.problem(), at, at, rep.Imported)
	return err
}

// problem is why tools were skipped, a line for each of the first few.
func (rep Report) problem() string {
	const most = 64
	var lines []string
	for _, s := range rep.Skipped[:min(len(rep.Skipped), most)] {
		lines = append(lines, s.String())
	}
	if more := len(rep.Skipped) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Refused says that an import had no list, and why: what the server offered before is
// not gone. detail is a sentence of ours, see [fault.Error].
func (c *Catalogue) Refused(ctx context.Context, server string, reason fault.Reason, detail string, rec audit.Record) error {
	problem := string(reason)
	if detail != "" {
		problem += ": " + detail
	}
	rec = c.stamped(rec, audit.Import, server)
	rec.Reason = reason
	err := c.store.Commit(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO servers (server, status, problem, imported) VALUES (?, ?, ?, ?)
			ON CONFLICT (server) DO UPDATE SET status = excluded.status, problem = excluded.problem, imported = excluded.imported`,
			server, string(Failed), problem, store.Nanoseconds(rec.Time))
		return err
	}, rec)
	return store.Failure("catalogue.Refused", err)
}

// Definition returns a definition that a tool had at some time, as it was advertised.
func (c *Catalogue) Definition(ctx context.Context, server, name, pin string) (def strictjson.Raw, found bool, err error) {
	err = c.store.Read().QueryRowContext(ctx, `SELECT definition FROM definitions WHERE server = ? AND name = ? AND pin = ?`,
		server, name, pin).Scan((*[]byte)(&def))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return def, err == nil, store.Failure("catalogue.Definition", err)
}
