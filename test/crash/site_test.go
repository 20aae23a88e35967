//go:build real

package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/realvault"
)

// binary is the program with the switches of cmd/broker/crash.go; TestMain builds it.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "broker")
	if out, err := exec.Command("go", "build", "-tags", "crash", "-o", binary, "onbehalf.internal/broker/cmd/broker").CombinedOutput(); err != nil {
		os.Stderr.Write(out)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	if total.kills > 0 {
		fmt.Println(total.line())
	}
	os.Exit(status)
}

// turn is held by the test that kills: the deaths of one do not slow down another's
// starts. Then epochs have to end, for which tests wait side by side.
var turn sync.Mutex

// A site is a broker process over a Vault of its own, with a place on the way to
// every counterpart where it can be killed.
type site struct {
	*brokertest.Rig
	*verdict
	vault   *realvault.Vault
	before  map[string]int // what Vault had before there was a broker
	environ []string       // of every process that is started from now on
	trap    atomic.Pointer[trap]
	lies    atomic.Bool // see lies_test.go
	slow    time.Duration
	give    func() // gives the turn back

	mu      sync.Mutex
	ran     map[string]int         // :: request key → tools/call requests that a server took up
	ended   map[string]fault.State // :: request key → how it was told to have ended for good
	answers [][]byte               // bodies of the broker
}

// start waits for its turn, and starts a site.
func start(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	turn.Lock()
	give := sync.OnceFunc(turn.Unlock)
	t.Cleanup(give)
	v := realvault.Start(t)
	s := &site{verdict: newVerdict(), vault: v, before: v.Left(t), slow: 60 * time.Millisecond, give: give, ran: map[string]int{}, ended: map[string]fault.State{}}
	door := s.doorOf(t)
	s.Rig = brokertest.New(t, &brokertest.Options{Binary: binary, Vault: v.Addr, VaultToken: v.Token, Config: func(yaml string) string {
		yaml = strings.Replace(yaml, "timeout: 5s", "timeout: 20s", 1) // for a busy machine
		yaml = endpoint.ReplaceAllString(yaml, "$0\n    revoke: {mode: best_effort, endpoint: $1/revoke}")
		records, archive, _ := strings.Cut(yaml, "\n  archive:\n")
		yaml = records + "\n  archive:\n" + strings.Replace(archive, "slow: {enabled: true}", "slow: {enabled: true, drain_window: 0s}", 1)
		return strings.Replace(yaml, v.Addr, door, 1)
	}})
	s.Provider.Break(s.around)
	for _, server := range []*devmcp.Server{s.Records, s.Archive} {
		server.Break(func(next http.Handler) http.Handler { return s.around(s.counted(next)) })
	}
	return s
}

var endpoint = regexp.MustCompile(`token_endpoint: (\S+)/oauth/token`)

// doorOf is where the broker finds its Vault.
func (s *site) doorOf(t *testing.T) string {
	target, err := url.Parse(s.vault.Addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		ErrorLog:       log.New(io.Discard, "", 0), // a killed broker is no news
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target); s.askForLonger(r.Out) },
		ModifyResponse: s.sayShorter,
	}
	door := httptest.NewServer(s.around(s.undropped(proxy)))
	t.Cleanup(door.Close)
	return door.URL
}

// counted counts a tools/call by its request key, which callers put into its
// arguments as well.
func (s *site) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if devmcp.MethodOf(r) == "tools/call" {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			var m struct {
				Params struct{ Arguments struct{ Job string } }
			}
			if err := json.Unmarshal(body, &m); err != nil || m.Params.Arguments.Job == "" {
				s.is(wrong, "a tools/call without a job: %v", err)
			}
			s.mu.Lock()
			s.ran[m.Params.Arguments.Job]++
			s.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

func (s *site) runs(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[key]
}

// do makes the call with its key as its job, and judges the answer. The tool slow
// takes s.slow, and longer than any call with a timeout.
func (s *site) do(ctx context.Context, c brokertest.Call) (brokertest.Answer, error) {
	arguments := map[string]any{"job": c.Key}
	switch {
	case c.Timeout != "":
		arguments["seconds"] = 4
	case c.Tool == "slow":
		arguments["seconds"] = s.slow.Seconds()
	}
	c.Arguments = arguments
	a, err := s.Do(ctx, c)
	if err == nil {
		s.judge(c.Key, a)
	}
	return a, err
}

// look retrieves by the caller's own key, and judges the answer.
func (s *site) look(ctx context.Context, c brokertest.Call) (brokertest.Answer, error) {
	a, err := s.Look(ctx, "/v1/operations?request_key="+c.Key, c)
	if err == nil {
		s.judge(c.Key, a)
	}
	return a, err
}

// judge compares an answer with what the server has seen, and with what was told
// before.
func (s *site) judge(key string, a brokertest.Answer) {
	s.mu.Lock()
	s.answers = append(s.answers, a.Body)
	runs, before := s.ran[key], s.ended[key]
	if a.State != "" && !a.State.Open() && a.Retry != fault.RetrySafe && a.Durability == "durable" {
		s.ended[key] = a.State
	}
	s.mu.Unlock()
	said := fmt.Sprintf("%s attempt %d is told as %d %q, ran %q, retry %q", key, a.Attempt, a.Status, a.State, a.Ran, a.Retry)
	switch {
	case runs > 0 && (a.Status == http.StatusNotFound || a.Retry == fault.RetrySafe || a.Ran == fault.RanNo && !a.State.Open()):
		s.is(falseSafe, "%s, and it ran", said)
	case runs == 0 && a.Ran == fault.RanYes:
		s.is(wrong, "%s, and it did not run", said)
	}
	late := before == fault.InDoubt && a.Late
	if before != "" && a.Status < 500 && a.State != before && !late {
		s.is(wrong, "%s, and was told as %s before", said, before)
	}
	if runs > 1 {
		s.is(doubleRun, "%s, and it ran %d times", said, runs)
	}
}

// restart is Restart with the site's environment.
func (s *site) restart(ctx context.Context, environ ...string) error {
	return s.Restart(ctx, append(environ, s.environ...)...)
}

// dead waits until the broker has died by itself.
func (s *site) dead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return s.Ended(ctx)
}

const (
	epochLife = 75 * time.Second // as the token role of deploy/vault caps it
	slack     = time.Second      // Vault empties a cubbyhole this long after, at most
)

// judgeHolds kills the broker and waits until the last epoch must have ended. Then
// Vault has what it had at first, and the broker's login. It gives the turn back.
func (s *site) judgeHolds(t *testing.T) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Error(err)
	}
	s.killed()
	due := time.After(epochLife)
	s.give()
	<-due
	late, poll := time.Now().Add(slack), time.NewTicker(50*time.Millisecond)
	defer poll.Stop()
	for {
		left := s.left(t)
		if len(left) == 0 {
			return
		}
		if time.Now().After(late) {
			s.is(oldHold, "left in Vault: %v", left)
			return
		}
		<-poll.C
	}
}

// left is what Vault's storage has more than a broker without an epoch accounts
// for.
func (s *site) left(t *testing.T) map[string]int {
	t.Helper()
	left := map[string]int{}
	for what, n := range s.vault.Left(t) {
		want := s.before[what]
		if what != "cubbyholes" {
			want++ // the login
		}
		if n != want {
			left[what] = n - want
		}
	}
	return left
}
