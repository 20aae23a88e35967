package brokertest_test

import (
	"testing"

	"onbehalf.internal/broker/brokertest"
)

// TestMainJob is the main job, once in each era.
func TestMainJob(t *testing.T) {
	rig := brokertest.New(t, nil)
	for server, legs := range map[string]string{
		"records": "subject exchange hold server/discover tools/call drop",
		"archive": "subject exchange hold server/discover initialize notifications/initialized tools/call drop",
	} {
		a := rig.Call(t, brokertest.Call{Server: server})
		if a.Status != 200 || a.State != "succeeded" || a.Ran != "yes" || a.Retry != "never" || a.Hold != "dropped" || a.Durability != "durable" {
			t.Errorf("%s: %d %s", server, a.Status, a.Body)
		}
		if a.LegNames() != legs {
			t.Errorf("%s: legs %s, want %s", server, a.LegNames(), legs)
		}
	}
}
