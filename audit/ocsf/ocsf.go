// Package ocsf writes audit records as events of the Open Cybersecurity Schema
// Framework, version 1.3.0 (https://schema.ocsf.io/1.3.0).
//
// What always holds: a record is one event, of a class that docs/audit.md names for
// its kind, and the event is valid under that class as it was published. A member of
// the record stands either in a field of the class or, as it was, under unmapped.
// Nothing is made up for a field that the record does not know: where the class asks
// for one, the record is an event of a class that does not. The events are no chain.
package ocsf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
)

const (
	version = "1.3.0"
	product = "onbehalf-broker" // its vendor too: nobody else makes it
)

// A class is what a kind of record is an event of.
type class struct{ uid, activity int }

const other = 99 // an activity, or a status, that the class has no number for

const (
	baseEvent            = 0
	accountChange        = 3001
	authorizeSession     = 3003
	applicationLifecycle = 6002
	apiActivity          = 6003
)

// classes are those of the kinds that are not always API Activity: Other.
var classes = map[audit.Kind]class{
	audit.Decision:   {authorizeSession, 1}, // Assign Privileges
	audit.Suspension: {accountChange, 5},    // Disable
	audit.Lifting:    {accountChange, 2},    // Enable
	audit.Start:      {applicationLifecycle, 3},
	audit.Stop:       {applicationLifecycle, 4},
	audit.Reload:     {applicationLifecycle, 8}, // Update
	audit.Recovery:   {baseEvent, other},
	audit.Retention:  {baseEvent, other},
	audit.Read:       {apiActivity, 2}, // Read
	audit.Import:     {apiActivity, 2},
	audit.Probe:      {apiActivity, 2},
	audit.Drop:       {apiActivity, 4}, // Delete
}

// classOf returns the class of a record. Of what can be suspended an actor alone is
// an account, and without scopes no privilege is assigned.
func classOf(kind audit.Kind, left leftMembers) class {
	c, known := classes[kind]
	if !known || c.uid == accountChange && !left.has("actor") || c.uid == authorizeSession && !(left.has("actor") && left.has("scopes")) {
		return class{apiActivity, other}
	}
	return c
}

// An event has the fields of the classes above that a record can fill.
type event struct {
	Class    int         `json:"class_uid"`
	Category int         `json:"category_uid"`
	Activity int         `json:"activity_id"`
	Name     string      `json:"activity_name,omitempty"`
	Type     int         `json:"type_uid"`
	Severity int         `json:"severity_id"`
	Time     int64       `json:"time"`
	Status   int         `json:"status_id"`
	Code     string      `json:"status_code,omitempty"`
	Detail   string      `json:"status_detail,omitempty"`
	Count    int         `json:"count,omitempty"`
	Metadata metadata    `json:"metadata"`
	App      *app        `json:"app,omitempty"`
	Actor    *actor      `json:"actor,omitempty"`
	User     *user       `json:"user,omitempty"`
	Rights   []string    `json:"privileges,omitempty"`
	API      *api        `json:"api,omitempty"`
	Source   *endpoint   `json:"src_endpoint,omitempty"`
	Target   *endpoint   `json:"dst_endpoint,omitempty"`
	Tools    []resource  `json:"resources,omitempty"`
	Rest     leftMembers `json:"unmapped,omitempty"`
}

type (
	user struct {
		UID string `json:"uid"`
	}
	actor struct {
		User *user  `json:"user,omitempty"`
		App  string `json:"app_name,omitempty"`
	}
	api struct {
		Operation string `json:"operation"`
	}
	app struct {
		Name   string `json:"name"`
		Vendor string `json:"vendor_name"`
	}
	endpoint struct {
		Name    string `json:"name,omitempty"`
		Service string `json:"svc_name,omitempty"`
	}
	resource struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	metadata struct {
		Version     string     `json:"version"`
		Product     app        `json:"product"`
		UID         string     `json:"uid"`
		Sequence    uint64     `json:"sequence"`
		Code        audit.Kind `json:"event_code"`
		Correlation string     `json:"correlation_uid,omitempty"`
		Original    string     `json:"original_time"`
	}
	leftMembers map[string]json.RawMessage
)

