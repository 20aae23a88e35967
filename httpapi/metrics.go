package httpapi

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"onbehalf.internal/broker/operation"
)

// Metrics are the broker's numbers. Labels come from closed lists (states,
// reasons, leg names, routes) and from the configuration (servers), never from
// the wire, so the number of series is bounded.
type Metrics struct {
	registry   *prometheus.Registry
	operations *prometheus.CounterVec
	duration   prometheus.Histogram
	legs       *prometheus.HistogramVec
	holds      *prometheus.CounterVec
	requests   *prometheus.CounterVec
}

// NewMetrics returns metrics in a registry of their own. running reports how
// many operations are open.
func NewMetrics(running func() int) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_operations_total", Help: "Operations that ended, by server, state and cause."}, []string{"server", "state", "cause"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "broker_operation_seconds", Help: "From begin to outcome.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 16)}),
		legs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "broker_leg_seconds", Help: "One leg.", Buckets: prometheus.ExponentialBuckets(0.0002, 2, 16)}, []string{"leg"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_holds_total", Help: "Holds by what became of them when the operation was answered."}, []string{"hold"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_http_requests_total", Help: "HTTP requests by route and status."}, []string{"route", "status"}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_operations_open", Help: "Operations being carried."},
		func() float64 { return float64(running()) })
	m.registry.MustRegister(m.operations, m.duration, m.legs, m.holds, m.requests, open)
	return m
}

// Ended counts an operation that ended.
func (m *Metrics) Ended(a operation.Answer) {
	m.operations.WithLabelValues(a.Server, string(a.Outcome.State), string(a.Outcome.Cause)).Inc()
	m.duration.Observe(a.Updated.Sub(a.Created).Seconds())
	for _, l := range a.Legs {
		m.legs.WithLabelValues(l.Name).Observe(l.Took.Seconds())
	}
	if a.Hold != "" {
		m.holds.WithLabelValues(a.Hold).Inc()
	}
}

func (m *Metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// Handler serves the metrics at /metrics, and nothing else.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}
