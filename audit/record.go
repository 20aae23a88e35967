// Package audit is the record of what was decided and what became of it, and
// the chain that shows when somebody changed it.
//
// A [Record] becomes one line of JSON, [Record.Canonical], that carries the
// hash of the line before it. [Evidence.Verify] reads exported lines offline and
// names the first one that is not as it was written.
//
// What always holds:
//
//   - A line is ASCII without control characters, so that no name in it can
//     forge a second line or move a terminal's cursor.
//   - A record has no member for arguments, results, tokens or text of a
//     server, but the names of its tools: digests and words of closed lists
//     stand for them. The one free text is a person's own: why something was
//     suspended or approved, or what shows whether a call in doubt ran.
//   - Names that may come from a refused request are cut at 256 bytes. Of the
//     tools that an import found, 64 of a sort are named and the rest counted.
//
// The chain alone does not show that its end was cut off, or that all of it was
// written anew. That takes [Evidence] that was kept elsewhere: a [Head], or signed
// ones, each a [Checkpoint] of the Merkle [Tree] over the same lines.
//
// This package does not store records (package store does, in the same commit
// as the rows they speak of) and does not decide when a head is signed (package
// auditlog does).
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"onbehalf.internal/broker/fault"
)

// Version is the member "v" of every line. A member may be added under the
// same version; one that changes its meaning needs the next.
const Version = 1

// A Kind says what a record speaks of.
type Kind string

const (
	Start    Kind = "start"    // a broker has opened the ledger
	Decision Kind = "decision" // an operation was allowed and begun
	Denial   Kind = "denial"   // a request was refused; nothing was begun
	Sending  Kind = "sending"  // from here on tools/call may have left
	Outcome  Kind = "outcome"  // how an operation ended
	Late     Kind = "late"     // an answer came after its operation was cut off, and is its outcome now
	Drop     Kind = "drop"     // what became of a hold, and of a legacy server's session
	Reload   Kind = "reload"   // another snapshot is in force, or was refused
	Recovery Kind = "recovery" // what a dead process left was closed

	Revocation Kind = "revocation" // whether the provider ended an exchanged token
	Retention  Kind = "retention"  // what was kept long enough is gone: results and operations, or records
	Stop       Kind = "stop"       // a broker that was asked to end closes the ledger

	Suspension Kind = "suspension" // an admin has stopped an actor, a server or a profile
	Lifting    Kind = "lifting"    // an admin has ended a suspension
	Resolution Kind = "resolution" // an admin has said whether an operation in doubt ran
	Approval   Kind = "approval"   // a person was asked about a call, or has decided

	Read Kind = "audit_read" // an auditor was let read records of this audit

	Import Kind = "import" // a server was asked for its tools; with a reason: in vain
	Probe  Kind = "probe"  // a server was asked whether it is there; with a reason: in vain

	DryExchange Kind = "dry_exchange" // an identity provider was asked for a token for nobody; with a reason: it is not as it should be
)

var kinds = []Kind{Start, Decision, Denial, Sending, Outcome, Late, Drop, Reload, Recovery, Revocation, Retention, Stop, Suspension, Lifting, Resolution, Approval, Read, Import, Probe, DryExchange}

// Kinds returns the closed list.
func Kinds() []Kind { return slices.Clone(kinds) }

// Known reports whether k is in the closed list.
func (k Kind) Known() bool { return slices.Contains(kinds, k) }

// A Digest stands for something that does not belong in a record: a request
// key, arguments, a token. It is SHA-256 and reads as 64 lower-case hex digits.
type Digest [sha256.Size]byte

// DigestOf returns the Digest of s.
func DigestOf(s string) Digest { return sha256.Sum256([]byte(s)) }

func (d Digest) String() string               { return hex.EncodeToString(d[:]) }
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(d[:], text[:min(len(text), 2*len(d))]); err != nil || n != len(d) || d.String() != string(text) {
		return errors.New("a digest must be 64 lower-case hex digits")
	}
	return nil
}

