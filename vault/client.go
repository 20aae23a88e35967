// Package vault is what the broker does with HashiCorp Vault: it logs in and
// stays logged in, reads credentials, and holds each operation's exchanged token
// where it cannot outlive us. Where a grant or a profile says so it replaces a
// stored credential at a known version (write.go), gets a token that Vault issues
// (oidc.go), and has a key sign, or wrap a data key, that never leaves Vault
// (transit.go).
//
// A token is held in the cubbyhole of an epoch: a short-lived child token that
// we mint every 30 seconds through a token role. Only the epoch can read its
// cubbyhole, and Vault empties it when the epoch runs out, whatever became of us.
//
//	login ── mints ──> epoch ── POST, GET, DELETE ──> cubbyhole/op/<id>
//	  └─ the rest                └─ revoked when replaced and idle
//
// With [Config.PerOperation] each hold has an epoch for itself: minted when the hold
// is reserved, beside what its operation does meanwhile, and revoked instead of a
// DELETE. The epochs of every 30 seconds are minted all the same, and hold nothing:
// they show that minting works before an operation needs it.
//
// What always holds:
//
//   - A hold is there only if Vault said 200 and gave back the value that we put;
//     it is gone only if Vault said 204, 404 or 403, or its epoch is over.
//     What is not understood is neither.
//   - An answer counts only if it is Vault's: no redirect, JSON, at most 1 MiB,
//     and an error in the form in which Vault writes errors.
//   - A put is sent once. Drops and revocations are repeated until Vault has said
//     that they are done.
//   - Nothing in the environment changes what is sent, or where.
//   - Nothing from outside becomes a path: the last segment of a hold's is ours, the
//     rest comes from checked configuration.
//   - No text of Vault or of a library is in an error or a log line.
//
// What the login token does goes through the client library (but the read of a
// credential, which every operation waits for, and a patch, whose status it would
// lose), one library client for each login, so that no token is ever changed under a
// running call. What an epoch does (put, read, drop, revoke) is a plain request over
// the same transport: the library would need a copy of itself for each token, and is
// slower.
//
// The ways to log in are in methods.go and approle.go, and what a file that proves
// who we are has to look like in files.go. With method "proxy" there is no token of
// the login here: a Vault Proxy adds it to requests that have none.
//
// This package does not decide who may use a credential, keeps no token between
// two reads, and knows nothing of operations.
package vault

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"onbehalf.internal/broker/egress"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
)

// Config is what a Client needs from the world.
type Config struct {
	Address   string         // http or https, host and port, no path; or "unix:" and an absolute path
	Namespace string         // "team/a"; empty: none
	CA        *x509.CertPool // nil: the system's
	Auth      policy.VaultAuth
	Role      string      // the token role that mints epochs
	Token     secret.Text // auth method "token"

	// PerOperation gives each hold an epoch of its own.
	PerOperation bool

	Now       func() time.Time  // nil: time.Now
	Log       *slog.Logger      // nil: none
	Transport http.RoundTripper // nil: egress, to the address alone; method "cert" needs that
}

const (
	epochLife = 75 * time.Second // what a hold may need: see rotation
	straddle  = time.Second      // Vault counts a life from the whole second of its birth: minted across two, an epoch is told to live one less
	rotation  = 30 * time.Second // of an epoch with a full life; a shorter one is replaced sooner
	skew      = 2 * time.Second  // an epoch with less to live takes no new hold
	slack     = time.Second      // Vault has destroyed what ran out this long ago
	ahead     = 15 * time.Second // a login is renewed this long before it has less to live than an epoch: time for more than one try
	glance    = 10 * time.Second // from one look at the token file to the next
	patience  = 5 * time.Second  // for one answer, if the caller's context allows as much
	idle      = 64               // connections kept for as many operations at a time
)

// Leftover is how long after its end a process can have left something in Vault:
// by then every epoch that it had has run out.
const Leftover = epochLife + slack

// A Client talks to one Vault. It is safe for concurrent use. [Client.Run] must
// be running for it to become and stay ready.
type Client struct {
	address string
	host    egress.Host
	auth    policy.VaultAuth
	role    string
	token   secret.Text
	now     func() time.Time
	log     *slog.Logger
	answers answers // the transport to Vault
	release func()  // closes idle connections
	told    string  // Run's: what it has logged of readiness last

	perOperation bool

	wake      chan struct{} // holds one: Run has something to do
	loggingIn chan struct{} // holds one: a login is under way, and what stands next is whose it is
	approle   approle
	lost      error     // of the last attempt, if it failed
	restUntil time.Time // before this nobody tries again

	mu      sync.Mutex          // guards all below; never held across I/O
	login   *login              // nil: none yet
	epochs  []*epoch            // oldest first; new holds go to the last
	own     map[*epoch]bool     // epochs of one hold each
	pending map[*Hold]time.Time // since when
	mounts  map[string]int

	mints, revocations, drops map[string]uint64 // see Stats

	trouble *fault.Error  // why there is no login or epoch, if Run knows
	lookAt  time.Time     // when to look at the token file again
	unread  error         // why it could not be read the last time
	changed chan struct{} // closed and replaced when readiness may have changed
}

// A namespace stands in a header. What Vault keeps for itself is refused by it.
var namespace = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}(/[A-Za-z0-9_][A-Za-z0-9_-]{0,63}){0,7}$`)

// A name may stand in a path of ours.
var name = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$`)

