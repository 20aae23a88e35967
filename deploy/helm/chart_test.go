//go:build real

// Package helm_test renders the chart with Helm itself and looks at what a
// cluster would get.
package helm_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"onbehalf.internal/broker"
	"onbehalf.internal/broker/internal/counterparts"
	"onbehalf.internal/broker/policy"
)

// An object is one of those that the chart renders, with what is looked at here.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string // of a ConfigMap
	Spec     struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		Template    struct {
			Metadata struct{ Annotations map[string]string }
			Spec     pod
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`

		PolicyTypes     []string `yaml:"policyTypes"` // of a NetworkPolicy
		Ingress, Egress []any
		Ports           []any // of a Service
	}
}

type pod struct {
	Automount       *bool `yaml:"automountServiceAccountToken"`
	Grace           int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext struct {
		FSGroup int `yaml:"fsGroup"`
	} `yaml:"securityContext"`
	Containers     []container
	InitContainers []container `yaml:"initContainers"`
	Volumes        []struct {
		Name      string
		Projected struct {
			Sources []struct {
				ServiceAccountToken struct{ Path, Audience string } `yaml:"serviceAccountToken"`
			}
		}
		Secret struct {
			DefaultMode int `yaml:"defaultMode"`
		}
	}
}

type container struct {
	Name, Image     string
	Args            []string
	RestartPolicy   string `yaml:"restartPolicy"`
	Env             []struct{ Name, Value string }
	StartupProbe    struct{ Exec struct{ Command []string } } `yaml:"startupProbe"`
	ReadinessProbe  struct{ Exec struct{ Command []string } } `yaml:"readinessProbe"`
	SecurityContext map[string]any                            `yaml:"securityContext"`
	VolumeMounts    []struct {
		Name     string
		ReadOnly bool `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

// helm runs it on the chart, away from the plug-ins and caches of whoever runs
// the test.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(counterparts.Helm(t), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=/nowhere"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return errs.String(), err
	}
	return out.String(), nil
}

