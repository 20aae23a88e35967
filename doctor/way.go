package doctor

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"onbehalf.internal/broker/egress"
)

// A Sign shows that something answers on the way, and what that does to a call.
type Sign struct {
	Who     string
	Cuts    time.Duration // a request that takes longer, unless it is told otherwise; 0: none
	Repeats string        // when it sends a request again
	do      string        // "%s" is how long it should wait
}

// signs are headers by which they show themselves. The first that fits counts.
var signs = []struct {
	header, begins string // of the value; "": any
	sign           Sign
}{
	{"Server", "istio-envoy", istio},
	{"X-Envoy-Peer-Metadata-Id", "", istio},
	{"Server", "envoy", envoy},
	{"X-Envoy-Upstream-Service-Time", "", envoy},
	{"X-Kong-Upstream-Latency", "", kong},
	{"X-Kong-Response-Latency", "", kong},
	{"Server", "cloudflare", Sign{"Cloudflare", 100 * time.Second, "", "a longer Proxy Read Timeout, or no proxy for this name"}},
	{"Server", "awselb", Sign{"an AWS load balancer", time.Minute, "", "idle_timeout.timeout_seconds of at least %s"}},
	{"Via", "1.1 google", Sign{"a Google load balancer", 30 * time.Second, "", "timeoutSec of the backend service of at least %s"}},
	{"Server", "nginx", nginx},
	{"Server", "openresty", nginx},
	{"Via", "", Sign{"a proxy that names itself in Via", 0, "as it is configured", "let it repeat nothing, and wait for %s"}},
}

var (
	istio = Sign{"Istio's Envoy", 0, "twice, when a connection fails or is reset, and before Istio 1.24 also after a 503: by then a call may have run",
		"in the VirtualService of this host: retries: {attempts: 0}, timeout: %s"}
	envoy = Sign{"Envoy", 15 * time.Second, "where its route has a retry_policy", "on this route: no retry_policy, timeout: %s"}
	kong  = Sign{"Kong", time.Minute, "up to five times, where it could not connect", "of this service: retries: 0, read_timeout of %s"}
	nginx = Sign{"nginx", time.Minute, "a POST only where proxy_next_upstream says non_idempotent", "proxy_next_upstream off; proxy_read_timeout %s; proxy_buffering off;"}
)

// Signs says what stands on the way that an answer came, by the answer's headers; false:
// nothing that shows itself.
func Signs(h http.Header) (Sign, bool) {
	for _, s := range signs {
		values := h.Values(s.header)
		if len(values) > 0 && strings.HasPrefix(strings.ToLower(values[0]), s.begins) {
			return s.sign, true
		}
	}
	return Sign{}, false
}

// Finding is what s means for calls that may take so long.
func (s Sign) Finding(about string, call time.Duration) Finding {
	says := s.Who + " stands on this way"
	if s.Cuts > 0 {
		says += fmt.Sprintf("; it gives up after %s unless it is told otherwise", s.Cuts)
		if s.Cuts < call {
			says += fmt.Sprintf(", and a call may take %s", call)
		}
	}
	if s.Repeats != "" {
		says += "; it sends again: " + s.Repeats
	}
	return note(about, says, strings.ReplaceAll(s.do, "%s", (call+grace).String()))
}

// An end is somebody else's host.
type end struct {
	about string
	host  egress.Host
	call  time.Duration // how long it may be waited for
}

// ends are the hosts of the providers and servers in use, each once.
func (e *examination) ends() (ends []end) {
	seen := map[string]bool{}
	add := func(to *url.URL, cidrs []netip.Prefix, ca *x509.CertPool, name string, call time.Duration) {
		if !seen[to.Host] {
			seen[to.Host] = true
			ends = append(ends, end{"way to " + to.Host, egress.Host{URL: to, AllowCIDRs: cidrs, CA: ca, ServerName: name}, call})
		}
	}
	for _, v := range e.used() {
		p, _ := e.snapshot.Profile(v.Auth.Profile)
		for ; p != nil; p = p.Then {
			add(p.TokenEndpoint, p.AllowCIDRs, p.CA, p.ServerName, e.snapshot.Timeout)
		}
		add(v.URL, v.AllowCIDRs, v.CA, "", e.snapshot.Longest())
	}
	return ends
}

// ways asks each end for nothing, without a credential, and looks at what its answer
// went through: proxies, clock and certificate. Whether it answers as it should is not
// asked here.
func (e *examination) ways(ctx context.Context) []Finding {
	return each(ctx, few, e.ends(), func(w end) string { return w.about }, e.way)
}

func (e *examination) way(ctx context.Context, w end) []Finding {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, w.host.URL.String(), nil)
	if err != nil {
		return nil
	}
	began := e.Now()
	res, err := egress.NewClient(w.host, 0).Do(req)
	if err != nil {
		return nil // its provider, or its server, is not well: that is said there
	}
	defer res.Body.Close()
	took := e.Now().Sub(began)
	var findings []Finding
	if sign, shows := Signs(res.Header); shows {
		findings = append(findings, sign.Finding(w.about, w.call))
	}
	if date, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		if f := clock(w.about, date, began, took); f.State != OK {
			findings = append(findings, f)
		}
	}
	if res.TLS != nil {
		findings = append(findings, e.certificate(w.about, res.TLS.PeerCertificates[0])...)
	}
	if findings == nil {
		findings = []Finding{ok(w.about, "nothing shows itself on it, and the clocks agree")}
	}
	return findings
}

func (e *examination) certificate(about string, c *x509.Certificate) []Finding {
	const soon, late = 21 * 24 * time.Hour, 3 * 24 * time.Hour
	left := c.NotAfter.Sub(e.Now())
	says := fmt.Sprintf("its certificate ends on %s", c.NotAfter.Format(time.DateOnly))
	switch {
	case left < late:
		return []Finding{wrong(about, says, "have it renewed: nothing is sent to it after that day")}
	case left < soon:
		return []Finding{note(about, says, "have it renewed in time")}
	}
	return nil
}