// A mount may have more than one name in its path.
var mount = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,3}$`)

// New checks c and returns a Client that has not spoken to Vault yet. The error
// is a *fault.Error that says what to mend.
func New(c Config) (*Client, error) {
	host, what := c.host()
	if what == "" {
		what = c.check(host.URL)
	}
	if what != "" {
		return nil, fault.New("vault.New", fault.VaultNotReady, what)
	}
	v := &Client{
		address: host.URL.Scheme + "://" + host.URL.Host, host: host,
		auth: c.Auth, role: c.Role, token: c.Token,
		now: c.Now, log: c.Log, perOperation: c.PerOperation,
		wake: make(chan struct{}, 1), loggingIn: make(chan struct{}, 1), changed: make(chan struct{}),
		own: map[*epoch]bool{}, pending: map[*Hold]time.Time{}, mounts: map[string]int{},
		mints: map[string]uint64{}, revocations: map[string]uint64{}, drops: map[string]uint64{},
	}
	if v.now == nil {
		v.now = time.Now
	}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	client := &http.Client{Transport: c.Transport}
	if c.Transport == nil {
		client = egress.NewClient(host, idle)
	}
	v.release = client.CloseIdleConnections
	v.answers = answers{client.Transport, c.Namespace}
	v.auth.Mount = cmp.Or(v.auth.Mount, v.auth.Method)
	return v, nil
}

// host is where Vault is, or what is wrong with its address.
func (c Config) host() (h egress.Host, what string) {
	if path, ok := strings.CutPrefix(c.Address, "unix:"); ok {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return h, `the address of a socket is "unix:" and an absolute path`
		}
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		return egress.Host{URL: &url.URL{Scheme: "http", Host: "localhost"}, Dial: dial}, ""
	}
	u, err := url.Parse(c.Address)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil:
		return h, "the address must be http or https, a host and a port"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return h, "the address must not have a path or a query"
	}
	return egress.Host{URL: u, AnyAddress: true, CA: c.CA}, ""
}

// check says what is missing, or does not fit. The files are not opened yet.
func (c Config) check(address *url.URL) (what string) {
	switch {
	case !name.MatchString(c.Role):
		return fmt.Sprintf("%q is no name of a token role", c.Role)
	case c.Auth.Mount != "" && !mount.MatchString(c.Auth.Mount):
		return fmt.Sprintf("%q is no name of an auth mount", c.Auth.Mount)
	case c.Namespace != "" && !namespace.MatchString(c.Namespace):
		return fmt.Sprintf("%q is no path of a namespace", c.Namespace)
	}
	a := c.Auth
	switch a.Method {
	case "token":
		return missingOf("the auth method is token, and VAULT_TOKEN is empty", !c.Token.IsZero())
	case "token_file":
		return missingOf("the auth method is token_file, and the file is not named", a.TokenFile != "")
	case "approle":
		return missingOf("the auth method is approle, and role_id or secret_id_file is missing", a.RoleID != "", a.SecretIDFile != "")
	case "kubernetes", "jwt":
		return missingOf("the auth method is "+a.Method+", and role or jwt_file is missing", a.Role != "", a.JWTFile != "")
	case "cert":
		if address.Scheme != "https" || c.Transport != nil {
			return "the auth method is cert, and a certificate is shown over https alone"
		}
		return missingOf("the auth method is cert, and cert_file or key_file is missing", a.CertFile != "", a.KeyFile != "")
	case "proxy":
		return missingOf("the auth method is proxy, and the address is no Unix socket", strings.HasPrefix(c.Address, "unix:"))
	}
	return fmt.Sprintf("%q is no auth method that is supported: approle, kubernetes, jwt, cert, token_file, proxy, token", a.Method)
}

func missingOf(what string, there ...bool) string {
	if slices.Contains(there, false) {
		return what
	}
	return ""
}

// Ready returns nil when new operations can be held for as long as they may
// need: a login and an epoch stand, and both live long enough. Otherwise the
// error is vault_not_ready and says what is missing and what to do.
func (c *Client) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	refuse := func(format string, args ...any) error {
		return fault.New("vault.Ready", fault.VaultNotReady, fmt.Sprintf(format, args...))
	}
	now := c.now()
	switch {
	case c.login == nil || c.login.over(now):
		return refuse("no login%s", c.becauseLocked())
	case c.login.left(now) < epochLife:
		why := ""
		if c.trouble != nil {
			why = ": " + c.trouble.Error()
		}
		return refuse("the login token lives %.0fs, %.0fs are needed: let it be renewed, or raise its ttl%s",
			c.login.left(now).Seconds(), epochLife.Seconds(), why)
	case len(c.epochs) > 0 && c.epochs[len(c.epochs)-1].life < epochLife-straddle:
		return refuse("the minted epoch lives %.0fs, %.0fs are needed: set token_explicit_max_ttl on role %s",
			c.epochs[len(c.epochs)-1].life.Seconds(), epochLife.Seconds(), c.role)
	case c.newestLocked() == nil:
		return refuse("no live epoch%s", c.becauseLocked())
	}
	return nil
}

func (c *Client) becauseLocked() string {
	if c.trouble == nil {
		return " yet"
	}
	return ": " + c.trouble.Error()
}

// WaitReady waits until [Client.Ready] returns nil. When ctx ends first, the
// error is the last one of Ready.
func (c *Client) WaitReady(ctx context.Context) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		err := c.Ready()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// announceLocked tells those who wait that readiness may have changed.
func (c *Client) announceLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// rouse makes Run look again.
func (c *Client) rouse() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