// conform holds manifests against the schemas beside the chart, which know every
// field.
func conform(t *testing.T, manifests string) {
	t.Helper()
	cmd := exec.Command(counterparts.Kubeconform(t), "-strict", "-schema-location", "schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// render returns the objects by their kinds; the ConfigMap of a sidecar's example
// as "Example".
func render(t *testing.T, args ...string) map[string]object {
	t.Helper()
	manifests, err := helm(t, append([]string{"template", "r", "."}, args...)...)
	if err != nil {
		t.Fatal(manifests)
	}
	conform(t, manifests)
	objects := map[string]object{}
	for part := range strings.SplitSeq(manifests, "\n---\n") {
		var o object
		if err := yaml.Load([]byte(strings.TrimPrefix(part, "---\n")), &o); err != nil {
			t.Fatalf("%v\n%s", err, part)
		}
		if o.Data["pod.yaml"] != "" {
			o.Kind = "Example"
		}
		if objects[o.Kind].Kind != "" {
			t.Errorf("two objects are a %s", o.Kind)
		}
		objects[o.Kind] = o
	}
	return objects
}

// load writes a ConfigMap as a kubelet does, behind links, and reads it as
// `broker check` does.
func load(t *testing.T, data map[string]string) *policy.Snapshot {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range data {
		err := os.WriteFile(filepath.Join(dir, "..data", name), []byte(text), 0o644)
		if err == nil {
			err = os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := policy.Load(filepath.Join(dir, "profiles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

var values = map[string][]string{
	"default":    nil,
	"standalone": {"-f", "ci/standalone-values.yaml"},
	"sidecar":    {"-f", "ci/sidecar-values.yaml"},
	"accepted":   {"-f", "ci/standalone-values.yaml", "--set", "mode=sidecar,perPodKeys=accepted"},
}

// TestChart: whatever the values, the configuration loads, the pod may take as
// long as it says, and the broker can do no more than it needs.
func TestChart(t *testing.T) {
	for name, args := range values {
		t.Run(name, func(t *testing.T) {
			if out, err := helm(t, append([]string{"lint", "--strict", "."}, args...)...); err != nil {
				t.Error(out)
			}
			objects := render(t, args...)
			snapshot := load(t, objects["ConfigMap"].Data)
			grace := snapshot.Stop.Grace
			p := objects["StatefulSet"].Spec.Template.Spec
			containers := p.Containers
			if text := objects["Example"].Data["pod.yaml"]; text != "" {
				conform(t, text)
				var example struct{ Spec pod }
				if err := yaml.Load([]byte(text), &example); err != nil {
					t.Fatal(err)
				}
				p, containers, grace = example.Spec, example.Spec.InitContainers, grace+30*time.Second // the gateway's
				if containers[0].RestartPolicy != "Always" {
					t.Error("the sidecar would have to end before the gateway starts")
				}
			}
			if p.Grace != int(grace/time.Second) {
				t.Errorf("the pod may take %d s, and its broker %v", p.Grace, grace)
			}
			judge(t, p, containers[0], snapshot)
		})
	}
}

// judge: not root, nothing to write to but its state, no token but the one for
// Vault.
func judge(t *testing.T, p pod, c container, s *policy.Snapshot) {
	t.Helper()
	if p.Automount == nil || *p.Automount || p.SecurityContext.FSGroup != 65532 {
		t.Errorf("the cluster's token is mounted: %v; group %d", p.Automount, p.SecurityContext.FSGroup)
	}
	sc := c.SecurityContext
	drop, _ := sc["capabilities"].(map[string]any)
	seccomp, _ := sc["seccompProfile"].(map[string]any)
	all, _ := drop["drop"].([]any)
	if sc["runAsNonRoot"] != true || sc["runAsUser"] != 65532 || sc["readOnlyRootFilesystem"] != true || sc["allowPrivilegeEscalation"] != false ||
		len(drop) != 1 || !slices.Equal(all, []any{"ALL"}) || seccomp["type"] != "RuntimeDefault" {
		t.Errorf("security %v", sc)
	}
	for _, m := range c.VolumeMounts {
		if m.ReadOnly == (m.Name == "broker-state") {
			t.Errorf("%s: read-only %t", m.Name, m.ReadOnly)
		}
	}
	for _, v := range p.Volumes {
		if v.Name == "broker-secrets" && v.Secret.DefaultMode != 0o440 {
			t.Errorf("the secret's files have mode %o", v.Secret.DefaultMode)
		}
		if v.Name == "broker-vault" && (v.Projected.Sources[0].ServiceAccountToken.Audience != "vault" ||
			s.Vault.Auth.JWTFile != "/var/run/secrets/vault/"+v.Projected.Sources[0].ServiceAccountToken.Path) {
			t.Errorf("the broker reads %s, and gets %v", s.Vault.Auth.JWTFile, v.Projected)
		}
	}
	if !slices.Equal(c.StartupProbe.Exec.Command, []string{"/broker", "health"}) || !slices.Equal(c.ReadinessProbe.Exec.Command, []string{"/broker", "health", "--ready"}) {
		t.Errorf("probes %v, %v", c.StartupProbe, c.ReadinessProbe)
	}
	for _, e := range c.Env {
		if e.Name == "BROKER_API" && e.Value != "http://"+s.Listen.API || strings.Contains(strings.ToLower(e.Name), "token") {
			t.Errorf("the environment has %s=%s", e.Name, e.Value)
		}
	}
	if !slices.Equal(c.Args, []string{"serve", "--config", "/etc/broker/profiles.yaml"}) {
		t.Errorf("arguments %q", c.Args)
	}
}

// TestStandalone: one pod with a volume; closed, but for what the values let in.
func TestStandalone(t *testing.T) {
	closed, open := render(t), render(t, values["standalone"]...)
	for name, o := range map[string]map[string]object{"default": closed, "standalone": open} {
		set, wall := o["StatefulSet"].Spec, o["NetworkPolicy"].Spec
		if set.Replicas != 1 || len(set.VolumeClaimTemplates) != 1 || set.VolumeClaimTemplates[0].Metadata.Name != "broker-state" || set.ServiceName != o["Service"].Metadata.Name {
			t.Errorf("%s: %+v", name, set)
		}
		if !slices.Equal(wall.PolicyTypes, []string{"Ingress", "Egress"}) || len(wall.Egress) != 2 {
			t.Errorf("%s: %v, out by %v", name, wall.PolicyTypes, wall.Egress)
		}
	}
	if in := closed["NetworkPolicy"].Spec.Ingress; len(in) != 0 || len(closed["Service"].Spec.Ports) != 0 {
		t.Errorf("without a front %v gets in", in)
	}
	if in := open["NetworkPolicy"].Spec.Ingress; len(in) != 1 || len(open["Service"].Spec.Ports) != 1 {
		t.Errorf("through the front %v gets in", in)
	}
	sum := func(o map[string]object) string {
		return o["StatefulSet"].Spec.Template.Metadata.Annotations["checksum/config"]
	}
	if sum(closed) == sum(open) || len(sum(open)) != 64 {
		t.Errorf("another configuration has the sum %q, too", sum(open))
	}
}

// TestDependency: a gateway's own chart can take the parts as README.md shows it.
func TestDependency(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(readme), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml":         "{apiVersion: v2, name: gateway, version: 0.1.0, dependencies: [{name: broker, version: " + broker.Version + "}]}",
		"values.yaml":        "broker: {mode: sidecar}",
		"templates/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: gateway}\n" + block + "  containers: [{name: gateway, image: gateway}]\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "charts", "broker"), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	pod, err := helm(t, "template", "r", dir, "-s", "templates/pod.yaml")
	if err != nil || !strings.Contains(pod, "command: [/broker, health]") || !strings.Contains(pod, "emptyDir: {}") {
		t.Fatalf("%v\n%s", err, pod)
	}
	conform(t, pod)
}

// TestRefused: what the chart does not render, and why.
func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"a write in a sidecar":    {[]string{"-f", "ci/standalone-values.yaml", "--set", "mode=sidecar"}, "send of records is not `effect: read`"},
		"a default in a sidecar":  {[]string{"-f", "ci/sidecar-values.yaml", "--set", "config.servers.records.tools.send.enabled=true"}, "send of records is not `effect: read`"},
		"a repeatable one":        {[]string{"-f", "ci/sidecar-values.yaml", "--set", "config.servers.records.tools.search.effect=idempotent"}, "search of records is not `effect: read`"},
		"half a word":             {[]string{"--set", "perPodKeys=yes"}, "/perPodKeys"},
		"another mode":            {[]string{"--set", "mode=daemon"}, "/mode"},
		"two brokers":             {[]string{"--set", "replicas=2"}, "replicas"},
		"a misspelt key":          {[]string{"--set", "persistance.size=1Gi"}, "persistance"},
		"an API on the network":   {[]string{"--set", "config.listen.api=0.0.0.0:8471"}, "/config/listen/api"},
		"a database elsewhere":    {[]string{"--set", "config.store.path=/tmp/broker.db"}, "/config/store/path"},
		"a grace period":          {[]string{"--set", "config.stop.grace_period=30s"}, "grace_period"},
		"a drain without a unit":  {[]string{"--set-string", "config.stop.drain=30"}, "/config/stop/drain"},
		"a configuration as file": {[]string{"--set", "files.profiles\\.yaml=x"}, "profiles.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, append([]string{"template", "r", "."}, tc.args...)...)
			if err == nil || !strings.Contains(out, tc.says) {
				t.Errorf("%v, without %q: %s", err, tc.says, out)
			}
		})
	}
}

// TestVersion: the chart is of this broker.
func TestVersion(t *testing.T) {
	raw, err := os.ReadFile("Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var chart struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	if err := yaml.Load(raw, &chart); err != nil || chart.Version != broker.Version || chart.AppVersion != broker.Version {
		t.Errorf("the chart is %s of %s, and the broker %s, %v", chart.Version, chart.AppVersion, broker.Version, err)
	}
}
