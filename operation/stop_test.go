package operation_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/store"
)

// TestCutAtTheDisk: an operation that is about to send when the broker stops, and
// the disk is busy. Whether "sending" was withdrawn or is on disk by then,
// nothing has left, and the next process need not wonder.
func TestCutAtTheDisk(t *testing.T) {
	for _, busyWith := range []audit.Kind{audit.Sending, audit.Denial} {
		t.Run(string(busyWith), func(t *testing.T) {
			busy, free := make(chan struct{}), make(chan struct{})
			rig := brokertest.New(t, &brokertest.Options{Tamper: func(at store.Moment, records []audit.Record) error {
				if at == store.Applying && len(records) == 1 && records[0].Kind == busyWith {
					close(busy)
					<-free
				}
				return nil
			}})
			release := rig.Records.Hold("server/discover")
			call := start(t, rig, brokertest.Call{})
			until(t, func() bool { return rig.Records.Arrived("server/discover") == 1 })
			var denied <-chan brokertest.Answer
			if busyWith == audit.Denial {
				denied = start(t, rig, brokertest.Call{Actor: "user:8"})
				<-busy
			}
			release()
			if busyWith == audit.Sending {
				<-busy
			} else { // it has been checked for tools/call, and comes to the disk next
				until(t, func() bool { return rig.Vault.Count("GET", holds) == 2 })
			}
			stopped := make(chan error, 1)
			go func() { stopped <- rig.Stop() }()
			rig.Broker.Hasten()
			until(t, func() bool { return strings.Contains(rig.Log(), "drain budget spent") })
			close(free)
			if a := <-call; a.State != fault.NotSent || a.Cause != fault.BrokerStopping || a.Hold != "dropped" || a.Durability != "durable" {
				t.Errorf("%s", a.Body)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			if denied != nil {
				<-denied
			}
			if n := rig.Records.Arrived("tools/call"); n != 0 {
				t.Errorf("%d calls left", n)
			}
		})
	}
}

// TestRefreshIsWaitedFor: an operation is cut while its actor's refresh token is at
// the provider. What the provider gives for it is stored before the broker ends:
// nobody has the old one's successor otherwise.
func TestRefreshIsWaitedFor(t *testing.T) {
	asked, answered := make(chan struct{}), make(chan struct{})
	answer := sync.OnceFunc(func() { close(answered) })
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-answered
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"access","token_type":"Bearer","expires_in":300,"refresh_token":"the-second"}`)
	}))
	t.Cleanup(provider.Close)
	t.Cleanup(answer)
	rig := brokertest.New(t, &brokertest.Options{Config: func(yaml string) string {
		yaml = regexp.MustCompile(`token_endpoint: \S+`).ReplaceAllString(yaml, "token_endpoint: "+provider.URL+"/oauth/token")
		return strings.Replace(yaml, `credential: "vault:kv/broker/subjects/7#value"`, `credential: {refresh_token: "vault:kv/broker/refresh/7#value"}`, 1)
	}})
	policy := ""
	for _, name := range []string{"broker-refresh", "broker"} {
		text, err := os.ReadFile("../deploy/vault/" + name + ".hcl")
		if err != nil {
			t.Fatal(err)
		}
		policy += string(text)
	}
	inVault(t, rig, "PUT", "sys/policies/acl/broker", map[string]any{"policy": policy})
	inVault(t, rig, "PUT", "kv/data/broker/refresh/7", map[string]any{"data": map[string]string{"value": "the-first"}})

	call := start(t, rig, brokertest.Call{})
	select {
	case <-asked:
	case a := <-call:
		t.Fatalf("the refresh token was not sent: %s", a.Body)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- rig.Stop() }()
	rig.Broker.Hasten()
	if a := <-call; a.State != fault.NotSent || a.Cause != fault.BrokerStopping {
		t.Errorf("%s", a.Body)
	}
	select { // a broker that does not wait is gone by then; one that does waits longer
	case err := <-stopped:
		t.Fatalf("the broker has ended: %v", err)
	case <-time.After(settled):
	}
	answer()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if got := inVault(t, rig, "GET", "kv/data/broker/refresh/7", nil); !strings.Contains(got, `"value":"the-second"`) {
		t.Errorf("stored: %s", got)
	}
}

// settled is well within the time that a stop takes for what goes on.
const settled = 400 * time.Millisecond

// inVault asks as an operator does.
func inVault(t *testing.T, rig *brokertest.Rig, method, path string, body any) string {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://vault.invalid/v1/"+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Vault-Token", rig.Vault.RootToken())
	res, err := rig.Vault.RoundTrip(req)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: %v, %v", method, path, res, err)
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// start makes a call that is waited for.
func start(t *testing.T, rig *brokertest.Rig, c brokertest.Call) <-chan brokertest.Answer {
	got := make(chan brokertest.Answer, 1)
	go func() {
		a, err := rig.Do(t.Context(), c)
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	return got
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("it did not come to that")
		}
	}
}

// TestUnfinishedRequest: a body that never comes to its end, in a server that would
// wait an hour for it, does not keep the broker from ending.
func TestUnfinishedRequest(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{ReadTimeout: time.Hour})
	host := strings.TrimPrefix(rig.URL, "http://")
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /v1/operations HTTP/1.1\r\nHost: "+host+"\r\nAuthorization: Bearer "+rig.Bearer+"\r\nBroker-Actor: user:7\r\n"+
		"Content-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
	if _, err := c.Read(make([]byte, 1<<10)); err != nil { // the handler asks for the body
		t.Fatal(err)
	}
	if err := rig.Stop(); err != nil {
		t.Error(err)
	}
}
