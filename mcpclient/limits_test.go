package mcpclient_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// TestLimits: each bound works at its limit, and one more is refused. The
// limits are set, so that the row shows that the key is what counts.
func TestLimits(t *testing.T) {
	const envelope = `{"jsonrpc":"2.0","id":"$ID","result":{"content":[],"x":"%s"}}`
	// padded is the envelope with as much padding as makes n bytes once the id is in it.
	padded := func(n int) func(q question) string {
		return func(q question) string {
			s := strings.ReplaceAll(envelope, "$ID", q.id)
			return fmt.Sprintf(s, strings.Repeat("x", n-len(s)+len("%s")))
		}
	}
	body := func(n int) answer {
		return func(w http.ResponseWriter, q question) { raw("application/json", padded(n)(q))(w, q) }
	}
	event := func(n int) answer { // counted with "data: " and the kind "message"
		return func(w http.ResponseWriter, q question) {
			raw("text/event-stream", "data: "+padded(n-len("data: ")-len("message"))(q)+"\n\n")(w, q)
		}
	}
	streamOf := func(n int) answer {
		return func(w http.ResponseWriter, q question) {
			last := "data: " + strings.ReplaceAll(fmt.Sprintf(envelope, ""), "$ID", q.id) + "\n\n"
			raw("text/event-stream", ":"+strings.Repeat("x", n-len(last)-2)+"\n"+last)(w, q)
		}
	}
	eventsOf := func(n int) answer {
		return raw("text/event-stream", strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n", n-1)+
			"data: "+fmt.Sprintf(envelope, "")+"\n\n")
	}
	errorBody := func(n int) answer {
		s := `{"jsonrpc":"2.0","id":null,"error":{"code":-32021,"message":"%s"}}`
		return status(400, fmt.Sprintf(s, strings.Repeat("x", n-len(s)+len("%s"))))
	}
	head := func(n int) answer {
		return func(w http.ResponseWriter, q question) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			defer conn.Close()
			const first = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX: "
			fmt.Fprint(conn, first+strings.Repeat("x", n-len(first)-4)+"\r\n\r\n"+strings.ReplaceAll(fmt.Sprintf(envelope, ""), "$ID", q.id))
		}
	}
	nested := func(n int) answer { // the envelope and the result are two levels
		return result(`{"content":[],"x":` + strings.Repeat("[", n-2) + strings.Repeat("]", n-2) + `}`)
	}
	for _, r := range []struct {
		name   string
		limits policy.Limits
		at     func(int) answer
		limit  int
		want   fault.Reason // one above
	}{
		{"body", policy.Limits{Body: 5000}, body, 5000, fault.ReplyTooLarge},
		{"body by default", policy.Limits{}, body, 2 << 20, fault.ReplyTooLarge},
		{"event", policy.Limits{Event: 5000}, event, 5000, fault.ReplyTooLarge},
		{"event by default", policy.Limits{}, event, 2 << 20, fault.ReplyTooLarge},
		{"stream", policy.Limits{Stream: 5000}, streamOf, 5000, fault.ReplyTooLarge},
		{"stream by default", policy.Limits{Event: 64 << 20}, streamOf, 8 << 20, fault.ReplyTooLarge},
		{"events", policy.Limits{Events: 7}, eventsOf, 7, fault.ReplyTooLarge},
		{"events by default", policy.Limits{}, eventsOf, 1000, fault.ReplyTooLarge},
		{"head", policy.Limits{Head: 2000}, head, 2000, fault.ReplyTooLarge},
		{"head by default", policy.Limits{}, head, 64 << 10, fault.ReplyTooLarge},
		{"depth", policy.Limits{Depth: 9}, nested, 9, fault.ReplyMalformed},
		{"depth by default", policy.Limits{}, nested, 64, fault.ReplyMalformed},
		{"more depth", policy.Limits{Depth: 256}, nested, 256, fault.ReplyMalformed},
		{"error body", policy.Limits{ErrorBody: 300}, errorBody, 300, fault.Intermediary},
		{"error body by default", policy.Limits{}, errorBody, 64 << 10, fault.Intermediary},
	} {
		t.Run(r.name, func(t *testing.T) {
			for n, want := range map[int]fault.Reason{r.limit: fault.None, r.limit + 1: r.want} {
				if r.want == fault.Intermediary && n == r.limit {
					want = fault.CapabilityMissing // it was read
				}
				s := modern(r.at(n))
				server := s.server(t, policy.EraModern)
				server.Limits = r.limits
				if rep := call(t, mcpclient.New(mcpclient.Config{}), server, open()); rep.Outcome.Cause != want {
					t.Errorf("%d: %+v, want cause %q", n, rep.Outcome, want)
				}
			}
		})
	}
}

