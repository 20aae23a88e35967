package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"onbehalf.internal/broker/policy"
)

// configuration: the file is the one that runs, and what it declares can be used.
func (e *examination) configuration(context.Context) []Finding {
	findings := []Finding{e.file()}
	for _, v := range e.snapshot.Servers() {
		if says, do := e.idle(v); says != "" {
			findings = append(findings, note("server "+v.ID, says, do))
		}
	}
	longest := e.snapshot.Longest()
	findings = append(findings, note("patience of callers", fmt.Sprintf("a call may take %s here; what gives up on the broker sooner has to ask again by its key", longest),
		fmt.Sprintf("let whatever stands before the broker wait for %s", longest+grace)))
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"} {
		if e.Getenv(name) != "" {
			findings = append(findings, note("environment", name+" is set, and the broker goes through no proxy: it would see what is said",
				"if there is no other way out of this host, allow the hosts of the configuration in its firewall"))
			break
		}
	}
	return findings
}

// grace is how much longer than the longest call somebody should wait for the answer.
const grace = 5 * time.Second

func (e *examination) file() Finding {
	const about = "configuration"
	fresh, err := policy.Load(e.snapshot.Path)
	switch {
	case err != nil:
		return wrong(about, "the file has problems now; what was read before is in force", "broker check --config "+e.snapshot.Path)
	case fresh.Hash != e.snapshot.Hash:
		return wrong(about, "the file is not the one that is in force", "broker check --config "+e.snapshot.Path+"\nkill -HUP PID, or systemctl reload broker; what it refuses to reload is in its log, and takes a restart")
	}
	return ok(about, fmt.Sprintf("%q is in force: servers %d, profiles %d", e.snapshot.Path, len(e.snapshot.Servers()), len(e.snapshot.Profiles())))
}

// idle says why nobody can call anything at a server, by the configuration alone.
func (e *examination) idle(v *policy.Server) (says, do string) {
	enabled := func(name string) bool { return v.Tools[name].Enabled }
	lists := func(c *policy.Caller) bool { return slices.Contains(c.Servers, v.ID) }
	key := "servers." + v.ID
	switch {
	case !v.Enabled:
		return "it is not enabled", key + ".enabled: true, when it is to be used"
	case v.DataClass == 0:
		return "its data class is not declared, so nothing of it can be called", key + ".data_class: …"
	case !slices.ContainsFunc(v.ToolNames(), enabled):
		return "none of its tools is enabled", key + ".tools: {<name>: {enabled: true}}"
	case !slices.ContainsFunc(e.snapshot.Callers(), lists):
		return "no caller may use it", "callers.<id>.servers: [" + v.ID + "]"
	}
	if v.Auth.Mode == "delegated" {
		for g := range e.snapshot.Grants(v.Auth.Profile) {
			if g.Enabled && slices.Contains(g.AllowedAudiences, v.Auth.Audience) {
				return "", ""
			}
		}
		return "no grant of profile " + v.Auth.Profile + " is enabled for its audience", "profiles." + v.Auth.Profile + ".grants"
	}
	return "", ""
}
