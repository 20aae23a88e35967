package process_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"onbehalf.internal/broker/process"
)

func explodes() { panic("a secret") }

// TestLogPanic: the log has the type and the place, and not the value.
func TestLogPanic(t *testing.T) {
	var log bytes.Buffer
	func() {
		defer func() {
			if p := recover(); p != nil {
				process.LogPanic(slog.New(slog.NewTextHandler(&log, nil)), p)
			}
		}()
		explodes()
	}()
	if said := log.String(); !strings.Contains(said, `msg="panic in a handler" type=string at=onbehalf.internal/broker/process_test.explodes`) || strings.Contains(said, "secret") {
		t.Error(said)
	}
}