// TestListLimits is the same for what is counted while a list is walked.
func TestListLimits(t *testing.T) {
	for _, r := range []struct {
		name   string
		limits policy.Limits
		at     func(int) []answer
		limit  int
	}{
		{"pages", policy.Limits{Pages: 3}, pages, 3},
		{"pages by default", policy.Limits{}, pages, 50},
		{"tools", policy.Limits{Tools: 7}, func(n int) []answer { return []answer{page(5, "x"), page(n-5, "-")} }, 7},
		{"tools by default", policy.Limits{}, func(n int) []answer { return []answer{page(5, "x"), page(n-5, "-")} }, 500},
		{"cursor", policy.Limits{Cursor: 20}, func(n int) []answer { return []answer{page(1, strings.Repeat("x", n)), page(1, "-")} }, 20},
		{"cursor by default", policy.Limits{}, func(n int) []answer { return []answer{page(1, strings.Repeat("x", n)), page(1, "-")} }, 4 << 10},
	} {
		t.Run(r.name, func(t *testing.T) {
			for n, want := range map[int]fault.Reason{r.limit: fault.None, r.limit + 1: fault.ReplyTooLarge} {
				s := modern()
				s.lines[toolsList] = r.at(n)
				server := s.server(t, policy.EraModern)
				server.Limits = r.limits
				talk := mcpclient.New(mcpclient.Config{}).Open(server)
				l, rep := talk.ListTools(within(t, 5*time.Second), open(), nil)
				talk.Close()
				if rep.Outcome.Cause != want || (want == fault.None) != (len(l.Tools) > 0) {
					t.Errorf("%d: %d tools, %+v, want cause %q", n, len(l.Tools), rep.Outcome, want)
				}
			}
		})
	}
}

// TestNumericIDs: for servers that break on text; still nobody else's.
func TestNumericIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 3 {
		s := legacy(raw("application/json", `{"jsonrpc":"2.0","id":$ID,"result":`+good+`}`))
		s.lines[initialize] = []answer{raw("application/json", `{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-11-25"}}`)}
		server := s.server(t, policy.EraLegacy)
		server.NumericIDs = true
		if rep := call(t, mcpclient.New(mcpclient.Config{}), server, open()); rep.Outcome.State != fault.Succeeded {
			t.Errorf("%+v", rep.Outcome)
		}
		for _, q := range s.asked {
			if q.method == initialized {
				continue
			}
			if len(q.id) < 10 || len(q.id) > 16 || seen[q.id] || strings.Trim(q.id, "0123456789") != "" || !strings.Contains(q.body, `"id":`+q.id+`,`) {
				t.Errorf("id %q in %s", q.id, q.body)
			}
			seen[q.id] = true
		}
	}
	s := modern(raw("application/json", `{"jsonrpc":"2.0","id":"$ID","result":`+good+`}`))
	server := s.server(t, policy.EraModern)
	server.NumericIDs = true
	if rep := call(t, mcpclient.New(mcpclient.Config{}), server, open()); rep.Outcome != fault.Doubt(fault.ReplyMismatched) {
		t.Errorf("a number that comes back as text: %+v, want reply_mismatched", rep.Outcome)
	}
}
