// Package broker puts the parts together: it builds them from the ground floor
// up, serves, and stops them in reverse. Programs and tests start a whole
// broker with [New] and [Broker.Serve].
//
// It holds no rule of its own. The map of the parts is docs/architecture.md;
// the path of one operation is package operation.
package broker

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/doctor"
	"onbehalf.internal/broker/exchange"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/session"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/trace/otlp"
	"onbehalf.internal/broker/vault"
)

// Version is what `broker version` prints and what MCP servers are told.
const Version = "0.1.0"

// reloadBudget bounds the commit of a reload.
const reloadBudget = 5 * time.Second

// Config is what a broker needs from the world. Snapshot is needed; a zero
// field elsewhere means the real thing.
type Config struct {
	Snapshot *policy.Snapshot
	Getenv   func(string) string // nil: os.Getenv. Read: VAULT_ADDR, and VAULT_TOKEN with auth method `token`
	Log      *slog.Logger        // nil: JSON lines on standard error
	Now      func() time.Time    // nil: time.Now
	Stdout   io.Writer           // for signed heads, where audit.heads is stdout; nil: os.Stdout

	// For tests: how long the reading of an API request may take, how long a
	// stream is silent, how long an answer waits for the drop of its hold, and how
	// long after the start what an earlier process held in Vault is over; 0: what
	// their packages say.
	ReadTimeout, Heartbeat, DropWait, Leftover time.Duration

	// Tamper breaks commits, for tests; see [store.Config].
	Tamper func(store.Moment, []audit.Record) error
}

// A Broker is a whole broker.
type Broker struct {
	policy    *policy.Holder
	vault     *vault.Client
	store     *store.Store
	keeper    *auditlog.Keeper // nil: heads are not signed
	sink      *auditlog.Sink   // nil: the audit is not copied
	pruner    *auditlog.Pruner // nil: it is kept for ever
	auditors  *auditlog.Reader
	ledger    *ledger.Ledger
	catalogue *catalogue.Catalogue
	runner    *operation.Runner
	sessions  *session.Manager
	metrics   *httpapi.Metrics
	traces    *otlp.Exporter // nil: none are made
	api       net.Listener
	expose    net.Listener // metrics; nil: not asked for
	log       *slog.Logger
	now       func() time.Time
	getenv    func(string) string
	timeout   time.Duration      // Config.ReadTimeout
	beat      time.Duration      // Config.Heartbeat
	leftover  time.Duration      // Config.Leftover
	left      []ledger.Operation // whose holds earlier processes left pending

	draining atomic.Bool
	patience context.Context // ends with Hasten
	hasten   context.CancelFunc
}

