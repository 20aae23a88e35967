package devvault_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/internal/devvault"
)

// ask sends one request without a network. Status 0: there was no answer.
func ask(ctx context.Context, s *devvault.Server, token, method, path, body string) (status int, answer string) {
	req, err := http.NewRequestWithContext(ctx, method, "http://vault.test/v1/"+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("X-Vault-Token", token)
	resp, err := s.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// A Failure shows before or after the request took effect, so often and no more.
func TestFail(t *testing.T) {
	const path = "kv1/a"
	for _, row := range []struct {
		name    string
		failure devvault.Failure
		status  int
		there   bool
	}{
		{"before", devvault.Failure{}, 500, false},
		{"after", devvault.Failure{After: true}, 500, true},
		{"a status before", devvault.Failure{Status: 429}, 429, false},
		{"cut before", devvault.Failure{Cut: true}, 0, false},
		{"cut after", devvault.Failure{Cut: true, After: true}, 0, true},
		{"hanging before", devvault.Failure{Hang: true}, 0, false},
		{"hanging after", devvault.Failure{Hang: true, After: true}, 0, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := devvault.New(devvault.Options{})
			s.Fail("PUT", "kv1/", 1, row.failure)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if status, _ := ask(ctx, s, s.RootToken(), "PUT", path, `{"token":"x"}`); status != row.status {
				t.Errorf("it is answered %d, want %d", status, row.status)
			}
			if status, _ := ask(t.Context(), s, s.RootToken(), "GET", path, ""); (status == 200) != row.there {
				t.Errorf("then a read is answered %d", status)
			}
			if status, _ := ask(t.Context(), s, s.RootToken(), "PUT", path, `{"token":"x"}`); status != 204 {
				t.Errorf("the next is answered %d", status)
			}
		})
	}
}

// Tokens end by the clock that was given, and their children with them.
func TestTheClock(t *testing.T) {
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	s := devvault.New(devvault.Options{Now: func() time.Time { return now }})
	token, _ := s.Mint(devvault.NewToken{Policies: []string{"broker"}, TTL: time.Minute})
	if status, _ := ask(t.Context(), s, token, "PUT", "auth/token/create/broker-op", "{}"); status != 200 || s.Live("broker-op") != 1 {
		t.Fatalf("minting is answered %d", status)
	}
	now = now.Add(time.Minute - time.Nanosecond)
	if s.Live("minted") != 1 || s.Live("broker-op") != 1 {
		t.Error("a token ended before its time")
	}
	now = now.Add(time.Nanosecond)
	if s.Live("minted") != 0 || s.Live("broker-op") != 0 {
		t.Error("a token lives after its time, or its child does")
	}
}

// What is remembered of a request holds no secret.
func TestRequests(t *testing.T) {
	s := devvault.New(devvault.Options{RootToken: "root-token"})
	ask(t.Context(), s, "root-token", "PUT", "kv1/a", `{"token":"a-secret"}`)
	ask(t.Context(), s, "another", "GET", "kv1/a", "")
	want := []devvault.Request{
		{Method: "PUT", Path: "kv1/a", Who: "root", Status: 204},
		{Method: "GET", Path: "kv1/a", Who: "", Status: 403},
	}
	if diff := cmp.Diff(want, s.Requests()); diff != "" {
		t.Error(diff)
	}
	if s.Count("", "kv1/") != 2 || s.Count("PUT", "") != 1 || s.Count("GET", "kv/") != 0 {
		t.Error("Count counts others")
	}
	if diff := cmp.Diff([]string{"root-token", "a-secret"}, s.Secrets()); diff != "" {
		t.Error(diff)
	}
}

func TestSeal(t *testing.T) {
	s := devvault.New(devvault.Options{})
	s.Seal(true)
	for path, want := range map[string]int{"sys/health": 503, "kv1/a": 503, "auth/token/lookup-self": 503} {
		if status, _ := ask(t.Context(), s, s.RootToken(), "GET", path, ""); status != want {
			t.Errorf("sealed, %s is answered %d", path, status)
		}
	}
	s.Seal(false)
	if status, _ := ask(t.Context(), s, s.RootToken(), "GET", "sys/health", ""); status != 200 {
		t.Errorf("unsealed, health is answered %d", status)
	}
}
