package policy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/policy"
)

const timeout = "operation: {timeout: 20s}\n"

// TestDeploymentsAllowTheGracePeriod: what deploy/ says is what the broker counts on
// where its configuration says nothing.
func TestDeploymentsAllowTheGracePeriod(t *testing.T) {
	grace := load(t, config(t)).Stop.Grace.String()
	for file, line := range map[string]string{
		"systemd/broker.service": `(?m)^TimeoutStopSec=(\S+)$`,
		"docker/compose.yaml":    `(?m)^\s+stop_grace_period: (\S+)`,
	} {
		text, err := os.ReadFile("../deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(line).FindAllSubmatch(text, -1); len(found) != 1 || string(found[0][1]) != grace {
			t.Errorf("%s: %q, want %s once", file, found, grace)
		}
	}
}

// TestStop: what is not said has its default, and the times fit into one another.
func TestStop(t *testing.T) {
	for text, want := range map[string]policy.Stop{
		"":                           {Drain: 20 * time.Second, Grace: 30 * time.Second},
		"stop: {drain: 0s}\n":        {Grace: 30 * time.Second},
		"stop: {drain: 20499ms}\n":   {Drain: 20499 * time.Millisecond, Grace: 30 * time.Second},
		"stop: {grace_period: 1m}\n": {Drain: 20 * time.Second, Grace: time.Minute},
		"stop: {delay: 10s, drain: 1m, grace_period: 1m20s}\n": {Delay: 10 * time.Second, Drain: time.Minute, Grace: 80 * time.Second},
		"stop: {drain: 30m, grace_period: 1h, delay: 5m}\n":    {Delay: 5 * time.Minute, Drain: 30 * time.Minute, Grace: time.Hour},
		"stop: {drain: 0s, grace_period: 9500000001ns}\n":      {Grace: policy.CleanUp + 1},
	} {
		if got := load(t, config(t, timeout, timeout+text)).Stop; got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"stop: {drain: 21s}":                             "stop.grace_period: 30s must be more than delay 0s + drain 21s + 9.5s for the clean-up = 30.5s",
		"stop: {delay: 1s}":                              "stop.grace_period: 30s must be more than delay 1s + drain 20s + 9.5s for the clean-up = 30.5s",
		"stop: {grace_period: 25s}":                      "stop.grace_period: 25s must be more than delay 0s + drain 20s + 9.5s for the clean-up = 29.5s",
		"stop: {delay: 5m, drain: 2m, grace_period: 5m}": "stop.grace_period: 5m0s must be more than delay 5m0s + drain 2m0s + 9.5s for the clean-up = 7m9.5s",
		"stop: {grace_period: 8s}":                       `stop.grace_period: "8s" must be a duration from 9.5s to 1h0m0s`,
		"stop: {drain: 31m}":                             `stop.drain: "31m" must be a duration from 0s to 30m0s`,
		"stop: {drain: -1s}":                             `stop.drain: "-1s" must be a duration`,
		"stop: {drain: 20}":                              `stop.drain: "20" must be a duration`,
		"stop: {delay: 6m}":                              `stop.delay: "6m" must be a duration from 0s to 5m0s`,
		"stop: {delay: soon}":                            `stop.delay: "soon" must be a duration`,
		"stop: {drain: ~}":                               "stop.drain: has no value",
		"stop: {grace: 30s}":                             "stop.grace: is not a known key; known here: delay, drain, grace_period",
		"stop: {}":                                       "stop: is empty",
		"stop: 30s":                                      "stop: is text; write a mapping",
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, timeout, timeout+text+"\n")}))
		if len(ps) != 1 || ps[0].Line != 9 || !strings.Contains(ps.Error(), want) {
			t.Errorf("%q: %v, want one, %s", text, ps, want)
		}
	}
}
