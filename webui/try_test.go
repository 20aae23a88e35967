package webui_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"onbehalf.internal/broker/brokertest"
	"onbehalf.internal/broker/internal/devmcp"
)

func TestTry(t *testing.T) {
	rig := brokertest.New(t, &brokertest.Options{SignedAudit: true, Config: func(y string) string {
		y = strings.Replace(y, "fail: {enabled: true}", `fail: {enabled: true, pin: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}`, 1)
		return y + "\nui: {}\n"
	}})
	rig.Admin(t, "POST", "/v1/servers/records/import", "", nil)
	rig.Admin(t, "POST", "/v1/servers/archive/probe", "", nil)
	for range 3 {
		rig.Call(t, brokertest.Call{Actor: "user:7", Server: "records", Tool: "whoami"})
	}
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "archive", Tool: "whoami"})
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "archive", Tool: "fail"})
	rig.Call(t, brokertest.Call{Actor: "user:7", Server: "archive", Tool: "drop"})
	rig.Call(t, brokertest.Call{Actor: "user:8", Server: "records", Tool: "whoami"})
	_ = devmcp.Options{}
	var list struct {
		Operations []struct{ ID string }
	}
	rig.Admin(t, "POST", "/v1/suspensions", `{"actor":"user:9","reason":"left the company"}`, nil)
	_ = list
	paths := strings.Fields(os.Getenv("PAGES"))
	out, err := exec.Command("/tmp/shot/shot", append([]string{rig.URL, rig.AuditorBearer()}, paths...)...).CombinedOutput()
	t.Log(string(out), err)
}
