package vaultfaults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devvault"
	"onbehalf.internal/broker/internal/testhttp"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/secret/canary"
	"onbehalf.internal/broker/vault"
	"onbehalf.internal/broker/vault/vaulttest"
)

const address = "vault.test:8200"

// A box is a Client in a bubble where time is held still: an HTTP server and a
// client with real connections, but over pipes in memory.
type box struct {
	t      *testing.T
	vault  *devvault.Server
	proxy  *proxy
	client *vault.Client
	conf   vault.Config
	log    *bytes.Buffer // read when the Client has stopped
	errors []string
	dialed *dialed
}

// A dialed is a transport to a server in the same bubble. It notes every other
// address that is asked for.
type dialed struct {
	*http.Transport
	at *testhttp.Pipes

	mu        sync.Mutex
	elsewhere []string
}

func (d *dialed) dial(ctx context.Context, network, to string) (net.Conn, error) {
	if to != address {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.elsewhere = append(d.elsewhere, to)
		return nil, errors.New("no such host")
	}
	return d.at.Dial(ctx, network, to)
}

// RoundTrip sends a request once, as egress does: without a body that cannot be
// rewound a Transport repeats it on another connection.
func (d *dialed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.GetBody = nil
	if req.Body == nil || req.Body == http.NoBody {
		req.Body = io.NopCloser(strings.NewReader(""))
	}
	return d.Transport.RoundTrip(req)
}

