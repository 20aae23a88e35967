package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// migrations is the schema, oldest first. A migration that has been released
// is never changed: add one. Each runs once, in a transaction of its own.
//
// The SQL is what PostgreSQL takes too, hence BIGINT for times (nanoseconds
// since 1970, UTC) and BYTEA for bytes. One word is SQLite's own: only as INTEGER
// is audit.seq the row's number itself; as BIGINT it would be a second index to
// write with every record.
var migrations = []string{
	`CREATE TABLE meta (
		one     BIGINT PRIMARY KEY CHECK (one = 1),
		ledger  TEXT   NOT NULL,
		since   BIGINT NOT NULL,
		opening TEXT   NOT NULL
	);

	CREATE TABLE audit (
		seq       INTEGER PRIMARY KEY,
		time      BIGINT  NOT NULL,
		kind      TEXT    NOT NULL,
		operation TEXT    NOT NULL,
		line      TEXT    NOT NULL,
		hash      BYTEA   NOT NULL
	);

	CREATE TABLE operations (
		id          TEXT   PRIMARY KEY,
		caller      TEXT   NOT NULL,
		actor       TEXT   NOT NULL,
		request_key TEXT   NOT NULL,
		jti         TEXT   NOT NULL,
		run_id      TEXT   NOT NULL,
		server      TEXT   NOT NULL,
		tool        TEXT   NOT NULL,
		fingerprint BYTEA  NOT NULL,
		arguments   BYTEA  NOT NULL,
		attempt     BIGINT NOT NULL,
		state       TEXT   NOT NULL,
		ran         TEXT   NOT NULL,
		evidence    TEXT   NOT NULL,
		cause       TEXT   NOT NULL,
		deadline    BIGINT NOT NULL,
		created     BIGINT NOT NULL,
		updated     BIGINT NOT NULL,
		legs        TEXT   NOT NULL,
		hold        TEXT   NOT NULL,
		snapshot    TEXT   NOT NULL,
		grant_line  TEXT   NOT NULL,
		profile     TEXT   NOT NULL,
		audience    TEXT   NOT NULL,
		scopes      TEXT   NOT NULL
	);
	CREATE UNIQUE INDEX operations_key ON operations (caller, actor, request_key);
	CREATE UNIQUE INDEX operations_jti ON operations (caller, jti) WHERE jti <> '';
	CREATE INDEX operations_list ON operations (caller, actor, created);
	CREATE INDEX operations_open ON operations (caller, created)
		WHERE state IN ('awaiting_approval', 'reserved', 'sending');
	CREATE INDEX operations_held ON operations (id) WHERE hold = 'held';

	CREATE TABLE results (
		operation TEXT  PRIMARY KEY REFERENCES operations (id),
		body      BYTEA NOT NULL
	);`,
	// What is not over is in one index instead of two: less to write with every commit.
	`DROP INDEX operations_open;
	DROP INDEX operations_held;
	CREATE INDEX operations_live ON operations (caller, created)
		WHERE state IN ('awaiting_approval', 'reserved', 'sending') OR hold = 'held';`,
	// What ages: a result by its own column, an operation by when it was begun.
	`ALTER TABLE operations ADD COLUMN first_sent    BIGINT NOT NULL DEFAULT 0;
	ALTER TABLE operations ADD COLUMN supersedes    TEXT   NOT NULL DEFAULT '';
	ALTER TABLE operations ADD COLUMN superseded_by TEXT   NOT NULL DEFAULT '';
	ALTER TABLE results    ADD COLUMN created       BIGINT NOT NULL DEFAULT 0;
	UPDATE results SET created = (SELECT created FROM operations WHERE id = operation);
	CREATE INDEX results_age    ON results (created);
	CREATE INDEX operations_age ON operations (created);`,
	// What a server that honours keys needs for a doubtful call to be made again.
	`ALTER TABLE operations ADD COLUMN upstream     TEXT   NOT NULL DEFAULT '';
	ALTER TABLE operations ADD COLUMN repeat_until BIGINT NOT NULL DEFAULT 0;
	ALTER TABLE operations ADD COLUMN doubted      BIGINT NOT NULL DEFAULT 0;`,
	// What nobody has seen go from Vault, for the next process; there is seldom any.
	`CREATE INDEX operations_pending ON operations (created) WHERE hold = 'pending';`,
	// A suspension keeps its row when it is lifted or over.
	`CREATE TABLE suspensions (
		id            TEXT   PRIMARY KEY,
		sort          TEXT   NOT NULL,
		name          TEXT   NOT NULL,
		reason        TEXT   NOT NULL,
		suspended_by  TEXT   NOT NULL,
		since         BIGINT NOT NULL,
		until         BIGINT NOT NULL,
		lifted        BIGINT NOT NULL,
		lifted_by     TEXT   NOT NULL,
		lifted_reason TEXT   NOT NULL
	);
	CREATE INDEX suspensions_standing ON suspensions (since) WHERE lifted = 0;`,
	// What an admin has said of an operation in doubt, and what waits for that.
	`ALTER TABLE operations ADD COLUMN resolution TEXT NOT NULL DEFAULT '';
	CREATE INDEX operations_doubt ON operations (created)
		WHERE ran = 'unknown' AND state IN ('unknown', 'rpc_error', 'expired');`,
	// Whether the answer came when nobody waited any more.
	`ALTER TABLE operations ADD COLUMN late BIGINT NOT NULL DEFAULT 0;`,
	// How many calls a run has had.
	`CREATE INDEX operations_run ON operations (caller, actor, run_id) WHERE run_id <> '';`,
	// What servers said they offer. Nothing is deleted: a name stays its server's,
	// and a definition can be looked at after it has changed.
	`CREATE TABLE servers (
		server           TEXT   PRIMARY KEY,
		status           TEXT   NOT NULL DEFAULT 'never_imported',
		problem          TEXT   NOT NULL DEFAULT '',
		imported         BIGINT NOT NULL DEFAULT 0,
		good             BIGINT NOT NULL DEFAULT 0,
		tools            BIGINT NOT NULL DEFAULT 0,
		contact          BIGINT NOT NULL DEFAULT 0,
		latency          BIGINT NOT NULL DEFAULT 0,
		era              TEXT   NOT NULL DEFAULT '',
		version          TEXT   NOT NULL DEFAULT '',
		software         TEXT   NOT NULL DEFAULT '',
		software_version TEXT   NOT NULL DEFAULT '',
		liveness         TEXT   NOT NULL DEFAULT '',
		probe            TEXT   NOT NULL DEFAULT '',
		probed           BIGINT NOT NULL DEFAULT 0
	);

	CREATE TABLE tools (
		server      TEXT   NOT NULL,
		name        TEXT   NOT NULL,
		local       TEXT   NOT NULL UNIQUE,
		title       TEXT   NOT NULL,
		description TEXT   NOT NULL,
		schema      TEXT   NOT NULL,
		pin         TEXT   NOT NULL,
		since       BIGINT NOT NULL,
		seen        BIGINT NOT NULL,
		orphaned    BIGINT NOT NULL,
		returned    BIGINT NOT NULL,
		PRIMARY KEY (server, name)
	);

	CREATE TABLE definitions (
		server     TEXT   NOT NULL,
		name       TEXT   NOT NULL,
		pin        TEXT   NOT NULL,
		definition TEXT   NOT NULL,
		first_seen BIGINT NOT NULL,
		PRIMARY KEY (server, name, pin)
	);`,
	// Each time that a person is asked about a call; the last one of an operation counts.
	`CREATE TABLE approvals (
		operation  TEXT   NOT NULL REFERENCES operations (id),
		attempt    BIGINT NOT NULL,
		digest     BYTEA  NOT NULL,
		arguments  BYTEA  NOT NULL,
		pin        TEXT   NOT NULL,
		requested  BIGINT NOT NULL,
		expires    BIGINT NOT NULL,
		decision   TEXT   NOT NULL,
		issuer     TEXT   NOT NULL,
		subject    TEXT   NOT NULL,
		admin      BIGINT NOT NULL,
		jti        TEXT   NOT NULL,
		decided_by TEXT   NOT NULL,
		reason     TEXT   NOT NULL,
		decided    BIGINT NOT NULL,
		consumed   BIGINT NOT NULL,
		PRIMARY KEY (operation, attempt)
	);
	CREATE UNIQUE INDEX approvals_jti ON approvals (issuer, jti) WHERE jti <> '';
	CREATE INDEX operations_awaiting ON operations (created) WHERE state = 'awaiting_approval';`,
	// The signed heads of the audit, each with what the tree of the next one goes on from.
	`CREATE TABLE heads (
		size       BIGINT PRIMARY KEY,
		time       BIGINT NOT NULL,
		hash       BYTEA  NOT NULL,
		root       BYTEA  NOT NULL,
		tree       BYTEA  NOT NULL,
		checkpoint TEXT   NOT NULL
	);`,
	// What auditors look for, over all callers. A key is found without them, too, by the
	// index that was there, turned round: none more to write.
	`DROP INDEX operations_key;
	CREATE UNIQUE INDEX operations_key ON operations (request_key, caller, actor);
	CREATE INDEX operations_actor  ON operations (actor, created);
	CREATE INDEX operations_server ON operations (server, created, tool);
	CREATE INDEX operations_failed ON operations (state, created)
		WHERE state IN ('tool_error', 'rpc_error', 'refused', 'not_sent', 'unknown', 'resolved_ran', 'resolved_not_ran');`,
	// How often each grant let an operation begin at each tool. No sweep takes it away.
	`CREATE TABLE uses (
		actor   TEXT   NOT NULL,
		profile TEXT   NOT NULL,
		server  TEXT   NOT NULL,
		tool    TEXT   NOT NULL,
		uses    BIGINT NOT NULL,
		last    BIGINT NOT NULL,
		PRIMARY KEY (actor, profile, server, tool)
	);`,
	// Up to where the audit stands in the file of its sink, and how long that was then;
	// and up to where it is gone from here.
	`CREATE TABLE copied (
		one  BIGINT PRIMARY KEY CHECK (one = 1),
		seq  BIGINT NOT NULL,
		hash BYTEA  NOT NULL,
		size BIGINT NOT NULL
	);

	CREATE TABLE cut (
		one  BIGINT PRIMARY KEY CHECK (one = 1),
		seq  BIGINT NOT NULL,
		hash BYTEA  NOT NULL
	);
	CREATE INDEX heads_age ON heads (time);`,
	// Less to write with every operation: one index of what was for an actor instead of two,
	// and none of what was at a server. Where a condition says IN, SQLite makes a table of
	// the words whenever a row is written, so they are spelled out.
	`DROP INDEX operations_server;
	DROP INDEX operations_list;
	DROP INDEX operations_actor;
	CREATE INDEX operations_actor ON operations (actor, created, caller);
	DROP INDEX operations_live;
	CREATE INDEX operations_live ON operations (caller, created)
		WHERE state = 'awaiting_approval' OR state = 'reserved' OR state = 'sending' OR hold = 'held';
	DROP INDEX operations_doubt;
	CREATE INDEX operations_doubt ON operations (created)
		WHERE ran = 'unknown' AND (state = 'unknown' OR state = 'rpc_error' OR state = 'expired');
	DROP INDEX operations_failed;
	CREATE INDEX operations_failed ON operations (state, created)
		WHERE state = 'tool_error' OR state = 'rpc_error' OR state = 'refused' OR state = 'not_sent'
			OR state = 'unknown' OR state = 'resolved_ran' OR state = 'resolved_not_ran';`,
}

