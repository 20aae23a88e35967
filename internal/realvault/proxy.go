package realvault

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const proxyConfig = `
vault { address = %q }
auto_auth {
  method "approle" {
    config = {
      role_id_file_path                   = %q
      secret_id_file_path                 = %q
      remove_secret_id_file_after_reading = false
    }
  }
  sink "file" { config = { path = %q } }
}
api_proxy { use_auto_auth_token = %s }
listener "unix" {
  address     = %q
  tls_disable = true
}
`

// Proxy runs a Vault Proxy until the test ends, which logs in by AppRole and adds its
// token to requests without one; with force, to all. It returns its socket, and the
// file into which it writes that token as an Agent does.
func (v *Vault) Proxy(t testing.TB, force bool, roleID, secretIDFile string) (socket, sink string) {
	t.Helper()
	binary, err := find()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	socket, sink = filepath.Join(home, "proxy.sock"), filepath.Join(home, "sink")
	role, config, auto := filepath.Join(home, "role_id"), filepath.Join(home, "proxy.hcl"), "true"
	if force {
		auto = `"force"`
	}
	for path, text := range map[string]string{role: roleID, config: fmt.Sprintf(proxyConfig, v.Addr, role, secretIDFile, sink, auto, socket)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(home, "proxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(binary, "proxy", "-config="+config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = dieWithParent
	exited, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
	})
	awaitProxy(t, socket, sink, exited)
	return socket, sink
}

func awaitProxy(t testing.TB, socket, sink string, exited chan struct{}) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(30 * time.Second)
	for {
		select {
		case <-exited:
			t.Fatal("the Proxy ended at once")
		case <-late:
			t.Fatal("the Proxy has no login, or does not listen, after 30 s")
		case <-poll.C:
		}
		_, absent := os.Stat(sink)
		if c, err := net.Dial("unix", socket); err == nil {
			c.Close()
			if absent == nil {
				return
			}
		}
	}
}
