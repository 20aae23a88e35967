package client

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
)

// FuzzEvents: whatever comes, no event is larger than it may be, and what the broker
// writes comes back as it was, whatever stands before it.
func FuzzEvents(f *testing.F) {
	f.Add("", `{"id":"x"}`)
	f.Add(": working\n\nevent: progress\ndata: {}\n\n", "{\n}")
	f.Add("event:outcome\ndata:x\r\n\r\n", "")
	f.Add("data\ndata: \nevent\n\n\n\n", "\n\n")
	f.Add(strings.Repeat("data: xxxxxxxx\n", 100), "y")
	f.Fuzz(func(t *testing.T, before, data string) {
		const most = 200
		if strings.Contains(data, "\r") || len(data) >= most {
			return // the broker writes neither here
		}
		if before != "" && !strings.HasSuffix(before, "\n\n") {
			before += "\n\n"
		}
		written := fmt.Sprintf("event: outcome\ndata: %s\n\n", strings.ReplaceAll(data, "\n", "\ndata: "))
		var last string
		err := events(bytes.NewReader([]byte(before+written)), most, func() {}, func(event string, got []byte) bool {
			if len(got) > most {
				t.Errorf("an event of %d bytes", len(got))
			}
			last = event + " " + string(got)
			return false
		})
		if err != io.ErrUnexpectedEOF {
			return // something before it was too large
		}
		if last != "outcome "+data {
			t.Errorf("%q came as %q", data, last)
		}
	})
}
