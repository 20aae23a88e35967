package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHealth: the two questions are told apart, and what is not 200 is status 1
// with the reason printed.
func TestHealth(t *testing.T) {
	const unready = `{"status":"not_ready","reason":"draining"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case len(r.Header["Authorization"]) > 0:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/readyz":
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(unready))
		case r.URL.Path == "/healthz":
			w.Write([]byte(`{"status":"ok"}`))
		}
	}))
	defer server.Close()
	for _, tc := range []struct {
		args   []string
		status int
		said   string
	}{
		{[]string{"health"}, 0, `{"status":"ok"}` + "\n"},
		{[]string{"health", "--ready"}, 1, unready + "\n"},
	} {
		var out, errs bytes.Buffer
		getenv := func(name string) string { return map[string]string{"BROKER_API": server.URL}[name] }
		status := run(t.Context(), tc.args, world{getenv, &out, &errs, nil})
		if status != tc.status || out.String() != tc.said || errs.Len() > 0 {
			t.Errorf("%v: status %d, %q, %q", tc.args, status, out.String(), errs.String())
		}
	}
}
