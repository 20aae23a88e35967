package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// An outbox bounds and counts the spans that wait. The library's own queue is as long
// and so never full: what it drops it would not tell.
type outbox struct {
	to            sdk.SpanExporter
	waiting       atomic.Int64
	sent, dropped atomic.Uint64
	closed        atomic.Bool
	life          context.Context // until end: what is on its way is broken off
	end           context.CancelFunc
}

// admit makes room for n spans, or drops them.
func (o *outbox) admit(n int) bool {
	if o.waiting.Add(int64(n)) <= maxWaiting && !o.closed.Load() {
		return true
	}
	o.waiting.Add(-int64(n))
	o.dropped.Add(uint64(n))
	return false
}

// ExportSpans implements [sdk.SpanExporter]. It has no error: the library would log it.
func (o *outbox) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.life, cancel)()
	if o.to.ExportSpans(ctx, spans) != nil {
		o.dropped.Add(uint64(len(spans)))
	} else {
		o.sent.Add(uint64(len(spans)))
	}
	o.waiting.Add(-int64(len(spans)))
	return nil
}

// Shutdown implements [sdk.SpanExporter].
func (o *outbox) Shutdown(context.Context) error { return nil }

// A client puts one batch into one request.
type client struct{ Config }

// Start implements [otlptrace.Client].
func (client) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (client) Stop(context.Context) error { return nil }

var errNotTaken = errors.New("the collector did not take it")

const maxAnswer = 64 << 10

// UploadTraces implements [otlptrace.Client]. TracesData has the bytes of an
// ExportTraceServiceRequest (opentelemetry-proto, trace.proto), whose package would link gRPC.
func (c client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	for _, s := range spans {
		s.Resource = c.whose()
	}
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Collector.JoinPath("v1/traces").String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "onbehalf-broker/"+c.Version)
	if c.Bearer != nil {
		bearer, err := c.Bearer()
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+bearer.Reveal())
	}
	res, err := c.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errNotTaken
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // so that the connection may be used again
	return err
}

// whose says whose spans they are. The library would add OTEL_RESOURCE_ATTRIBUTES.
func (c client) whose() *resourcepb.Resource {
	text := func(key, value string) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
	}
	return &resourcepb.Resource{Attributes: []*commonpb.KeyValue{text("service.name", "onbehalf-broker"), text("service.version", c.Version)}}
}
