// Package otlp sends traces of operations to a collector, as OTLP over HTTP.
//
// What always holds:
//
//   - An operation that is over becomes one span, and one for each of its legs, with
//     the times that were recorded of them. Nothing is measured for it.
//   - Attributes are the names in this file. Their values are ids and names of ours, and
//     words of closed lists: no argument, no result, no actor, no token, no URL, no text
//     of a server.
//   - It stands in nobody's way: a bounded number of spans waits for the collector. An
//     operation whose spans find no room, and a batch that the collector does not take,
//     are dropped and counted. Nothing is sent twice.
//   - Nothing of it is set by the environment (OTEL_…), and no error of it goes to the
//     library's own log.
//
// It is the only package that knows OpenTelemetry.
package otlp

import (
	"context"
	"net/http"
	"net/url"
	"time"

	library "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/trace"
)

const (
	// maxWaiting is how many spans may wait, those on their way included: some 300
	// operations, and 4 MiB.
	maxWaiting = 4096
	maxBatch   = 512
	every      = 2 * time.Second // a batch that is not full leaves
	patience   = 5 * time.Second // what a collector may take for one
)

// Config is what an Exporter works with; every field is needed but the last.
type Config struct {
	Collector *url.URL // to whose path v1/traces is added
	HTTP      *http.Client
	Version   string                      // of the broker
	Bearer    func() (secret.Text, error) // asked for each batch; nil: none is sent
}

// An Exporter sends traces.
type Exporter struct {
	provider *sdk.TracerProvider
	tracer   otel.Tracer
	outbox   *outbox
}

// New returns an Exporter. It must be closed.
func New(c Config) *Exporter {
	library.SetErrorHandler(library.ErrorHandlerFunc(func(error) {})) // it may quote the environment
	out := &outbox{}
	out.life, out.end = context.WithCancel(context.Background())
	out.to = otlptrace.NewUnstarted(client{c})
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(out, sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(every), sdk.WithExportTimeout(patience)),
		sdk.WithIDGenerator(places{}),
		sdk.WithSampler(sdk.AlwaysSample()), // what is not sampled is not given to it
		sdk.WithRawSpanLimits(sdk.SpanLimits{AttributeValueLengthLimit: 256, AttributeCountLimit: 32, EventCountLimit: 0, LinkCountLimit: 0}),
		sdk.WithResource(resource.Empty())) // see client.whose
	return &Exporter{provider, provider.Tracer("onbehalf.internal/broker"), out}
}

// Sent is how many spans the collector took.
func (e *Exporter) Sent() uint64 { return e.outbox.sent.Load() }

// Dropped is how many spans found no room, or were not taken.
func (e *Exporter) Dropped() uint64 { return e.outbox.dropped.Load() }

// Operation takes an operation that is over, all of its spans or none. What whoever
// began the trace does not want recorded is left out.
func (e *Exporter) Operation(o operation.Traced) {
	if !o.At.Sampled || !e.outbox.admit(1+len(o.Legs)) {
		return
	}
	ctx := context.Background()
	if !o.Parent.IsZero() {
		ctx = otel.ContextWithRemoteSpanContext(ctx, spanContext(o.Parent))
	}
	ctx, span := e.start(ctx, o.Kind, o.At, o.Began, kindOf(o), attributesOf(o))
	for _, leg := range o.Legs {
		e.leg(ctx, o.At, leg)
	}
	if o.Outcome.State != fault.Succeeded {
		span.SetStatus(codes.Error, "")
	}
	span.End(otel.WithTimestamp(o.Ended))
}

// kindOf says that only a call was somebody's request.
func kindOf(o operation.Traced) otel.SpanKind {
	if o.Kind == "call" {
		return otel.SpanKindServer
	}
	return otel.SpanKindInternal
}

func (e *Exporter) leg(ctx context.Context, below trace.Context, leg audit.Leg) {
	at := below.Child()
	if leg.Span != [8]byte{} { // its server was told
		at.Span = leg.Span
	}
	_, span := e.start(ctx, leg.Name, at, leg.Began, otel.SpanKindClient, []attribute.KeyValue{attribute.String("broker.reason", string(leg.Reason))})
	if leg.Reason != fault.None {
		span.SetStatus(codes.Error, "")
	}
	span.End(otel.WithTimestamp(leg.Began.Add(leg.Took)))
}

// attributesOf are all that is said of an operation. What is empty is said, too: so a
// query for it finds it.
func attributesOf(o operation.Traced) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("broker.operation", o.ID), attribute.Int("broker.attempt", o.Attempt),
		attribute.String("broker.caller", o.Caller), attribute.String("broker.server", o.Server), attribute.String("broker.tool", o.Tool),
		attribute.String("broker.state", string(o.Outcome.State)), attribute.String("broker.ran", string(o.Outcome.Ran)),
		attribute.String("broker.evidence", string(o.Outcome.Evidence)), attribute.String("broker.cause", string(o.Outcome.Cause)),
		attribute.String("broker.retry", string(o.Retry)),
	}
}

func (e *Exporter) start(ctx context.Context, name string, at trace.Context, began time.Time, kind otel.SpanKind, attributes []attribute.KeyValue) (context.Context, otel.Span) {
	return e.tracer.Start(context.WithValue(ctx, placeKey{}, at), name, otel.WithTimestamp(began), otel.WithSpanKind(kind), otel.WithAttributes(attributes...))
}

func spanContext(c trace.Context) otel.SpanContext {
	state, _ := otel.ParseTraceState(c.State) // what it does not take is not shown
	return otel.NewSpanContext(otel.SpanContextConfig{TraceID: c.Trace, SpanID: c.Span, TraceFlags: otel.FlagsSampled, TraceState: state, Remote: true})
}

// Close sends what waits, until ctx ends, and returns how many spans are left then: they
// are dropped. No more is taken from its beginning on.
func (e *Exporter) Close(ctx context.Context) (left int) {
	if e.outbox.closed.Swap(true) {
		return 0
	}
	_ = e.provider.Shutdown(ctx) // its only error is that ctx ended, which the rest says
	left = int(e.outbox.waiting.Load())
	e.outbox.end()
	return left
}

// places gives spans the ids that they have already.
type places struct{}

type placeKey struct{}

// NewIDs implements [sdk.IDGenerator].
func (p places) NewIDs(ctx context.Context) (otel.TraceID, otel.SpanID) {
	at := ctx.Value(placeKey{}).(trace.Context)
	return at.Trace, at.Span
}

// NewSpanID implements [sdk.IDGenerator].
func (p places) NewSpanID(ctx context.Context, _ otel.TraceID) otel.SpanID {
	_, id := p.NewIDs(ctx)
	return id
}