// New opens the store, recovers what an earlier process left open, and listens.
// It does not need Vault to be there: see [Broker.Ready].
func New(ctx context.Context, c Config) (*Broker, error) {
	if c.Getenv == nil {
		c.Getenv = os.Getenv
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	b := &Broker{policy: policy.NewHolder(c.Snapshot), log: c.Log, now: c.Now, getenv: c.Getenv,
		timeout: c.ReadTimeout, beat: c.Heartbeat, leftover: cmp.Or(c.Leftover, vault.Leftover)}
	b.patience, b.hasten = context.WithCancel(context.WithoutCancel(ctx))
	if err := b.build(ctx, c); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *Broker) build(ctx context.Context, c Config) (err error) {
	if b.vault, err = newVault(c); err != nil {
		return err
	}
	if b.store, err = store.Open(ctx, store.Config{Path: c.Snapshot.Store.Path, Now: c.Now, Tamper: c.Tamper}); err != nil {
		return err
	}
	box, err := b.resultsBox(c.Snapshot.Keys.Results)
	if err != nil {
		return err
	}
	if err := b.guardAudit(ctx, c); err != nil {
		return err
	}
	b.auditors = auditlog.NewReader(b.store, c.Now)
	b.ledger = ledger.New(b.store, ledger.Config{Now: c.Now, Box: box, Keep: ledger.Retention{Results: c.Snapshot.Store.Results, Keys: c.Snapshot.Store.Keys}})
	if err := b.recover(ctx); err != nil {
		return err
	}
	if b.left, err = b.ledger.Pending(ctx); err != nil {
		return err
	}
	mcp := mcpclient.New(mcpclient.Config{Name: "onbehalf-broker", Version: Version, Now: c.Now})
	b.catalogue = catalogue.New(b.store, c.Now)
	b.sessions = session.NewManager(b.vault, exchange.New(c.Now), b.policy, c.Now)
	b.metrics = httpapi.NewMetrics(func() int { return b.runner.Running() }, b.vault.Stats, b.servers)
	if b.sink != nil {
		b.metrics.Sink(b.sink.Behind)
	}
	run := operation.Config{Ledger: b.ledger, Policy: b.policy, Sessions: b.sessions, MCP: mcp, Catalogue: b.catalogue,
		Now: c.Now, Log: c.Log, Ended: b.metrics.Ended, Late: b.metrics.Late, DropWait: c.DropWait}
	if b.traces, err = newTraces(c.Snapshot.Traces); err != nil {
		return err
	}
	if b.traces != nil {
		b.metrics.Traces(b.traces.Sent, b.traces.Dropped)
		run.Traced, run.Propagate = b.traces.Operation, c.Snapshot.Traces.Propagate
	}
	b.runner = operation.New(run)
	standing, err := b.ledger.Suspensions(ctx, c.Now())
	if err != nil {
		return err
	}
	b.policy.Restore(standing, c.Now())
	if err := b.runner.Offer(ctx); err != nil {
		return err
	}
	if b.api, err = httpapi.Listen(c.Snapshot.Listen.API); err != nil {
		return err
	}
	if c.Snapshot.Listen.Metrics != "" {
		b.expose, err = httpapi.Listen(c.Snapshot.Listen.Metrics)
	}
	return err
}

// recover says in the audit and in the log what was found, before it closes what
// was left open.
func (b *Broker) recover(ctx context.Context) error {
	id, since := b.store.Ledger()
	found := b.store.Opening()
	err := b.store.Commit(ctx, nil, audit.Record{Kind: audit.Start, Time: b.now(), Snapshot: b.policy.Current().Hash,
		Started: &audit.Started{Version: Version, Ledger: id, Former: found.Former, Clean: found.Clean, Previous: b.store.Head().Place()}})
	if err != nil {
		return err
	}
	notSent, inDoubt, err := b.ledger.Recover(ctx)
	if err == nil {
		b.log.Info("ledger opened", "ledger", id, "since", since, "former", found.Former, "clean", found.Clean, "not_sent", notSent, "in_doubt", inDoubt)
	}
	return err
}

func newVault(c Config) (*vault.Client, error) {
	v := c.Snapshot.Vault
	if v.Address == "" {
		v.Address = c.Getenv("VAULT_ADDR")
	}
	if v.Address == "" {
		return nil, errors.New("vault.address is not set, and neither is VAULT_ADDR")
	}
	conf := vault.Config{Address: v.Address, Namespace: v.Namespace, CA: v.CA, Auth: v.Auth, Role: v.Role, PerOperation: v.PerOperation, Now: c.Now, Log: c.Log}
	if v.Auth.Method == "token" {
		if conf.Token = secret.New(c.Getenv("VAULT_TOKEN")); conf.Token.IsZero() {
			return nil, errors.New("vault.auth.method is token: set VAULT_TOKEN")
		}
	}
	return vault.New(conf)
}

// servers are the declared servers for the metrics; none where the store cannot be read.
func (b *Broker) servers() []httpapi.Server {
	ctx, cancel := context.WithTimeout(context.Background(), recordBudget)
	defer cancel()
	list, err := httpapi.Servers(ctx, b.policy.Current(), b.catalogue)
	if err != nil {
		b.log.Error("servers not read", "reason", string(fault.ReasonOf(err)))
	}
	return list
}

// Address is where the API listens: "http://127.0.0.1:8471" or "unix:/path".
func (b *Broker) Address() string {
	if b.api.Addr().Network() == "unix" {
		return "unix:" + b.api.Addr().String()
	}
	return "http://" + b.api.Addr().String()
}

// MetricsAddress is where the metrics are, or "" if they were not asked for.
func (b *Broker) MetricsAddress() string {
	if b.expose == nil {
		return ""
	}
	return "http://" + b.expose.Addr().String()
}

// Serve runs until ctx ends, then stops as the configuration's `stop` says: not
// ready; no new operations; the open ones end, or are cut; holds are dropped;
// epochs are revoked; the last record is written; the store is closed.
// [Broker.Hasten] shortens it.
func (b *Broker) Serve(ctx context.Context) error {
	defer b.close()
	api := httpapi.NewServer(b.handler()) // before Vault can make it ready: who waits for that finds all of it there
	api.ReadTimeout = cmp.Or(b.timeout, api.ReadTimeout)
	background, leave := context.WithCancel(context.WithoutCancel(ctx))
	vaultDone := make(chan error, 1)
	go func() { vaultDone <- b.vault.Run(background) }()
	var upkeep sync.WaitGroup
	upkeep.Go(func() { b.expire(background) })
	upkeep.Go(func() { b.prune(background) })
	upkeep.Go(func() { b.flush(background) })

	go b.sweep(background)
	watching, unwatch := context.WithCancel(background)
	watched := make(chan struct{})
	lastOfAudit := b.keepAudit(background)
	go func() { b.watch(watching); close(watched) }()

	failed := make(chan error, 2)
	servers := []*http.Server{api}
	go func() { failed <- api.Serve(b.api) }()
	if b.expose != nil {
		metrics := httpapi.NewServer(b.metrics.Handler())
		servers = append(servers, metrics)
		go func() { failed <- metrics.Serve(b.expose) }()
	}
	b.log.Info("serving", "api", b.Address(), "snapshot", b.policy.Current().Hash)

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	unwatch()
	counts := b.drain(servers)
	<-watched
	leave()
	upkeep.Go(b.closeTraces)
	<-vaultDone
	upkeep.Wait()
	b.closeLedger(&counts, lastOfAudit)
	b.log.Info("stopped", "ended", counts.Ended, "cut", counts.Cut, "left", counts.Left, "holds", counts.Holds)
	return err
}

const (
	sweepEvery = time.Minute
	sweepPause = 25 * time.Millisecond // between two chunks of one sweep: writers come first
)

// sweep removes what the ledger has kept long enough.
func (b *Broker) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		wait := sweepEvery
		switch more, err := b.ledger.Sweep(ctx); {
		case err != nil && ctx.Err() == nil:
			b.log.Warn("sweep failed", "reason", string(fault.ReasonOf(err)))
		case more:
			wait = sweepPause
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// expire records that what earlier processes held in Vault is over, when it is.
func (b *Broker) expire(ctx context.Context) {
	if err := b.ledger.Expire(ctx, b.left, b.leftover); err != nil && ctx.Err() == nil {
		b.log.Error("drop not written", "holds", len(b.left), "reason", string(fault.ReasonOf(err)))
	}
}

// handler is the API, the page and the façade, without their listener.
func (b *Broker) handler() http.Handler {
	var hosts []string
	if b.api.Addr().Network() != "unix" {
		hosts = httpapi.LoopbackHosts(b.api.Addr())
	}
	return b.withFacade(b.withPage(httpapi.New(httpapi.Config{Runner: b.runner, Policy: b.policy, Ledger: b.store.Ledger, Rows: b.ledger, Catalogue: b.catalogue, Ready: b.Ready,
		Grants:   b.grants(),
		Doctor:   &doctor.Doctor{Policy: b.policy, Runner: b.runner, Vault: b.vault, Store: b.store, Getenv: b.getenv, Now: b.now},
		Auditors: b.auditors, Hosts: hosts, Metrics: b.metrics, Log: b.log, Now: b.now, Heartbeat: b.beat})))
}

func (b *Broker) grants() *grants.Reader {
	return &grants.Reader{Policy: b.policy, Ledger: b.ledger, Vault: b.vault, Now: b.now}
}

// Ready is nil when an operation could run now; else it says what is missing.
func (b *Broker) Ready() error {
	if b.draining.Load() {
		return fault.New("broker.Ready", fault.Draining, "")
	}
	if err := b.store.Err(); err != nil {
		return err
	}
	return b.vault.Ready()
}

// WaitReady waits until Ready is nil, or for ctx.
func (b *Broker) WaitReady(ctx context.Context) error { return b.vault.WaitReady(ctx) }

// Reload reads the configuration again and swaps it in whole. After an error the old
// snapshot stays. What a process is built on (listen, vault, store, keys, audit, ui, mcp, traces) cannot be reloaded.
func (b *Broker) Reload() error {
	old := b.policy.Current()
	fresh, err := policy.Load(old.Path)
	if err != nil {
		b.log.Error("reload refused", "why", "the file has problems", "snapshot", old.Hash)
		return err
	}
	if !sameFoundation(old, fresh) {
		b.log.Error("reload refused", "why", "listen, vault, store, keys, audit, ui, mcp or traces changed", "snapshot", old.Hash)
		return errors.New("listen, vault, store, keys, audit, ui, mcp and traces cannot be reloaded: restart the broker")
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadBudget)
	defer cancel()
	// On disk before it takes effect, as every decision is.
	err = b.store.Commit(ctx, nil, audit.Record{Kind: audit.Reload, Time: b.now(), Snapshot: fresh.Hash})
	if err != nil {
		return err
	}
	b.policy.Swap(fresh)
	b.log.Info("reloaded", "snapshot", fresh.Hash, "before", old.Hash)
	return nil
}

func sameFoundation(a, b *policy.Snapshot) bool {
	va, vb := a.Vault, b.Vault
	ca, cb := va.CA, vb.CA
	va.CA, vb.CA = nil, nil
	return a.Listen == b.Listen && equal(a.UI, b.UI) && equal(a.MCP, b.MCP) && equalTraces(a.Traces, b.Traces) && a.Store == b.Store && a.Audit == b.Audit && a.Keys.Audit == b.Keys.Audit && slices.Equal(a.Keys.Results, b.Keys.Results) && va == vb && equalPools(ca, cb)
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func equalTraces(a, b *policy.Traces) bool {
	return a == nil && b == nil || a != nil && b != nil && *a.Collector == *b.Collector && equalPools(a.CA, b.CA) && a.Bearer == b.Bearer && a.Propagate == b.Propagate
}

func equalPools(a, b *x509.CertPool) bool { return a == nil && b == nil || a != nil && a.Equal(b) }

// close releases what is open, in reverse order of build.
func (b *Broker) close() {
	b.closeTraces() // where nothing was served
	for _, l := range []net.Listener{b.expose, b.api} {
		if l != nil {
			l.Close()
		}
	}
	if b.store != nil {
		b.store.Close()
	}
}
