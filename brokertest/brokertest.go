// Package brokertest runs a whole broker for tests: the real one, with a dev
// identity provider, two dev MCP servers (one of each protocol era) and a dev
// Vault around it, all on loopback and all breakable.
//
//	func TestOurGateway(t *testing.T) {
//		rig := brokertest.New(t, nil)
//		answer := rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
//		if answer.State != "succeeded" {
//			t.Fatal(answer)
//		}
//	}
//
// A gateway under test gets rig.URL and rig.Bearer. With
// Options{Vault: addr} the same broker runs over a Vault in dev mode whose
// root token is Options.VaultToken or $VAULT_TOKEN; it is set up as
// deploy/vault/setup.sh does it.
//
// Who is there: user:7 may read records and archive, user:8 is known and has no
// grant. At the broker's page user:6 may audit, user:8 approve, user:9 both; user:7 may
// nothing there (page.go). Which tools are there: whoami, slow (argument seconds), fail, drop (does
// its work and drops the connection, or answers of no use as its argument then says:
// 504, cut, late and others) and job (looks up what drop did).
//
// What always holds: nothing leaves the machine, and [Rig.Close] ends all of it.
package brokertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/internal/devidp"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testlog"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
	"onbehalf.internal/broker/store/storetest"
)

// Options change what is started. The zero value works.
type Options struct {
	KeyInVault  bool                     // results are sealed by a key that stays in Vault, see [ResultsKey]
	SignedAudit bool                     // heads of the audit are signed, see [Rig.AuditKey] and [Rig.HeadsPath]
	Vault       string                   // address of a Vault in dev mode; empty: an in-memory one of our own
	VaultToken  string                   // its root token; empty: $VAULT_TOKEN
	API         string                   // where the broker listens; empty: a free loopback port
	Binary      string                   // the program to run as the broker; empty: in this process
	Config      func(yaml string) string // last word on the configuration
	Log         io.Writer                // gets the broker's log besides Rig.Log
	ReadTimeout time.Duration            // of the API, to try it out; 0: the real one
	Heartbeat   time.Duration            // of its streams, the same
	Leftover    time.Duration            // until what an earlier broker held is over; 0: the real one
	Now         func() time.Time         // the broker's clock; nil: time.Now
	Tamper      func(store.Moment, []audit.Record) error
	Dir         string // for configuration and database; empty: a temporary one
}

// dropWait is longer than a busy machine needs for a drop, so that an answer
// says "dropped" wherever nothing is broken.
const dropWait = 3 * time.Second

// A Rig is a running broker and what stands around it.
type Rig struct {
	URL    string // of the broker's API
	Bearer string // of the caller "gateway", which may speak for user:7 and user:8

	Provider *devidp.Provider
	Records  *devmcp.Server   // the server "records": 2026-07-28, stateless
	Archive  *devmcp.Server   // the server "archive": 2025-11-25, sessions
	Vault    *devvault.Server // nil over a real Vault
	Broker   *broker.Broker   // nil with Options.Binary

	AuditKey   string // that verifies heads, with Options.SignedAudit
	Dir        string // configuration and database
	ConfigPath string

	admin     vaultAdmin
	clientKey string
	subjects  []string          // the actors' credentials
	discovery map[string]string // :: audience → the server's discovery credential
	options   Options
	log       testlog.Buffer
	login     string                  // the token that the broker starts with, each time
	process   atomic.Pointer[process] // with Options.Binary
	signer    *ecdsa.PrivateKey
	stop      context.CancelFunc
	served    chan error
	closers   []func() error
}