// A Record is one entry. Empty members are left out of the line.
type Record struct {
	Time       time.Time      `json:"time"` // zero: package store sets it
	Kind       Kind           `json:"kind"`
	Caller     string         `json:"caller,omitempty"`
	Actor      string         `json:"actor,omitempty"`
	Operation  string         `json:"operation,omitempty"`
	Attempt    int            `json:"attempt,omitempty"`
	RequestKey Digest         `json:"request_key,omitzero"`
	Server     string         `json:"server,omitempty"`
	Tool       string         `json:"tool,omitempty"`
	Pin        string         `json:"pin,omitempty"`       // of the tool's definition, as it was offered
	Redefined  *Redefined     `json:"redefined,omitempty"` // why a tool is refused: it is not the one that is pinned
	Arguments  Digest         `json:"arguments,omitzero"`
	Grant      string         `json:"grant,omitempty"`    // file:line
	Snapshot   string         `json:"snapshot,omitempty"` // hash of the configuration
	Profile    string         `json:"profile,omitempty"`
	Audience   string         `json:"audience,omitempty"`
	Scopes     []string       `json:"scopes,omitempty"`   // as granted; before the exchange, and without one, as asked for
	Narrowed   bool           `json:"narrowed,omitempty"` // fewer were granted than were asked for, as the profile permits
	Reason     fault.Reason   `json:"reason,omitempty"`
	State      fault.State    `json:"state,omitempty"`
	Ran        fault.Ran      `json:"ran,omitempty"`
	Evidence   fault.Evidence `json:"evidence,omitempty"`
	Epoch      string         `json:"epoch,omitempty"` // Vault accessor of the epoch, not its token
	Token      Digest         `json:"token,omitzero"`  // fingerprint of the exchanged token, also of one that was refused
	Hold       string         `json:"hold,omitempty"`  // the word of package ledger
	Count      int            `json:"count,omitempty"` // how many more equal denials the record stands for
	Started    *Started       `json:"started,omitempty"`
	Recovered  *Recovered     `json:"recovered,omitempty"`
	Supersedes string         `json:"supersedes,omitempty"` // the operation that this one is the second run of
	Swept      *Swept         `json:"swept,omitempty"`
	Pruned     *Pruned        `json:"pruned,omitempty"`
	Stopped    *Stopped       `json:"stopped,omitempty"`
	Suspended  *Suspended     `json:"suspension,omitempty"`
	Resolved   *Resolved      `json:"resolution,omitempty"`
	Reading    *Reading       `json:"reading,omitempty"`
	Imported   *Imported      `json:"imported,omitempty"`
	Approved   *Approved      `json:"approval,omitempty"`
	Legs       []Leg          `json:"legs,omitempty"`
}

// Started says who has opened what, in a [Start] record.
type Started struct {
	Version string `json:"version"`          // of the broker
	Ledger  string `json:"ledger"`           // the identity of what is in the file
	Former  string `json:"former,omitempty"` // what it was before: the file is a copy, or has lost its last commits
	Clean   bool   `json:"clean"`            // the last broker has closed the file; else every page was checked

	Previous Place `json:"previous,omitzero"` // the record before, as this broker found it; zero: there was none
}

// Recovered counts what a dead process had left, in a [Recovery] record.
type Recovered struct {
	NotSent int `json:"not_sent"` // operations whose tools/call had not left
	InDoubt int `json:"in_doubt"` // operations whose tools/call may have left
	Holds   int `json:"holds"`    // holds that nobody has dropped
}

// Swept counts what has aged out, in a [Retention] record.
type Swept struct {
	Results    int `json:"results"`    // whose operations are "expired" now
	Operations int `json:"operations"` // that are gone, with their keys
}

// Pruned says which records the store has no more, in a [Retention] record, and has
// what those after them are verified with: see [FindCut].
type Pruned struct {
	From uint64 `json:"from"`
	To   Place  `json:"to"`
	Tree []byte `json:"tree"` // of all records up to there, see [Tree.Bytes]
	Head string `json:"head"` // that was signed of them
}

// Stopped counts what was open when a broker was asked to end, in a [Stop] record.
type Stopped struct {
	Ended int `json:"ended"` // operations that ended by themselves
	Cut   int `json:"cut"`   // operations that the broker ended: their cause is broker_stopping
	Left  int `json:"left"`  // operations that the next process closes
	Holds int `json:"holds"` // holds that were not seen to be gone; they go with their epochs
}

// Suspended is what a [Suspension] or [Lifting] record says besides who and what.
type Suspended struct {
	ID    string    `json:"id"`
	Until time.Time `json:"until,omitzero"` // zero: until it is lifted
	Text  string    `json:"text"`           // the admin's own words, why
}

// Resolved is what a [Resolution] record says besides the operation and how it
// stands now.
type Resolved struct {
	By   string `json:"by"`   // the admin; the record's caller is the operation's
	Text string `json:"text"` // the admin's own words, what shows it
}

// Reading is what an auditor was let read, in a [Read] record: the records from
// one to another, or a view, of which the filters let something through.
type Reading struct {
	Person    string    `json:"person,omitempty"` // who has signed in, where the caller is the page
	View      string    `json:"view,omitempty"`   // empty: the records themselves
	From      uint64    `json:"from,omitzero"`
	To        uint64    `json:"to,omitzero"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Actor     string    `json:"actor,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Server    string    `json:"server,omitempty"`
	Tool      string    `json:"tool,omitempty"`
}

