package mcpclient_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// TestVerify: the tool is shown as it is listed now, and nothing of the call leaves,
// nor is recorded, where it is not the one that was looked at.
func TestVerify(t *testing.T) {
	for _, era := range []policy.Era{policy.EraModern, policy.EraLegacy} {
		for name, r := range map[string]struct {
			tool  string
			list  answer
			says  fault.Reason
			want  fault.Reason // "": the call is made
			shown string
		}{
			"as it was":     {"search", nil, fault.None, "", `{"name":"search","inputSchema":{"type":"object"}}`},
			"another":       {"search", nil, fault.ToolChanged, fault.ToolChanged, `{"name":"search","inputSchema":{"type":"object"}}`},
			"not there":     {"delete", nil, fault.None, fault.ToolNotOffered, ""},
			"no list":       {"search", status(503, ""), fault.None, fault.Intermediary, ""},
			"a broken list": {"search", result(`{"resultType":"complete","tools":7}`), fault.None, fault.ReplyMalformed, ""},
		} {
			t.Run(string(era)+"/"+name, func(t *testing.T) {
				server := modern(result(`{"resultType":"complete",` + good[1:]))
				if era == policy.EraLegacy {
					server = legacy(result(good))
				}
				if r.list != nil {
					server.lines[toolsList] = []answer{r.list}
				}
				var shown []string
				wanted := search
				wanted.Tool = r.tool
				wanted.Verify = func(tool strictjson.Raw) fault.Reason { shown = append(shown, string(tool)); return r.says }
				gate := open()
				gate.Sending = func(context.Context) error {
					if r.want != "" {
						t.Error("it was recorded")
					}
					return nil
				}
				talk := mcpclient.New(mcpclient.Config{}).Open(server.server(t, era))
				defer talk.Close()
				rep := talk.CallTool(within(t, 5*time.Second), wanted, gate)
				if r.want == "" && rep.Outcome.State != fault.Succeeded || r.want != "" && (rep.Outcome != fault.NotSentBecause(r.want) || server.count(toolsCall) != 0) {
					t.Errorf("%+v after %q", rep.Outcome, server.methods())
				}
				if strings.Join(shown, "|") != r.shown {
					t.Errorf("shown %q", shown)
				}
			})
		}
	}
}
