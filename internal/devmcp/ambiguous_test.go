package devmcp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"onbehalf.internal/broker/internal/devmcp"
	"onbehalf.internal/broker/internal/testhttp"
)

// TestEndings: in both eras, whatever drop answers, the job is done, once.
func TestEndings(t *testing.T) {
	const params = `"error":{"code":-32602,"message":"the output is not what the schema says"}}`
	want := map[string]string{
		"202": "202 <nil>", "303": "303 <nil>", "504": "504 <nil>",
		"400":      `400 {"jsonrpc":"2.0","id":"r-1",` + params + `<nil>`,
		"invalid":  `200 {"jsonrpc":"2.0","id":"r-1",` + params + `<nil>`,
		"other_id": `200 {"jsonrpc":"2.0","id":"of-another","result":{"content":[]}}<nil>`,
		"ends":     "200 : working\n\n<nil>",
		"cut":      "200 : working\n\nunexpected EOF",
		"late":     "no answer, done 1", "goes_on": "no answer, done 0",
	}
	for _, old := range []bool{false, true} {
		s := start(t, devmcp.Options{Legacy: old})
		for n, then := range devmcp.Endings() {
			t.Run(fmt.Sprint(then, " ", old), func(t *testing.T) {
				if got := drop(t, s, then); got != want[then] {
					t.Errorf("%q, want %q", got, want[then])
				}
				if err := s.Await(t.Context(), func() bool { return s.Done(then) > 0 }); err != nil || s.Done(then) != 1 || s.Calls("drop") != n+1 {
					t.Errorf("the job was done %d times after %d calls, want 1, %d", s.Done(then), s.Calls("drop"), n+1)
				}
			})
		}
	}
}

// drop calls drop by hand, for a job that is called like its ending, and says what
// comes of it. It gives up where no answer is to come.
func drop(t *testing.T, s *devmcp.Server, then string) string {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	waits := make(chan string, 1)
	if then == "late" || then == "goes_on" {
		before := s.Calls("drop")
		go func() {
			s.Await(ctx, func() bool { return s.Calls("drop") > before && (then == "goes_on" || s.Done(then) > 0) })
			waits <- fmt.Sprint("no answer, done ", s.Done(then))
			giveUp()
		}()
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"r-1","method":"tools/call","params":{"name":"drop","arguments":{"job":%q,"then":%q}}}`, then, then)
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", good)
	res, err := testhttp.Client.Do(req)
	if err != nil {
		return <-waits
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return fmt.Sprint(res.StatusCode, " ", string(got), err)
}