// Imported is what an import found, in an [Import] record. The names are those
// that the server calls its tools by, and that package catalogue took.
type Imported struct {
	Tools    int         `json:"tools"`
	Skipped  int         `json:"skipped"`
	Orphaned int         `json:"orphaned"` // now, also those that were before
	New      []string    `json:"new,omitempty"`
	Changed  []Redefined `json:"changed,omitempty"`
	Vanished []string    `json:"vanished,omitempty"`
	Returned []string    `json:"returned,omitempty"`
	More     More        `json:"more,omitzero"`
}

// Redefined says that a tool has another definition than the last time, or than the
// one that is pinned.
type Redefined struct {
	Tool string `json:"tool"`
	Old  string `json:"old"` // pin
	New  string `json:"new"` // pin
}

// More counts those of each list that are not named. [Record.Canonical] sets it.
type More struct {
	New      int `json:"new,omitempty"`
	Changed  int `json:"changed,omitempty"`
	Vanished int `json:"vanished,omitempty"`
	Returned int `json:"returned,omitempty"`
}

const listLimit = 64 // names of a sort; what an import does to one server is seldom more

// bounded returns i as a line shows it.
func (i *Imported) bounded() *Imported {
	if i == nil {
		return nil
	}
	b := *i
	b.New, b.More.New = first(i.New)
	b.Changed, b.More.Changed = first(i.Changed)
	b.Vanished, b.More.Vanished = first(i.Vanished)
	b.Returned, b.More.Returned = first(i.Returned)
	return &b
}

// first returns the first few of all, and how many more there are.
func first[T any](all []T) (few []T, more int) {
	few = all[:min(len(all), listLimit)]
	return few, len(all) - len(few)
}

// Approved is what an [Approval] record says besides the operation, and the
// [Sending] record that has used an approval.
type Approved struct {
	Decision string    `json:"decision"` // asked, approved, denied; used
	Digest   Digest    `json:"digest"`   // of the very call
	Expires  time.Time `json:"expires,omitzero"`
	Issuer   string    `json:"issuer,omitempty"` // who vouched for the person
	Subject  string    `json:"subject,omitempty"`
	By       string    `json:"by,omitempty"`   // through which caller; the record's caller is the operation's
	Text     string    `json:"text,omitempty"` // the person's own words
}

// timeForm has all nine digits of the second, so that lines sort as text.
const timeForm = "2006-01-02T15:04:05.000000000Z07:00"

// Canonical returns the record as one line without its line break: a JSON
// object that begins with seq and prev, in ASCII. Equal arguments give equal
// bytes. prev is [Link] of the line before, zero for seq 1.
func (r Record) Canonical(seq uint64, prev [32]byte) []byte {
	r.Actor, r.Server, r.Tool = clip(r.Actor), clip(r.Server), clip(r.Tool)
	r.Imported = r.Imported.bounded()
	line, err := json.Marshal(struct {
		Seq  uint64 `json:"seq"`
		Prev Digest `json:"prev"`
		V    int    `json:"v"`
		Time string `json:"time"` // stands in for Record.Time, which it hides
		Record
	}{seq, prev, Version, r.Time.UTC().Format(timeForm), r})
	if err != nil {
		panic("broker: internal error: a record that is not JSON: " + err.Error())
	}
	return ascii(line)
}

const nameLimit = 256 // bytes; every name that we accept is shorter

func clip(s string) string {
	if len(s) <= nameLimit {
		return s
	}
	return strings.ToValidUTF8(s[:nameLimit-3], "") + "..."
}

// ascii escapes what JSON lets stand: DEL and everything beyond ASCII.
func ascii(line []byte) []byte {
	if !slices.ContainsFunc(line, func(b byte) bool { return b >= 0x7f }) {
		return line
	}
	out := make([]byte, 0, len(line))
	for _, r := range string(line) {
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r <= math.MaxUint16:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out
}

// legForm is a leg as a line shows it, with milliseconds down to the microsecond.
type legForm struct {
	Leg      string       `json:"leg"`
	BudgetMS float64      `json:"budget_ms"`
	MS       float64      `json:"ms"`
	Reason   fault.Reason `json:"reason,omitempty"`
}

func (l Leg) MarshalJSON() ([]byte, error) {
	return json.Marshal(legForm{l.Name, milliseconds(l.Budget), milliseconds(l.Took), l.Reason})
}

// UnmarshalJSON reads what MarshalJSON wrote; durations come back in whole
// microseconds.
func (l *Leg) UnmarshalJSON(b []byte) error {
	var f legForm
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*l = Leg{Name: f.Leg, Budget: duration(f.BudgetMS), Took: duration(f.MS), Reason: f.Reason}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func duration(ms float64) time.Duration {
	return time.Duration(math.Round(ms*1000)) * time.Microsecond
}