// bubble runs f on a Client that has not started yet, with AppRole: its logins
// live ten minutes, and an hour at most.
func bubble(t *testing.T, f func(b *box)) {
	synctest.Test(t, func(t *testing.T) {
		b := &box{t: t, vault: devvault.New(devvault.Options{}), log: new(bytes.Buffer)}
		b.proxy = newProxy(b.vault)
		b.dialed = &dialed{at: testhttp.OnPipes(t, b.proxy)}
		b.dialed.Transport = &http.Transport{DialContext: b.dialed.dial, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10}
		b.conf = vault.Config{Address: "http://" + address, Role: "broker-op", Transport: b.dialed,
			Log: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		b.appRole()
		defer b.dialed.CloseIdleConnections()
		f(b)
		b.search()
	})
}

// appRole sets AppRole up, as an operator does.
func (b *box) appRole() {
	b.ask("sys/auth/approle", `{"type":"approle"}`)
	b.ask("auth/approle/role/broker", `{"token_policies":"broker","token_ttl":"10m","token_max_ttl":"1h"}`)
	b.conf.Auth = policy.VaultAuth{Method: "approle", RoleID: field(b.ask("auth/approle/role/broker/role-id", ""), "role_id"),
		SecretIDFile: filepath.Join(b.t.TempDir(), "secret-id")}
	b.newSecretID()
}

// newSecretID puts another secret id into the file.
func (b *box) newSecretID() {
	b.t.Helper()
	id := field(b.ask("auth/approle/role/broker/secret-id", "{}"), "secret_id")
	if err := os.WriteFile(b.conf.Auth.SecretIDFile, []byte(id), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) ask(path, body string) string {
	b.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, "http://"+address+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", b.vault.RootToken())
	res, err := b.vault.RoundTrip(req)
	if err != nil || res.StatusCode >= 300 {
		b.t.Fatalf("%s: %v", path, err)
	}
	said, _ := io.ReadAll(res.Body)
	return string(said)
}

// field is the value of a text in JSON that is known to have it.
func field(json, name string) string {
	_, rest, _ := strings.Cut(json, `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// run starts the Client; it stops with stop.
func (b *box) run() (stop func()) {
	b.t.Helper()
	var err error
	if b.client, err = vault.New(b.conf); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); b.client.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func (b *box) ready() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := b.client.WaitReady(ctx); err != nil {
		b.t.Errorf("not ready by itself within 15 s: %v", err)
	}
}

// say keeps an error for the search.
func (b *box) say(err error) string {
	text := fmt.Sprintf("%v %+v %#v", err, err, err)
	b.errors = append(b.errors, text)
	return text
}

// operate is what an operation does with a hold; the reason of what failed.
func (b *box) operate() fault.Reason {
	h, err := vaulttest.Hold(context.Background(), b.client, secret.New("token-of-an-operation"))
	if err == nil {
		_, err = h.Read(context.Background())
		err = errors.Join(err, h.Drop(context.Background()))
	}
	if err == nil {
		return fault.None
	}
	b.say(err)
	return fault.ReasonOf(err)
}

// search looks for secrets and foreign text in log and errors, and for a request
// to anybody else.
func (b *box) search() {
	b.t.Helper()
	out := append(b.log.Bytes(), strings.Join(b.errors, "\n")...)
	for _, planted := range slices.Concat([]string{marker, "token-of-an-operation"}, b.proxy.secrets(), b.vault.Secrets()) {
		if form, found := canary.Find(out, planted); found {
			b.t.Errorf("a secret, or foreign text, is in the log or in an error: %s", form)
		}
	}
	if n := len(b.dialed.elsewhere); n != 0 {
		b.t.Errorf("%d requests went elsewhere: %q", n, b.dialed.elsewhere)
	}
}

// A state is how a Client stands while one kind of request is answered wrongly.
type state struct {
	Ready     string       // a word of the detail of vault_not_ready; "": it is ready
	Operation fault.Reason // "": operations go on
}

var well = state{}

func down(reason fault.Reason) state { return state{string(reason), fault.VaultNotReady} }

// An upkeep is one request that the Client makes by itself. Its wrong answer lasts
// for minutes.
type upkeep struct {
	name   string
	plan   plan
	token  bool          // the auth method is token, not approle
	start  bool          // wrong from the start; else once it is ready
	wait   time.Duration // how long before the look
	most   int           // such requests in that time, at most: it does not storm
	least  int           // and at least, where the answer is seen to be wrong: it does not give up
	done   []reading     // taken as done: not asked again
	states map[reading]state
	except map[string]state // by the answer's name
	shown  []string         // answers after which the secret id is not shown a third time, until its file holds another
}

// all are the states where every reading keeps the Client down.
func all(change map[reading]state) map[reading]state {
	states := map[reading]state{
		foreign: down(fault.VaultUnexpected), lost: down(fault.VaultUnreachable), sealed: down(fault.VaultSealed),
		empty: down(fault.VaultUnexpected), other: down(fault.VaultUnexpected), nothing: down(fault.VaultUnexpected),
		refused: down(fault.VaultUnexpected), denied: down(fault.VaultDenied), absent: down(fault.VaultUnexpected),
		limited: down(fault.VaultRateLimited),
	}
	for r, s := range change {
		states[r] = s
	}
	return states
}

func upkeeps() []upkeep {
	return []upkeep{
		// A login as somebody whom Vault does not know: found out at the first epoch.
		{name: "login", plan: plan{method: "PUT", prefix: logins}, start: true, wait: 2 * time.Minute, least: 10, most: 130,
			states: all(map[reading]state{other: down(fault.VaultNotReady)}),
			except: map[string]state{"400": down(fault.VaultDenied)}, // which is how Vault refuses a secret_id
			shown:  []string{"400", "403 of Vault", "403 of OpenBao"}},
		// What a lookup says of our own token cannot be doubted.
		{name: "lookup", plan: plan{method: "GET", prefix: lookup}, token: true, start: true, wait: 2 * time.Minute, most: 130,
			states: all(map[reading]state{other: well})},
		// A login that cannot be renewed is replaced before it runs out.
		{name: "renew", plan: plan{method: "PUT", prefix: renewal}, wait: 25 * time.Minute, least: 1, most: 100, states: map[reading]state{}},
		// The standing epoch runs out.
		{name: "mint", plan: plan{method: "PUT", prefix: mints}, wait: 2 * time.Minute, least: 9, most: 100,
			states: all(map[reading]state{other: {"", fault.VaultDenied}}),
			except: map[string]state{"200 other value, of odd names": down(fault.VaultUnexpected)}},
		// An epoch that cannot be revoked runs out; whoever needs the next one does not wait.
		{name: "revoke", plan: plan{method: "POST", prefix: revoke}, wait: 2 * time.Minute, least: 8, most: 100, states: map[reading]state{},
			done: []reading{denied, nothing}},
	}
}

// TestUpkeep is every wrong answer at every request that the broker makes by itself,
// for minutes: how ready it says it is, what an operation meets, that it neither
// hangs nor storms, and that it recovers by itself.
func TestUpkeep(t *testing.T) {
	cells := 0
	canary.Run(t, func(*canary.Cage) {
		for _, u := range upkeeps() {
			t.Run(u.name, func(t *testing.T) {
				for _, w := range answers("http://elsewhere.test") {
					cells++
					t.Run(w.name, func(t *testing.T) {
						bubble(t, func(b *box) { b.cell(u, w) })
					})
				}
			})
		}
	}, marker)
	fmt.Printf("vaultfaults: upkeep: %d cells, %d steps\n", cells, len(upkeeps()))
}

func (b *box) cell(u upkeep, w wrong) {
	if u.token {
		token, _ := b.vault.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: time.Hour})
		b.conf.Auth, b.conf.Token = policy.VaultAuth{Method: "token"}, secret.New(token)
	}
	spoil := func() {
		plan := u.plan
		plan.many, plan.wrong = -1, w
		b.proxy.spoil(&plan)
	}
	if u.start {
		spoil()
	}
	stop := b.run()
	if !u.start {
		b.ready()
		spoil()
	}
	if slices.Contains(u.shown, w.name) {
		u.least, u.most = 2, 2
	}
	b.watch(u, w)
	b.proxy.spoil(nil)
	if slices.Contains(u.shown, w.name) {
		b.newSecretID()
	}
	b.ready()
	time.Sleep(80 * time.Second) // what runs out has run out
	if reason := b.operate(); reason != "" {
		b.t.Errorf("mended, an operation ends with %s", reason)
	}
	if n := b.vault.Live("broker-op"); n != 1 || b.client.Pending() != 0 || b.vault.Residue() != 0 {
		b.t.Errorf("mended, %d epochs live, want 1; %d holds are pending, %d there", n, b.client.Pending(), b.vault.Residue())
	}
	stop()
	if n := b.vault.Live("broker-op"); n != 0 {
		b.t.Errorf("%d epochs live after the end", n)
	}
	time.Sleep(11 * time.Minute)
	if n := b.vault.Live("approle:broker"); n != 0 { // those whose answers were lost have run out
		b.t.Errorf("%d logins of ours live after the end", n)
	}
}

// watch lets time pass. A Client that is to stay ready has to be so all the time.
func (b *box) watch(u upkeep, w wrong) {
	b.t.Helper()
	want, ok := u.except[w.name]
	if !ok {
		want = u.states[w.reading]
	}
	for passed := time.Duration(0); passed < u.wait; passed += 10 * time.Second {
		time.Sleep(10 * time.Second)
		if err := b.client.Ready(); want == well && err != nil {
			b.t.Fatalf("after %v: %v", passed, err)
		}
	}
	n, least, most := b.proxy.count(u.plan.method, u.plan.prefix), u.least, u.most
	switch {
	case slices.Contains(u.done, w.reading):
		least, most = 1, 4
	case w.reading == other:
		least = 1
	}
	if n < least || n > most {
		b.t.Errorf("%d requests, want %d to %d", n, least, most)
	}
	err := b.client.Ready()
	if said := b.say(err); (err == nil) != (want.Ready == "") || !strings.Contains(said, want.Ready) {
		b.t.Errorf("Ready = %v, want %q in it", err, want.Ready)
	}
	if err != nil && fault.ReasonOf(err) != fault.VaultNotReady {
		b.t.Errorf("Ready = %v", err)
	}
	puts := b.proxy.count("POST", holds)
	if got := b.operate(); got != want.Operation {
		b.t.Errorf("an operation ends with %q, want %q", got, want.Operation)
	}
	if n := b.proxy.count("POST", holds) - puts; want.Operation == fault.VaultNotReady && n != 0 {
		b.t.Errorf("%d puts were sent, want none", n)
	}
}

// A drop is believed where Vault says that the hold is gone, or that the epoch is.
// Where it is there all the same, it goes with its epoch: at once after a denial,
// else when the epoch is replaced.
func TestABelievedDropIsSwept(t *testing.T) {
	for _, w := range answers("") {
		within := map[reading]time.Duration{denied: 2 * time.Second, absent: 35 * time.Second, nothing: 35 * time.Second}[w.reading]
		if within == 0 {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			bubble(t, func(b *box) {
				stop := b.run()
				defer stop()
				b.ready()
				time.Sleep(5 * time.Second)
				b.proxy.spoil(&plan{method: "DELETE", prefix: holds, many: 1, wrong: w})
				reason, there := b.operate(), b.vault.Residue()
				if reason != "" || there != 1 && w.reading != denied { // "at once" may be sooner than this look
					t.Errorf("the operation ends with %q, and %d holds are there", reason, there)
				}
				time.Sleep(within)
				if n := b.vault.Residue(); n != 0 {
					t.Errorf("%d holds are there %v later", n, within)
				}
				b.ready()
			})
		})
	}
}

// A put can take effect after the broker has given it up, and after the drop was
// answered 404. Nobody said that it is gone, and it goes with its epoch.
func TestALatePutIsSwept(t *testing.T) {
	bubble(t, func(b *box) {
		stop := b.run()
		defer stop()
		b.ready()
		late := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			time.Sleep(10 * time.Second)
			next.ServeHTTP(w, r)
		}
		b.proxy.spoil(&plan{method: "POST", prefix: holds, many: 1, wrong: wrong{name: "late", act: late}})
		h := b.client.Reserve(context.Background())
		err := h.Put(context.Background(), secret.New("token-of-an-operation"))
		if b.say(err); h.State() != vault.Pending || fault.ReasonOf(err) != fault.VaultUnreachable {
			t.Errorf("Put leaves it %q, %v", h.State(), err)
		}
		time.Sleep(10 * time.Second)
		if n, drops := b.vault.Residue(), b.proxy.count("DELETE", holds); n != 1 || drops != 1 {
			t.Errorf("%d holds are there after %d drops, want one each", n, drops)
		}
		time.Sleep(20 * time.Second)
		if n := b.vault.Residue(); n != 0 {
			t.Errorf("%d holds are there in the next epoch", n)
		}
	})
}

// TestMount is every wrong answer to the question which version an engine is of:
// it is no more an answer than others, and none is remembered.
func TestMount(t *testing.T) {
	reasons := map[reading]fault.Reason{
		foreign: fault.VaultUnexpected, lost: fault.VaultUnreachable, sealed: fault.VaultSealed, empty: fault.VaultUnexpected,
		other: fault.VaultUnexpected, nothing: fault.VaultUnexpected, refused: fault.VaultUnexpected, denied: fault.VaultDenied,
		absent: fault.VaultUnexpected, limited: fault.VaultRateLimited,
	}
	ref, err := secret.ParseRef("vault:kv/broker/subjects/7#value")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range answers("http://elsewhere.test") {
		t.Run(w.name, func(t *testing.T) {
			bubble(t, func(b *box) {
				b.vault.PutSecret("kv", "broker/subjects/7", map[string]string{"value": "token-of-an-actor"})
				stop := b.run()
				defer stop()
				b.ready()
				b.proxy.spoil(&plan{method: "GET", prefix: "sys/internal/ui/mounts/kv", many: 1, wrong: w})
				_, err := b.client.Credential(context.Background(), ref)
				if b.say(err); fault.ReasonOf(err) != reasons[w.reading] || b.proxy.count("GET", "kv/") != 0 {
					t.Errorf("Credential = %v, want %s, and %d reads", err, reasons[w.reading], b.proxy.count("GET", "kv/"))
				}
				if got, err := b.client.Credential(context.Background(), ref); err != nil || got.Reveal() != "token-of-an-actor" {
					t.Errorf("mended: %v", err)
				}
			})
		})
	}
}
