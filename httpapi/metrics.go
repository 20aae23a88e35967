package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/vault"
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
	late       *prometheus.CounterVec
	requests   *prometheus.CounterVec
}

// NewMetrics returns metrics in a registry of their own. running reports how
// many operations are open, holding what package vault counts, and servers how the
// declared servers are.
func NewMetrics(running func() int, holding func() vault.Stats, servers func() []Server) *Metrics {
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
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_late_answers_total", Help: "Answers that came after their operations were cut off, by server and state."}, []string{"server", "state"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "broker_http_requests_total", Help: "HTTP requests by route and status."}, []string{"route", "status"}),
	}
	open := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "broker_operations_open", Help: "Operations being carried."},
		func() float64 { return float64(running()) })
	m.registry.MustRegister(m.operations, m.duration, m.legs, m.holds, m.late, m.requests, open, vaultNumbers(holding), serverNumbers(servers))
	return m
}

// Sink shows how many records of the audit are not in the file of its sink.
func (m *Metrics) Sink(behind func() uint64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "broker_audit_sink_behind", Help: "Records of the audit that are not in the file of audit.sink yet."},
		func() float64 { return float64(behind()) }))
}

// Traces shows what became of the spans of traces; see package trace/otlp.
func (m *Metrics) Traces(sent, dropped func() uint64) {
	for result, count := range map[string]func() uint64{"sent": sent, "dropped": dropped} {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "broker_trace_spans_total", Help: "Spans of traces that a collector took, or that were dropped.", ConstLabels: prometheus.Labels{"result": result}},
			func() float64 { return float64(count()) }))
	}
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

// Late counts an answer that came late.
func (m *Metrics) Late(a operation.Answer) {
	m.late.WithLabelValues(a.Server, string(a.Outcome.State)).Inc()
}

func (m *Metrics) request(route string, status int) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// Counted is next with its requests counted beside those of the API. route names a
// request by a closed list, once next has begun to answer it.
func (m *Metrics) Counted(next http.Handler, route func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &counted{ResponseWriter: w, answered: func(status int) { m.request(route(r), status) }}
		next.ServeHTTP(c, r)
		c.status(http.StatusOK)
	})
}

// A counted answer says its status once, when it begins: a stream may last.
type counted struct {
	http.ResponseWriter
	answered func(status int) // nil: it was said
}

func (c *counted) status(status int) {
	if c.answered != nil && status >= http.StatusOK {
		c.answered(status)
		c.answered = nil
	}
}

func (c *counted) WriteHeader(status int) {
	c.status(status)
	c.ResponseWriter.WriteHeader(status)
}

func (c *counted) Write(b []byte) (int, error) {
	c.status(http.StatusOK)
	return c.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// vaultNumbers are [vault.Stats] as they are when somebody asks: one look for all.
type vaultNumbers func() vault.Stats

var (
	holdsOpen     = prometheus.NewDesc("broker_holds_open", "Tokens that operations have in Vault now.", nil, nil)
	epochsAlive   = prometheus.NewDesc("broker_epochs_alive", "Short-lived Vault tokens of this broker that live.", nil, nil)
	dropsPending  = prometheus.NewDesc("broker_drops_pending", "Holds that are not needed any more and may still be in Vault.", nil, nil)
	oldestPending = prometheus.NewDesc("broker_drops_pending_oldest_seconds", "How long the oldest of them has been pending.", nil, nil)
	loginLeft     = prometheus.NewDesc("broker_vault_login_seconds", "What the login token has left to live; 0: there is none.", nil, nil)
	mints         = prometheus.NewDesc("broker_vault_mints_total", "Requests to Vault for an epoch, by result.", []string{"result"}, nil)
	revocations   = prometheus.NewDesc("broker_vault_revocations_total", "Revocations of epochs that were replaced, by result.", []string{"result"}, nil)
	drops         = prometheus.NewDesc("broker_vault_drops_total", "Drops of holds, every attempt of one, by result.", []string{"result"}, nil)
)

// Describe implements [prometheus.Collector].
func (vaultNumbers) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{holdsOpen, epochsAlive, dropsPending, oldestPending, loginLeft, mints, revocations, drops} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (stats vaultNumbers) Collect(out chan<- prometheus.Metric) {
	s := stats()
	gauge := func(d *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	gauge(holdsOpen, float64(s.Holds))
	gauge(epochsAlive, float64(s.Epochs))
	gauge(dropsPending, float64(s.Pending))
	gauge(oldestPending, s.Oldest.Seconds())
	gauge(loginLeft, life(s.Login))
	for d, byResult := range map[*prometheus.Desc]map[string]uint64{mints: s.Mints, revocations: s.Revocations, drops: s.Drops} {
		count := func(result string, n uint64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), result)
		}
		count("ok", byResult["ok"]) // also 0: increase() does not see the event that a series begins with
		for result, n := range byResult {
			if result != "ok" {
				count(result, n)
			}
		}
	}
}

// serverNumbers are the servers as they are when somebody asks.
type serverNumbers func() []Server

var (
	serverUp      = prometheus.NewDesc("broker_server_up", "Whether the last probe found the server up; absent: there was none.", []string{"server"}, nil)
	serverContact = prometheus.NewDesc("broker_server_contact_timestamp_seconds", "When the server last answered an operation, an import or a probe.", []string{"server"}, nil)
	serverChanged = prometheus.NewDesc("broker_server_tools_changed", "Tools that are refused: they are not what is pinned, or came back.", []string{"server"}, nil)
)

// Describe implements [prometheus.Collector].
func (serverNumbers) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{serverUp, serverContact, serverChanged} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (servers serverNumbers) Collect(out chan<- prometheus.Metric) {
	for _, s := range servers() {
		gauge := func(d *prometheus.Desc, value float64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, s.ID)
		}
		if s.Health.Is != "" {
			gauge(serverUp, map[bool]float64{true: 1}[s.Health.Is == "up"])
		}
		if !s.Health.Contact.IsZero() {
			gauge(serverContact, float64(s.Health.Contact.UnixMilli())/1000)
		}
		gauge(serverChanged, float64(len(s.Changed)))
	}
}

func life(d time.Duration) float64 {
	if d == math.MaxInt64 {
		return math.Inf(1)
	}
	return d.Seconds()
}

// Handler serves the metrics at /metrics, and nothing else.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return mux
}
