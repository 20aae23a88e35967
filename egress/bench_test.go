package egress_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"onbehalf.internal/broker/egress"
)

// BenchmarkExchange compares a line with an http.Transport. Fresh is a
// connection per request, which is what an operation with one leg costs.
func BenchmarkExchange(b *testing.B) {
	p := listen(b, func(_ int64, c net.Conn, r *bufio.Reader) {
		for take(r) {
			io.WriteString(c, ok)
		}
	})
	read := func(b *testing.B, res *http.Response, err error) {
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	b.Run("fresh line", func(b *testing.B) {
		for b.Loop() {
			l := egress.NewLine(p.host)
			res, err := l.Do(b.Context(), post(p.host, "{}"), open)
			read(b, res, err)
			l.Close()
		}
	})
	b.Run("kept line", func(b *testing.B) {
		l := lineTo(b, p.host)
		for b.Loop() {
			res, err := l.Do(b.Context(), post(p.host, "{}"), open)
			read(b, res, err)
		}
	})
	for name, t := range map[string]*http.Transport{"fresh transport": {DisableKeepAlives: true}, "kept transport": {}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				res, err := t.RoundTrip(post(p.host, "{}"))
				read(b, res, err)
			}
			t.CloseIdleConnections()
		})
	}
}
