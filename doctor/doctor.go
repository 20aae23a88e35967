// Package doctor looks whether a running broker has what it needs, and no more: its
// configuration, its database and disk, its clock, its place in Vault, its identity
// providers, the servers, and what stands on the way to them. For each it says what is
// wrong and what to type.
//
// It looks from where the broker stands: by its login, its trust in certificates, its
// way out of the host.
//
// What always holds:
//
//   - Nobody's credential is used. A provider is asked by a dry exchange, a server by
//     a probe, Vault by a hold of nobody's token; each is in the audit where the
//     path of an operation has it there.
//   - A finding has words of ours and of the configuration. What a peer says of itself
//     is quoted, or recognised from a closed list.
//   - What could not be looked at is not well.
//
// It does not look whether each grant's credential is there (grants.Reader.Orphaned
// does), and cannot see what stands between a gateway and the broker: that is looked at
// from the gateway's side, see [Signs].
package doctor

import (
	"context"
	"sync"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/vault"
)

// A State is a word for how something is.
type State string

const (
	OK    State = "ok"
	Note  State = "note"  // nothing is wrong; worth knowing
	Wrong State = "wrong" // or could not be looked at
)

// A Finding is one thing that was looked at.
type Finding struct {
	About string `json:"about"` // "vault login", "server records"
	State State  `json:"state"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"` // what to type or to change, in lines
}

func ok(about, says string) Finding        { return Finding{about, OK, says, ""} }
func note(about, says, do string) Finding  { return Finding{about, Note, says, do} }
func wrong(about, says, do string) Finding { return Finding{about, Wrong, says, do} }

// A Doctor examines the broker that these are parts of.
type Doctor struct {
	Policy *policy.Holder
	Runner *operation.Runner
	Vault  *vault.Client
	Store  *store.Store
	Getenv func(string) string
	Now    func() time.Time

	busy sync.Mutex // one examination at a time
}

// most bounds an examination. What was not begun by then is not looked at.
const most = 90 * time.Second

// Examine looks at everything, by the right of the caller, who is an admin. What takes
// long is done side by side; the findings are in the order of the path of an operation.
// The error is a *fault.Error: another examination is under way.
func (d *Doctor) Examine(ctx context.Context, by identity.Caller) ([]Finding, error) {
	if !d.busy.TryLock() {
		return nil, fault.New("doctor.Examine", fault.ServerBusy, "an examination is under way already; ask again in a moment")
	}
	defer d.busy.Unlock()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	e := &examination{Doctor: d, snapshot: d.Policy.Current(), by: by}
	parts := []part{{"configuration", e.configuration}, {"database", e.store}, {"vault", e.vault}, {"providers", e.providers}, {"servers", e.servers}, {"ways", e.ways}}
	about := func(p part) string { return p.about }
	return each(ctx, len(parts), parts, about, func(ctx context.Context, p part) []Finding { return p.look(ctx) }), nil
}

type part struct {
	about string
	look  func(context.Context) []Finding
}

// An examination is of one snapshot.
type examination struct {
	*Doctor
	snapshot *policy.Snapshot
	by       identity.Caller
}

// few is how many servers and providers are looked at side by side.
const few = 4

// each looks at every one of a list, so many at once, and keeps their order.
func each[T any](ctx context.Context, atOnce int, list []T, about func(T) string, look func(context.Context, T) []Finding) []Finding {
	found := make([][]Finding, len(list))
	room := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, one := range list {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			defer func() {
				if recover() != nil { // it must not end the operations of others
					found[i] = []Finding{wrong(about(one), "not looked at: a defect of the broker's own", "tell those who make it")}
				}
			}()
			if ctx.Err() != nil {
				found[i] = []Finding{wrong(about(one), "not looked at: the time for an examination was over", "ask again when the others are well")}
				return
			}
			found[i] = look(ctx, one)
		})
	}
	all.Wait()
	var findings []Finding
	for _, f := range found {
		findings = append(findings, f...)
	}
	return findings
}