func (left leftMembers) has(name string) bool { _, ok := left[name]; return ok }

// take returns a member of the record, which then is not among what is left.
func take[T any](left leftMembers, name string) (v T) {
	if raw, ok := left[name]; ok && json.Unmarshal(raw, &v) == nil {
		delete(left, name)
	}
	return v
}

// Write writes exported lines as events, a line each.
func Write(out io.Writer, lines []byte) error {
	for line := range bytes.Lines(lines) {
		var left leftMembers
		if err := json.Unmarshal(line, &left); err != nil {
			return errors.New("a line of the audit is not JSON")
		}
		text, err := json.Marshal(eventOf(left))
		if err != nil {
			return err
		}
		if _, err := out.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// eventOf maps a record. What its class has no field for is left.
func eventOf(left leftMembers) event {
	kind, original := take[audit.Kind](left, "kind"), take[string](left, "time")
	at, _ := time.Parse(time.RFC3339Nano, original)
	c := classOf(kind, left)
	e := event{Class: c.uid, Category: c.uid / 1000, Activity: c.activity, Type: c.uid*100 + c.activity, Severity: 1, Time: at.UnixMilli(),
		Code: take[string](left, "state"), Detail: take[string](left, "reason"), Count: take[int](left, "count"), Rest: left,
		Metadata: metadata{version, app{product, product}, take[string](left, "hash"), take[uint64](left, "seq"), kind, take[string](left, "operation"), original}}
	e.Status = statusOf(kind, e.Detail, fault.State(e.Code))
	if c.activity == other {
		e.Name = string(kind)
	}
	switch c.uid {
	case accountChange:
		caller := take[string](left, "caller")
		e.Actor, e.User, e.Source = actorOf(caller), &user{take[string](left, "actor")}, from(caller)
	case authorizeSession:
		e.User, e.Rights = &user{take[string](left, "actor")}, take[[]string](left, "scopes")
		e.Source, e.Target = from(take[string](left, "caller")), to(take[string](left, "server"))
	case applicationLifecycle:
		e.App = &app{product, product}
	case apiActivity:
		who, through := doer(left)
		e.API, e.Actor, e.Source, e.Target = &api{string(kind)}, actorOf(who), from(through), to(take[string](left, "server"))
		if tool := take[string](left, "tool"); tool != "" {
			e.Tools = []resource{{tool, "tool"}}
		}
	}
	return e
}

// doer says who did what a record speaks of, and through which caller. A person who
// decides about an operation, or reads, is in a member of its own; caller and actor
// are then those of the operation, and left.
func doer(left leftMembers) (who, through string) {
	var person struct{ Subject, By, Person string }
	for _, member := range []string{"approval", "resolution", "reading"} {
		if left.has(member) {
			_ = json.Unmarshal(left[member], &person) // what is no record of ours names nobody
		}
	}
	if person.By != "" {
		return cmp.Or(person.Subject, person.By), person.By
	}
	caller := take[string](left, "caller")
	if person.Person != "" {
		return person.Person, caller
	}
	return cmp.Or(take[string](left, "actor"), caller), caller
}

// actorOf is who did it: nobody means the broker, by its schedule.
func actorOf(who string) *actor {
	if who == "" {
		return &actor{App: product}
	}
	return &actor{User: &user{who}}
}

// from is the caller, or the broker itself.
func from(caller string) *endpoint {
	if caller == "" {
		return &endpoint{Service: product}
	}
	return &endpoint{Name: caller}
}

func to(server string) *endpoint {
	if server == "" {
		return nil
	}
	return &endpoint{Name: server}
}

// statusOf says how what the record speaks of went: 1 well, 2 not, 0 nobody knows.
func statusOf(kind audit.Kind, reason string, state fault.State) int {
	switch {
	case state == fault.InDoubt:
		return 0
	case state != "" && state != fault.Succeeded && (kind == audit.Outcome || kind == audit.Late), reason != "", kind == audit.Denial:
		return 2
	}
	return 1
}
