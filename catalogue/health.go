package catalogue

import (
	"cmp"
	"context"
	"slices"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

// contact is the last time that a server answered.
type contact struct {
	at      time.Time
	latency time.Duration
	written bool // to the store
}

// Contact says that a server completed an operation then, whose last leg took so
// long. It is kept in memory until [Catalogue.Flush]; one that is older than what is
// known counts for nothing.
func (c *Catalogue) Contact(server string, latency time.Duration, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if server != "" && at.After(c.contacts[server].at) {
		c.contacts[server] = contact{at: at, latency: max(latency, 0)}
	}
}

// Flush writes the contacts that are newer than the rows, in one commit without a
// record: they say nothing that the records of their operations do not. What could
// not be written is written the next time. Without news it does nothing.
func (c *Catalogue) Flush(ctx context.Context) error {
	news := c.unwritten()
	if len(news) == 0 {
		return nil
	}
	err := c.store.Commit(ctx, func(tx *store.Tx) error {
		for server, news := range news {
			if err := news.keep(tx, server); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.Failure("catalogue.Flush", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for server, news := range news {
		if c.contacts[server] == news { // else there is a newer one by now
			news.written = true
			c.contacts[server] = news
		}
	}
	return nil
}

func (c *Catalogue) unwritten() map[string]contact {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := map[string]contact{}
	for server, known := range c.contacts {
		if !known.written {
			news[server] = known
		}
	}
	return news
}

func (k contact) keep(tx *store.Tx, server string) error {
	_, err := tx.Exec(`INSERT INTO servers (server, contact, latency) VALUES (?, ?, ?)
		ON CONFLICT (server) DO UPDATE SET contact = excluded.contact, latency = excluded.latency
		WHERE servers.contact < excluded.contact`, server, store.Nanoseconds(k.at), int64(k.latency))
	return err
}

// withContacts puts what is newer in memory into a list of rows, and the list in its order.
func (c *Catalogue) withContacts(list []Server) []Server {
	news := c.unwritten()
	for i, s := range list {
		if known, ok := news[s.Name]; ok && known.at.After(s.Contact) {
			list[i].Contact, list[i].Latency = known.at.UTC(), known.latency
		}
		delete(news, s.Name)
	}
	for server, known := range news {
		list = append(list, Server{Name: server, Status: NeverImported, Contact: known.at.UTC(), Latency: known.latency})
	}
	slices.SortFunc(list, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// A Probe is what a server answered when it was asked whether it is there. What it
// says of itself may be anything.
type Probe struct {
	Is      string       // the word of package mcpclient for how the server is
	Reason  fault.Reason // None: it answered, and the rest says what; else the rest is not looked at
	Latency time.Duration
	Era     policy.Era
	Version string // of the protocol, as the server chose

	Software        string
	SoftwareVersion string
}

// Probed writes how a probe ended. A good one is a contact, too. One in vain leaves
// what is known of the server, and what its last import said.
func (c *Catalogue) Probed(ctx context.Context, server string, p Probe, rec audit.Record) error {
	rec = c.stamped(rec, audit.Probe, server)
	rec.Reason = p.Reason
	err := c.store.Commit(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(`INSERT INTO servers (server, liveness, probe, probed) VALUES (?, ?, ?, ?)
			ON CONFLICT (server) DO UPDATE SET liveness = excluded.liveness, probe = excluded.probe, probed = excluded.probed`,
			server, p.Is, string(p.Reason), store.Nanoseconds(rec.Time))
		if err != nil || p.Reason != fault.None {
			return err
		}
		if _, err := tx.Exec(`UPDATE servers SET era = ?, version = ?, software = ?, software_version = ? WHERE server = ?`,
			string(p.Era), Cleaned(p.Version), Cleaned(p.Software), Cleaned(p.SoftwareVersion), server); err != nil {
			return err
		}
		return contact{at: rec.Time, latency: max(p.Latency, 0)}.keep(tx, server)
	}, rec)
	return store.Failure("catalogue.Probed", err)
}

// Cleaned is what a server calls itself or its version: one line of at most a hundred
// characters.
func Cleaned(s string) string {
	const most = 100
	line := []rune(spelled(cut(s, 4*most+3), "")) // no character has more than four bytes
	if len(line) > most {
		return string(line[:most]) + "…"
	}
	return string(line)
}
