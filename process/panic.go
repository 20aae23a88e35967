package process

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
)

// LogPanic says in the log that a handler has panicked: with what type, and in which
// function of ours, never with its value. It is for the deferred function that recovers.
func LogPanic(log *slog.Logger, p any) {
	log.Error("panic in a handler", "type", fmt.Sprintf("%T", p), "at", panicSite())
}

// panicSite names the function of ours that panicked: the first below the panic itself.
func panicSite() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)]) // without these two and who recovers
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, "onbehalf.internal/broker/") {
			return f.Function
		}
		if !more {
			return "unknown"
		}
	}
}