// New starts a rig that ends with the test.
func New(t testing.TB, o *Options) *Rig {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r, err := Start(t.Context(), *o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Start starts a rig and waits until the broker is ready.
func Start(ctx context.Context, o Options) (*Rig, error) {
	r := &Rig{Dir: o.Dir, Bearer: rand.Text() + rand.Text(), clientKey: "k/" + rand.Text() + "+ %", discovery: map[string]string{}}
	if err := r.start(ctx, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context, o Options) error {
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Log = io.MultiWriter(&r.log, o.Log)
	if o.Binary != "" && o.API == "" {
		var err error
		if o.API, err = freePort(); err != nil {
			return err
		}
	}
	if o.Binary != "" {
		r.URL = "http://" + o.API
	}
	r.options = o
	if r.Dir == "" {
		dir, err := os.MkdirTemp("", "broker")
		if err != nil {
			return err
		}
		r.Dir = dir
		r.closers = append(r.closers, func() error { return os.RemoveAll(dir) })
	}
	if err := r.startCounterparts(o); err != nil {
		return err
	}
	if err := r.fillVault(ctx); err != nil {
		return err
	}
	if err := r.writeConfig(o); err != nil {
		return err
	}
	return r.startBroker(ctx, o)
}

// startCounterparts starts the provider, the two servers and, unless there is
// a real one, the Vault.
func (r *Rig) startCounterparts(o Options) (err error) {
	scopes := map[string][]string{"mcp-records": {"records.read", "records.write"}, "mcp-archive": {"records.read"}}
	r.Provider, err = devidp.Start(devidp.Config{Clients: []devidp.Client{{ID: "broker", Auth: "basic", Secret: r.clientKey, Allow: scopes}}, Users: people})
	if err != nil {
		return err
	}
	r.closers = append(r.closers, r.Provider.Close)
	if r.Records, err = devmcp.Start(devmcp.Options{Verify: r.verify("mcp-records")}); err != nil {
		return err
	}
	r.closers = append(r.closers, r.Records.Close)
	if r.Archive, err = devmcp.Start(devmcp.Options{Verify: r.verify("mcp-archive"), Legacy: true}); err != nil {
		return err
	}
	r.closers = append(r.closers, r.Archive.Close)
	if o.Vault != "" {
		token := o.VaultToken
		if token == "" {
			token = os.Getenv("VAULT_TOKEN")
		}
		r.admin = vaultAdmin{o.Vault, token}
		return nil
	}
	r.Vault = devvault.New(devvault.Options{})
	address, err := r.Vault.Start()
	r.admin = vaultAdmin{address, r.Vault.RootToken()}
	r.closers = append(r.closers, r.Vault.Close)
	return err
}

// Discovery is whom the servers take the broker for when it imports and probes.
const Discovery = "discovery"

// verify is how an MCP server checks a token: with its provider, for its own
// audience. Its discovery credential is its own.
func (r *Rig) verify(audience string) func(string) (devmcp.Identity, error) {
	credential := "discovery-" + rand.Text()
	r.discovery[audience] = credential
	return func(token string) (devmcp.Identity, error) {
		if token == credential {
			return devmcp.Identity{Subject: Discovery, Audience: []string{audience}}, nil
		}
		subject, actor, _, err := r.Provider.Verify(token, audience)
		return devmcp.Identity{Subject: subject, Actor: actor, Audience: []string{audience}}, err
	}
}

// fillVault stores what an operator stores: the actors' credentials, the
// servers' discovery credentials, the broker's own key at the provider.
func (r *Rig) fillVault(ctx context.Context) error {
	if err := r.admin.setUp(ctx); err != nil {
		return err
	}
	if r.options.KeyInVault {
		if err := r.admin.makeResultsKey(ctx); err != nil {
			return err
		}
	}
	r.subjects = []string{r.Provider.Mint("user:7", time.Hour), r.Provider.Mint("user:8", time.Hour)}
	for path, value := range map[string]string{
		"broker/subjects/7":        r.subjects[0],
		"broker/subjects/8":        r.subjects[1],
		"broker/discovery/records": r.discovery["mcp-records"],
		"broker/discovery/archive": r.discovery["mcp-archive"],
		"broker/client":            r.clientKey,
	} {
		if err := r.SetCredential(ctx, path, value); err != nil {
			return err
		}
	}
	return nil
}

// SetCredential stores a value as vault:kv/<path>#value.
func (r *Rig) SetCredential(ctx context.Context, path, value string) error {
	return r.admin.put(ctx, "kv/data/"+path, map[string]any{"data": map[string]string{"value": value}})
}

func (r *Rig) startBroker(ctx context.Context, o Options, environ ...string) (err error) {
	if r.login == "" {
		policies := []string{"broker"}
		if o.KeyInVault {
			policies = append(policies, "broker-results")
		}
		if r.login, err = r.admin.login(ctx, policies); err != nil {
			return err
		}
	}
	if o.Binary != "" {
		r.welcome()
		return r.startProcess(ctx, o, environ)
	}
	snapshot, err := policy.Load(r.ConfigPath)
	if err != nil {
		return err
	}
	environment := map[string]string{"VAULT_TOKEN": r.login}
	r.Broker, err = broker.New(ctx, broker.Config{
		Snapshot:    snapshot,
		Getenv:      func(name string) string { return environment[name] },
		Log:         slog.New(slog.NewJSONHandler(o.Log, nil)),
		Now:         o.Now,
		Tamper:      o.Tamper,
		ReadTimeout: o.ReadTimeout,
		Heartbeat:   o.Heartbeat,
		Leftover:    o.Leftover,
		DropWait:    dropWait,
	})
	if err != nil {
		return err
	}
	r.URL = r.Broker.Address()
	r.welcome()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop, r.served = stop, make(chan error, 1)
	go func() { r.served <- r.Broker.Serve(serving) }()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return r.Broker.WaitReady(ctx)
}

// Stop stops the broker as SIGTERM does and waits for it; what stands around
// it goes on.
func (r *Rig) Stop() error {
	if p := r.process.Load(); p != nil {
		defer r.process.CompareAndSwap(p, nil)
		return p.stop()
	}
	if r.stop == nil {
		return nil
	}
	r.stop()
	r.stop = nil
	return <-r.served
}

// Close ends everything.
func (r *Rig) Close() error {
	err := r.Stop()
	for i := len(r.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, r.closers[i]())
	}
	r.closers = nil
	return err
}

// Edit changes the configuration file and has the broker read it again. A broker
// process is sent SIGHUP; the change is in force a moment after Edit returns.
func (r *Rig) Edit(change func(yaml string) string) error {
	raw, err := os.ReadFile(r.ConfigPath)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.ConfigPath, []byte(change(string(raw))), 0o600); err != nil {
		return err
	}
	if p := r.process.Load(); p != nil {
		return p.cmd.Process.Signal(syscall.SIGHUP)
	}
	return r.Broker.Reload()
}

// Log is what the broker has logged so far, a JSON object a line.
func (r *Rig) Log() string {
	return r.log.String()
}

// Secrets are the values that must be in no output: the bearer, the broker's
// key, the actors' and the servers' credentials, every token that was issued.
func (r *Rig) Secrets() []string {
	return slices.Concat([]string{r.Bearer, r.clientKey}, r.subjects, slices.Collect(maps.Values(r.discovery)), r.Provider.Issued())
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Audit is the chain of a broker that has stopped, as lines of JSON, verified.
func (r *Rig) Audit(t testing.TB) string {
	t.Helper()
	s, err := store.Open(context.Background(), store.Config{Path: r.DatabasePath()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return storetest.Audit(t, s)
}

// DatabasePath is the broker's database file.
func (r *Rig) DatabasePath() string { return filepath.Join(r.Dir, "broker.db") }
