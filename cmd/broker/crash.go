//go:build crash

package main

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/store"
)

// This file is in no product build (TestProductCannotCrash). With it the process
// ends with SIGKILL at the moment that an environment variable names, and the
// order of "sending" and the send can be turned round, to see that the tests
// would find it.
const (
	crashAt   = "BROKER_CRASH_AT"   // "sending/committed": kind of a record, moment of its commit
	crashLate = "BROKER_CRASH_LATE" // "50ms": so long after the send "sending" is on disk
)

var moments = map[string]store.Moment{"applying": store.Applying, "committing": store.Committing, "committed": store.Committed}

func tamper(path string, getenv func(string) string) func(store.Moment, []audit.Record) error {
	if text := getenv(crashLate); text != "" {
		late, err := time.ParseDuration(text)
		return sendFirst(path, late, err)
	}
	kind, name, _ := strings.Cut(getenv(crashAt), "/")
	moment, known := moments[name]
	if kind != "" && (!known || !audit.Kind(kind).Known()) {
		panic("there is no such moment")
	}
	return func(at store.Moment, records []audit.Record) error {
		if kind != "" && at == moment && slices.ContainsFunc(records, func(r audit.Record) bool { return string(r.Kind) == kind }) {
			die()
		}
		return nil
	}
}

// die does not return: SIGKILL cannot be caught, and nothing of ours runs after it.
func die() {
	syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// sendFirst puts an operation's row back to "reserved" before its commit is told,
// so that tools/call leaves with that on disk, and to "sending" when late has
// gone by: what a broker leaves that writes down what it has done, not what it
// is about to do.
func sendFirst(path string, late time.Duration, err error) func(store.Moment, []audit.Record) error {
	db, failed := sql.Open("sqlite", "file:"+path+"?_busy_timeout=5000")
	if err != nil || failed != nil {
		panic(fmt.Sprint(err, failed))
	}
	move := func(id, from, to string) error {
		_, err := db.Exec(`UPDATE operations SET state = ? WHERE id = ? AND state = ?`, to, id, from)
		return err
	}
	return func(at store.Moment, records []audit.Record) error {
		for _, r := range records {
			if at != store.Committed || r.Kind != audit.Sending {
				continue
			}
			if err := move(r.Operation, "sending", "reserved"); err != nil {
				return err
			}
			time.AfterFunc(late, func() { move(r.Operation, "reserved", "sending") })
		}
		return nil
	}
}
