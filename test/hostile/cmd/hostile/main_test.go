package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestRun is the session of README.md: list, play, look at what was seen.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error)
	go func() { done <- run(ctx, []string{"-listen", "127.0.0.1:0"}, w, io.Discard) }()
	lines := bufio.NewScanner(r)
	lines.Scan()
	url := lines.Text()
	go io.Copy(io.Discard, r)

	table := ask(t, "GET", url+"/", "", "")
	if !strings.Contains(table, "id-null") || !strings.Contains(table, "unknown: reply mismatched") {
		t.Errorf("the list has no id-null: %.200s", table)
	}
	var listed []struct{ Name, Era, Leg, Expect, Does string }
	if err := json.Unmarshal([]byte(ask(t, "GET", url+"/", "application/json", "")), &listed); err != nil || len(listed) < 100 || listed[0].Does == "" {
		t.Errorf("%d behaviours in JSON, %v", len(listed), err)
	}

	const question = `{"jsonrpc":"2.0","id":"a-1","method":"tools/call","params":{"name":"search","arguments":{}}}`
	if got := ask(t, "POST", url+"/b/id-null/mcp", "", question); !strings.Contains(got, `"id":null`) {
		t.Errorf("id-null answers %q", got)
	}
	ask(t, "POST", url+"/b/id-null/second/mcp", "", question)
	ask(t, "POST", url+"/b/id-null/second/mcp", "", question)
	for run, n := range map[string]int{"": 1, "/second": 2, "/third": 0} {
		var seen struct {
			Expect   string
			Requests []struct {
				RPC         string
				Bearer, Ran bool
			}
			Ran int
		}
		err := json.Unmarshal([]byte(ask(t, "GET", url+"/seen/id-null"+run, "", "")), &seen)
		if err != nil || len(seen.Requests) != n || seen.Ran != n || seen.Expect != "unknown: reply mismatched" {
			t.Errorf("run %q: %+v, %v, want %d requests", run, seen, err, n)
		}
		for _, q := range seen.Requests {
			if q.RPC != "tools/call" || !q.Bearer || !q.Ran {
				t.Errorf("run %q: %+v", run, q)
			}
		}
	}
	if got := ask(t, "GET", url+"/seen/id-null/second", "", ""); strings.Contains(got, "token-17") {
		t.Error("the token is in what was seen")
	}
	for _, path := range []string{"/b/nothing/mcp", "/seen/nothing", "/x"} {
		if got := ask(t, "GET", url+path, "", ""); !strings.HasPrefix(got, "404") {
			t.Errorf("%s: %q, want 404", path, got)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// ask returns the body of a good answer, else the status.
func ask(t *testing.T, method, url, accept, body string) string {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Authorization", "Bearer token-17")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode)
	}
	return string(text)
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{{"-listen", "nowhere"}, {"-no-such-flag"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
