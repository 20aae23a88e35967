package devmcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Working answers tools/call by a stream, see [Server.Break]: each word from say is a
// progress, for who has asked for it, and when say is closed the result comes, which is
// this JSON.
func Working(say <-chan string, result string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if MethodOf(r) != "tools/call" {
				next.ServeHTTP(w, r)
				return
			}
			var call struct {
				ID     json.RawMessage
				Params struct {
					Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
				}
			}
			json.Unmarshal(body, &call)
			w.Header().Set("Content-Type", "text/event-stream")
			n := 0
			for word := range say {
				n++
				if call.Params.Meta.ProgressToken != nil {
					fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d,\"total\":9,\"message\":%q}}\n\n",
						call.Params.Meta.ProgressToken, n, word)
				}
				http.NewResponseController(w).Flush()
			}
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", call.ID, result)
		})
	}
}
