package devidp

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// Fail answers the next n requests with status and an RFC 6749 §5.2 error code,
// before anything took effect; what comes after them is served.
func Fail(n int, status int, code string) func(http.Handler) http.Handler {
	var left atomic.Int64
	left.Store(int64(n))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if left.Add(-1) < 0 {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(map[string]string{"error": code})
		})
	}
}

// Redirect sends the client elsewhere, with 307: a client that follows carries
// its form there.
func Redirect(to string) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler { return http.RedirectHandler(to, http.StatusTemporaryRedirect) }
}

// Hang does not answer until the client goes away, and nothing takes effect.
func Hang(http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// CutBefore ends the connection before anything took effect.
func CutBefore(http.Handler) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

// CutAfter serves the request and ends the connection in place of the answer:
// a token was issued, and nobody has it.
func CutAfter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
