// Package ocsf writes audit records as events of the Open Cybersecurity Schema
// Framework, version 1.3.0 (https://schema.ocsf.io/1.3.0).
//
// What always holds: a record is one event, of a class that docs/audit.md names for
// its kind; a member of the record stands either in a field of that class or, as it
// was, under unmapped. Nothing is made up for a field that the record does not know,
// also where the class asks for one. The events are no chain.
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

const version = "1.3.0"

// A class is what a kind of record is an event of.
type class struct{ category, uid, activity int }

const other = 99 // an activity, or a status, that the class has no number for

var (
	apiActivity = class{6, 6003, other}
	unknown     = class{0, 0, other} // Base Event
)

// classes are those of the kinds that are not apiActivity.
var classes = map[audit.Kind]class{
	audit.Decision:  {3, 3003, 1}, // Authorize Session: Assign Privileges
	audit.Start:     {6, 6002, 3}, // Application Lifecycle: Start
	audit.Stop:      {6, 6002, 4}, // Stop
	audit.Reload:    {6, 6002, 8}, // Update
	audit.Recovery:  unknown,
	audit.Retention: unknown,
	audit.Read:      {6, 6003, 2}, // API Activity: Read
	audit.Import:    {6, 6003, 2},
	audit.Probe:     {6, 6003, 2},
	audit.Drop:      {6, 6003, 4}, // Delete
}

// classOf returns the class of a record. Of what can be suspended an actor alone is
// an account.
func classOf(kind audit.Kind, actor string) class {
	c, known := classes[kind]
	switch {
	case kind == audit.Suspension && actor != "":
		return class{3, 3001, 5} // Account Change: Disable
	case kind == audit.Lifting && actor != "":
		return class{3, 3001, 2} // Enable
	case known:
		return c
	}
	return apiActivity
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
	State    string      `json:"status,omitempty"`
	Detail   string      `json:"status_detail,omitempty"`
	Count    int         `json:"count,omitempty"`
	Metadata metadata    `json:"metadata"`
	App      *named      `json:"app,omitempty"`
	Actor    *actor      `json:"actor,omitempty"`
	User     *uid        `json:"user,omitempty"`
	Rights   []string    `json:"privileges,omitempty"`
	API      *api        `json:"api,omitempty"`
	Source   *named      `json:"src_endpoint,omitempty"`
	Target   *named      `json:"dst_endpoint,omitempty"`
	Tools    []named     `json:"resources,omitempty"`
	Rest     leftMembers `json:"unmapped,omitempty"`
}

type (
	uid struct {
		UID string `json:"uid"`
	}
	actor struct {
		User uid `json:"user"`
	}
	api struct {
		Operation string `json:"operation"`
	}
	named struct {
		Name string `json:"name"`
		Type string `json:"type,omitempty"`
	}
	metadata struct {
		Version     string     `json:"version"`
		Product     named      `json:"product"`
		UID         string     `json:"uid"`
		Sequence    uint64     `json:"sequence"`
		Code        audit.Kind `json:"event_code"`
		Correlation string     `json:"correlation_uid,omitempty"`
		Original    string     `json:"original_time"`
	}
	leftMembers map[string]json.RawMessage
)

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

// eventOf maps a record. What it has no field for is left.
func eventOf(left leftMembers) event {
	kind, who, caller := take[audit.Kind](left, "kind"), take[string](left, "actor"), take[string](left, "caller")
	original := take[string](left, "time")
	at, _ := time.Parse(time.RFC3339Nano, original)
	c := classOf(kind, who)
	e := event{Class: c.uid, Category: c.category, Activity: c.activity, Type: c.uid*100 + c.activity, Severity: 1, Time: at.UnixMilli(),
		State: take[string](left, "state"), Detail: take[string](left, "reason"), Count: take[int](left, "count"),
		Source: name(caller), Target: name(take[string](left, "server")), Rest: left,
		Metadata: metadata{version, named{Name: "onbehalf-broker"}, take[string](left, "hash"), take[uint64](left, "seq"), kind, take[string](left, "operation"), original}}
	e.Status = statusOf(kind, e.Detail, fault.State(e.State))
	if c.activity == other {
		e.Name = string(kind)
	}
	if tool := name(take[string](left, "tool")); tool != nil {
		tool.Type = "tool"
		e.Tools = []named{*tool}
	}
	switch c.uid {
	case 3001: // who did it, and to whom
		e.Actor, e.User = user(caller), id(who)
	case 3003:
		e.Actor, e.User, e.Rights = user(caller), id(who), take[[]string](left, "scopes")
	case 6002:
		e.App = name("onbehalf-broker")
	case 6003:
		e.Actor, e.API = user(cmp.Or(who, caller)), &api{string(kind)}
	}
	return e
}

func name(s string) *named {
	if s == "" {
		return nil
	}
	return &named{Name: s}
}

func id(s string) *uid {
	if s == "" {
		return nil
	}
	return &uid{s}
}

func user(s string) *actor {
	if s == "" {
		return nil
	}
	return &actor{uid{s}}
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
