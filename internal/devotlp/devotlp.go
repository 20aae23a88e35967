// Package devotlp is a collector of OpenTelemetry on loopback, for tests: OTLP over
// HTTP, in protobuf, which it decodes by the published schema.
package devotlp

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A Span is a span that has arrived.
type Span struct {
	Name, Kind, State    string // State is tracestate
	Trace, ID, Parent    string // hexadecimal
	Attributes, Resource map[string]string
	Failed               bool
	Began, Ended         time.Time
}

// A Collector is running from [Start] to [Collector.Close].
type Collector struct {
	URL  string
	http *http.Server

	mu       sync.Mutex // guards all below
	spans    []Span
	bodies   [][]byte
	headers  []http.Header
	breakage http.HandlerFunc
	changed  chan struct{} // closed, and made anew, when something has arrived
}

// Start starts a collector.
func Start() (*Collector, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{URL: "http://" + ln.Addr().String(), changed: make(chan struct{})}
	c.http = &http.Server{Handler: http.HandlerFunc(c.serve), ReadHeaderTimeout: 10 * time.Second}
	go c.http.Serve(ln)
	return c, nil
}

// Close ends the collector and every request that it has not answered.
func (c *Collector) Close() error { return c.http.Close() }

// Break puts f in the place of the collector from the next request on; nil takes it
// away. What f answers has arrived, and counts for no spans.
func (c *Collector) Break(f http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breakage = f
}

// Spans are those that have arrived, in order.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Requests are the bodies and the headers of all requests, in order.
func (c *Collector) Requests() (bodies [][]byte, headers []http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(bodies, c.bodies...), append(headers, c.headers...)
}

// Await waits until holds is true. It asks again whenever something has arrived.
func (c *Collector) Await(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		changed := c.changed // before asking, so that no change is missed
		c.mu.Unlock()
		if holds() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var data tracepb.TracesData
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/traces":
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Header.Get("Content-Type") != "application/x-protobuf":
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	case err != nil || proto.Unmarshal(body, &data) != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	broken := c.take(body, r.Header, &data)
	if broken != nil {
		broken(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty answer: all was taken
}

func (c *Collector) take(body []byte, h http.Header, data *tracepb.TracesData) http.HandlerFunc {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodies, c.headers = append(c.bodies, body), append(c.headers, h)
	if c.breakage == nil {
		c.spans = append(c.spans, spansOf(data)...)
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return c.breakage
}

func spansOf(data *tracepb.TracesData) (all []Span) {
	for _, of := range data.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, Span{
					Name: s.Name, Kind: s.Kind.String(), State: s.TraceState,
					Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Attributes: valuesOf(s.Attributes), Resource: valuesOf(of.Resource.GetAttributes()), Failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR,
					Began: time.Unix(0, int64(s.StartTimeUnixNano)), Ended: time.Unix(0, int64(s.EndTimeUnixNano)),
				})
			}
		}
	}
	return all
}

func valuesOf(list []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range list {
		if v, isText := kv.Value.GetValue().(*commonpb.AnyValue_StringValue); isText {
			all[kv.Key] = v.StringValue
		} else {
			all[kv.Key] = kv.Value.String()
		}
	}
	return all
}