// CountsUses is the migration that made the table uses: what began before it was
// applied is not counted.
const CountsUses = 14

// schema is the number of the last migration that the file has seen; 0: it is
// new. A file that a newer broker has written is refused.
func (w *writer) schema(ctx context.Context) (have int, err error) {
	var there bool
	err = w.conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_schema WHERE name = 'migrations'`).Scan(&there)
	if err == nil && there {
		err = w.conn.QueryRowContext(ctx, `SELECT COALESCE(MAX(number), 0) FROM migrations`).Scan(&have)
	}
	if err == nil && have > len(migrations) {
		err = fmt.Errorf("its schema is number %d, this broker knows %d: a newer one has written it", have, len(migrations))
	}
	return have, err
}

// migrate brings the schema up to date.
func (w *writer) migrate(ctx context.Context, now time.Time) error {
	have, err := w.schema(ctx)
	if err != nil {
		return err
	}
	const table = `CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, applied BIGINT NOT NULL)`
	if _, err := w.conn.ExecContext(ctx, table); err != nil {
		return err
	}
	for number := have + 1; number <= len(migrations); number++ {
		if err := migrateOne(ctx, w.conn, number, now); err != nil {
			return fmt.Errorf("schema %d: %w", number, err)
		}
	}
	return nil
}

func migrateOne(ctx context.Context, conn *sql.Conn, number int, now time.Time) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, migrations[number-1]); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO migrations (number, applied) VALUES (?, ?)`, number, now.UnixNano()); err != nil {
		return err
	}
	return tx.Commit()
}
