package check

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// services reads the compose file as compose does, its schema included.
func services(t *testing.T) types.Services {
	t.Helper()
	raw, err := os.ReadFile("../compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  "..",
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: raw}},
		Environment: types.Mapping{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return project.Services
}

// TestLocked: no service runs as root, gains a right or reaches out of its
// network; ours cannot write to their own image.
func TestLocked(t *testing.T) {
	all := services(t)
	if len(all) != 3 {
		t.Errorf("%d services", len(all))
	}
	for name, s := range all {
		if s.User != nonroot || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: user %q, without %v, %v", name, s.User, s.CapDrop, s.SecurityOpt)
		}
		if s.Privileged || len(s.Ports) != 0 || s.Pid == "host" || s.NetworkMode == "host" {
			t.Errorf("%s: privileged %t, ports %v, pid %q, network %q", name, s.Privileged, s.Ports, s.Pid, s.NetworkMode)
		}
		if name == "vault" {
			continue
		}
		if !s.ReadOnly || len(s.CapAdd) != 0 || s.MemLimit == 0 || s.PidsLimit == 0 || s.Ulimits["core"] == nil || s.Ulimits["core"].Single != 0 {
			t.Errorf("%s: read-only %t, adds %v, memory %d, processes %d, core %v", name, s.ReadOnly, s.CapAdd, s.MemLimit, s.PidsLimit, s.Ulimits["core"])
		}
		if s.StopGracePeriod == nil || s.StopGracePeriod.String() != "30s" {
			t.Errorf("%s: may be killed after %v, and has 30 s", name, s.StopGracePeriod)
		}
		if s.Build.Target != name || s.Build.Dockerfile != "deploy/docker/Dockerfile" || len(s.Build.Args) != 0 {
			t.Errorf("%s: is built from %+v", name, s.Build)
		}
	}
}

// TestBrokerHoldsNoSecret: what the product gets besides its image is two files
// that it can only read and its own state, and its environment names no secret.
func TestBrokerHoldsNoSecret(t *testing.T) {
	s := services(t)["broker"]
	for name := range s.Environment {
		if regexp.MustCompile(`(?i)token|secret|key|password|bearer|credential`).MatchString(name) {
			t.Errorf("the environment has %s", name)
		}
	}
	for _, v := range s.Volumes {
		if v.ReadOnly == (v.Target == "/var/lib/broker") {
			t.Errorf("%s: read-only %t", v.Target, v.ReadOnly)
		}
		if v.Type == types.VolumeTypeBind && (v.Bind == nil || bool(v.Bind.CreateHostPath)) {
			t.Errorf("%s: a file that is missing would become a folder", v.Target)
		}
	}
	if len(s.Volumes) != 3 || len(s.Tmpfs) != 0 {
		t.Errorf("%d volumes, %v", len(s.Volumes), s.Tmpfs)
	}
}

// TestDemoReachesItsVault: plain http to Vault is for loopback alone, so the
// demo is in the network of its Vault, which nobody else is in.
func TestDemoReachesItsVault(t *testing.T) {
	all := services(t)
	if demo := all["demo"]; demo.NetworkMode != "service:vault" || !slices.Equal(demo.Command, []string{"-vault", "http://127.0.0.1:8200"}) {
		t.Errorf("network %q, arguments %v", demo.NetworkMode, demo.Command)
	}
	if !slices.Contains(all["vault"].Command, "-dev-listen-address=127.0.0.1:8200") {
		t.Errorf("Vault listens elsewhere: %v", all["vault"].Command)
	}
}
