package doctor

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/store"
)

func TestDisk(t *testing.T) {
	for _, tc := range []struct {
		name  string
		disk  store.Disk
		state State
	}{
		{"room", store.Disk{Size: 100 << 30, Free: 50 << 30}, OK},
		{"little", store.Disk{Size: 100 << 30, Free: 2<<30 - 1}, Note},
		{"nearly none", store.Disk{Size: 100 << 30, Free: 256<<20 - 1}, Wrong},
		{"none", store.Disk{Size: 100 << 30}, Wrong},
		{"none in memory", store.Disk{Size: 1 << 30, Passing: "tmpfs"}, Wrong},
		{"room in memory", store.Disk{Size: 10 << 30, Free: 5 << 30, Passing: "tmpfs"}, Note},
		{"room in a container's own layer", store.Disk{Size: 100 << 30, Free: 50 << 30, Passing: "overlay"}, Note},
		{"not known", store.Disk{}, Note},
	} {
		if f := disk("disk", "/var/lib/broker", tc.disk); f.State != tc.state || (f.State == OK) != (f.Do == "") {
			t.Errorf("%s: %+v, want %s", tc.name, f, tc.state)
		}
	}
}

func TestClock(t *testing.T) {
	for _, tc := range []struct {
		ahead, took time.Duration
		state       State
		says        string
	}{
		{0, time.Millisecond, OK, "no more than 2s apart"},
		{-2 * time.Second, time.Millisecond, OK, ""},
		{3 * time.Second, 2 * time.Second, OK, "no more than 4s apart"}, // a slow answer says little
		{-3500 * time.Millisecond, 2 * time.Second, OK, ""},             // in the middle of it
		{4500 * time.Millisecond, 2 * time.Second, Wrong, "ahead of it"},
		{3 * time.Second, time.Millisecond, Wrong, "ours is 3s ahead of it"},
		{-time.Hour, time.Millisecond, Wrong, "ours is 1h0m0s behind it"},
	} {
		other := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
		asked := other.Add(time.Second/2 + tc.ahead - tc.took/2)
		if f := clock("clock", other, asked, tc.took); f.State != tc.state || !strings.Contains(f.Says, tc.says) {
			t.Errorf("%s in %s: %+v, want %s, %q", tc.ahead, tc.took, f, tc.state, tc.says)
		}
	}
}

func TestCertificate(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	e := &examination{Doctor: &Doctor{Now: func() time.Time { return now }}}
	for days, want := range map[int]State{90: "", 22: "", 20: Note, 4: Note, 2: Wrong, -1: Wrong} {
		got := State("")
		for _, f := range e.certificate("way", &x509.Certificate{NotAfter: now.AddDate(0, 0, days)}) {
			got = f.State
		}
		if got != want {
			t.Errorf("in %d days: %q, want %q", days, got, want)
		}
	}
}

func TestSigns(t *testing.T) {
	for _, tc := range []struct{ header, value, who string }{
		{"Server", "istio-envoy", "Istio's Envoy"},
		{"Server", "envoy", "Envoy"},
		{"X-Envoy-Upstream-Service-Time", "3", "Envoy"},
		{"Server", "nginx/1.29.1", "nginx"},
		{"Server", "openresty/1.27", "nginx"},
		{"Server", "cloudflare", "Cloudflare"},
		{"Server", "awselb/2.0", "an AWS load balancer"},
		{"Via", "1.1 google", "a Google load balancer"},
		{"Via", "1.1 kong/3.9", "a proxy that names itself in Via"},
		{"X-Kong-Upstream-Latency", "3", "Kong"},
		{"Via", "1.1 \x1b[2J", "a proxy that names itself in Via"},
		{"Server", "uvicorn", ""},
		{"Server", "", ""},
		{"X-Powered-By", "Express", ""},
	} {
		sign, shows := Signs(http.Header{tc.header: {tc.value}})
		if sign.Who != tc.who || shows != (tc.who != "") {
			t.Errorf("%s: %q is %q", tc.header, tc.value, sign.Who)
		}
		if f := sign.Finding("way", 20*time.Second); shows && (f.State != Note || strings.Contains(f.Says+f.Do, "%") || strings.Contains(f.Says, "\x1b") || f.Do == "") {
			t.Errorf("%q: %+v", tc.value, f)
		}
	}
	if f := envoy.Finding("way", 20*time.Second); !strings.Contains(f.Says, "gives up after 15s unless it is told otherwise, and a call may take 20s") || !strings.Contains(f.Do, "timeout: 25s") {
		t.Errorf("%+v", f)
	}
	if f := envoy.Finding("way", 10*time.Second); strings.Contains(f.Says, "a call may take") {
		t.Errorf("%+v", f)
	}
}

// TestRemedies: what stands here is a reason that there is.
func TestRemedies(t *testing.T) {
	for r := range remedies {
		if !slices.Contains(fault.Reasons(), r) {
			t.Errorf("%s is no reason", r)
		}
	}
	if !strings.Contains(Remedy(fault.HoldFailed), "docs/outcomes.md") {
		t.Error("a reason without a remedy leads nowhere")
	}
}

// TestUses: every credential that a configuration names is asked for, each once, and of
// grants as many as there is room for.
func TestUses(t *testing.T) {
	s, err := policy.Load("../configs/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, left := uses(s)
	seen := map[string]bool{}
	for _, u := range all {
		what := u.Read.String() + u.Replace.String() + u.Sign.String() + u.Wrap.String() + u.Role
		if nothing(u) || u.For == "" || seen[what+u.For] {
			t.Errorf("%+v", u)
		}
		seen[what+u.For] = true
	}
	if len(all) < 4 || left != 0 {
		t.Errorf("%d uses, %d are left", len(all), left)
	}
}

// TestDefects: what panics while it is looked at is a finding, and what there was no time
// for is one.
func TestDefects(t *testing.T) {
	s, err := policy.Load("../configs/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &Doctor{Policy: policy.NewHolder(s)} // without anything else
	findings, err := d.Examine(t.Context(), identity.Caller{})
	defects := 0
	for _, f := range findings {
		if f.Says == "not looked at: a defect of the broker's own" {
			defects++
		}
	}
	if err != nil || defects < 3 {
		t.Errorf("%d defects, %v: %+v", defects, err, findings)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late := each(ended, few, []string{"a", "b"}, func(s string) string { return s }, func(context.Context, string) []Finding { t.Error("looked"); return nil })
	if len(late) != 2 || late[1].About != "b" || late[1].State != Wrong || !strings.Contains(late[1].Says, "the time for an examination was over") {
		t.Errorf("%+v", late)
	}
}
