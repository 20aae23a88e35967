package httpapi_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"onbehalf.internal/broker/httpapi"
	"onbehalf.internal/broker/internal/testhttp"
)

// TestSlowClients: who sends a request byte by byte, half of it, or nothing after an answer
// keeps a connection for so long and no longer.
func TestSlowClients(t *testing.T) {
	const whole = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
	for _, tc := range []struct {
		name, send string
		every      time.Duration // between bytes
		took       time.Duration
	}{
		{"nothing at all", "", 0, 5 * time.Second},
		{"half a head", "POST / HTTP/1.1\r\nHost:", 0, 5 * time.Second},
		{"a head byte by byte", "POST / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 100), time.Second, 5 * time.Second},
		{"half a body", whole[:len(whole)-1], 0, 15 * time.Second},
		{"nothing after an answer", whole, 0, 60 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pipes := testhttp.OnServer(t, httpapi.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })))
				c, err := pipes.Dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				began := time.Now()
				var sender sync.WaitGroup
				sender.Go(func() {
					for i := range tc.send {
						io.WriteString(c, tc.send[i:i+1]) // fails once the server has hung up
						time.Sleep(tc.every)              // of the bubble's time
					}
				})
				io.Copy(io.Discard, c) // until the server hangs up
				// Newer versions of net/http leave an answer half a second before they hang up.
				if took := time.Since(began); took != tc.took && took != tc.took+500*time.Millisecond {
					t.Errorf("it was served for %v, want %v", took, tc.took)
				}
				sender.Wait()
			})
		})
	}
}
