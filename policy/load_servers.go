package policy

import (
	"cmp"
	"fmt"
	"time"
)

func readServers(root *section, profiles map[string]*Profile, timeout time.Duration) map[string]*Server {
	servers := map[string]*Server{}
	names := root.names("profiles")
	locals := map[string]string{} // local tool name → where it came from
	for id, s := range root.children("servers", serverID) {
		v := readServer(s, id)
		v.Auth = readAuth(s.child("auth"), names, profiles)
		v.Tools = readTools(s, v, timeout, locals)
		v.Recovery = readRecovery(s.child("recovery"), v.Tools)
		servers[id] = v
	}
	return servers
}

// Versions of MCP over Streamable HTTP. They are compared for equality alone.
var mcpVersions = []string{"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}

func readServer(s *section, id string) *Server {
	s.need("url", "enabled", "auth")
	v := &Server{
		ID:               id,
		Where:            s.where(),
		AllowCIDRs:       s.cidrs("allow_cidrs"),
		CA:               s.certificates("ca_file"),
		Enabled:          s.flag("enabled", false),
		DataClass:        DataClass(s.choice("data_class", dataClasses...)),
		RequiresApproval: s.flag("requires_approval", true),
		ApprovalExpires:  readApproval(s.child("approval")),
		Era:              Era(s.textOr("era", string(EraAuto), oneOf(string(EraAuto), string(EraModern), string(EraLegacy)))),
		Versions:         s.texts("versions", len(mcpVersions), oneOf(mcpVersions...)),
		NumericIDs:       s.textOr("id_style", "string", oneOf("string", "int")) == "int",
		Timeout:          s.duration("timeout", leastTimeout, mostTimeout),
		Idle:             s.duration("idle_window", leastTimeout, mostTimeout),
		Drain:            s.durationOr("drain_window", -1, 0, mostDrain),
		Cancels:          s.cancels(false),
		VerifyPins:       s.textOr("pin", "imported", oneOf("imported", "verify")) == "verify",
		ImportEvery:      readEvery(s.child("import")),
		ProbeEvery:       readEvery(s.child("probe")),
		Limits:           readLimits(s.child("limits")),
	}
	v.URL = s.endpoint("url", v.AllowCIDRs)
	return v
}

const (
	leastApproval   = time.Minute
	mostApproval    = 24 * time.Hour
	defaultApproval = 15 * time.Minute
)

// readApproval reads how long an approval is waited for, and good for.
func readApproval(s *section) time.Duration {
	if s == nil {
		return defaultApproval
	}
	defer s.end()
	return s.durationOr("expires", defaultApproval, leastApproval, mostApproval)
}

func readAuth(s *section, names []string, profiles map[string]*Profile) (a Auth) {
	if s == nil {
		return a
	}
	defer s.end()
	s.need("mode")
	a.Mode = s.text("mode", oneOf("delegated", "legacy"))
	switch a.Mode {
	case "delegated":
		readDelegated(s, &a, names, profiles)
	case "legacy":
		readLegacy(s, &a)
	default:
		s.skip() // what belongs to a mode nobody knows cannot be judged
	}
	return a
}

func readDelegated(s *section, a *Auth, names []string, profiles map[string]*Profile) {
	s.need("profile", "audience", "scopes")
	s.without("with mode delegated", "credential", "placement", "header")
	a.Profile = s.text("profile", among("profiles", names))
	a.Audience = s.text("audience", audience)
	a.Scopes = s.texts("scopes", maxScopes, scope)
	a.Discovery = s.ref("discovery_credential")
	p, ok := profiles[a.Profile]
	if !ok {
		return
	}
	if a.Audience != "" {
		s.within("audience", []string{a.Audience}, p.AllowedAudiences, "profile "+quote(p.ID))
	}
	s.within("scopes", a.Scopes, p.AllowedScopes, "profile "+quote(p.ID))
}

// readLegacy reads the one static credential of a server, if it has one.
func readLegacy(s *section, a *Auth) {
	s.without("with mode legacy", "profile", "audience", "scopes", "discovery_credential")
	a.Credential = s.ref("credential")
	if a.Credential.IsZero() {
		s.without("without a credential", "placement", "header")
		return
	}
	a.Placement = s.textOr("placement", "bearer", oneOf("bearer", "header"))
	if a.Placement != "header" {
		s.without("without placement header", "header")
		return
	}
	s.need("header")
	a.Header = s.text("header", legacyHeader)
}

func readTools(s *section, server *Server, timeout time.Duration, locals map[string]string) map[string]Tool {
	tools := map[string]Tool{}
	for name, t := range s.children("tools", toolName) {
		t.need("enabled")
		t.notYet("approval")
		tool := Tool{
			Enabled:  t.flag("enabled", false),
			Effect:   t.textOr("effect", "write", oneOf("write", "idempotent", "read")),
			Timeout:  t.duration("timeout", leastTimeout, mostTimeout),
			Idle:     t.duration("idle_window", leastTimeout, mostTimeout),
			Expected: t.duration("expected_duration", leastTimeout, mostTimeout),
			Cancels:  t.cancels(server.Cancels),
			Pin:      t.text("pin", toolPin),

			RequiresAdmin: t.flag("requires_admin", false),
			Key:           readUpstreamKey(t.child("request_key")),
			Where:         t.where(),
		}
		tool.Drain = t.durationOr("drain_window", server.drain(tool.Effect), 0, mostDrain)
		t.longEnough(tool.Expected, "timeout", cmp.Or(tool.Timeout, server.Timeout, timeout))
		t.longEnough(tool.Expected, "idle_window", cmp.Or(tool.Idle, server.Idle))
		tools[name] = tool
		// a + b_c and a_b + c are one name to whoever offers the tools.
		local := LocalName(server.ID, name)
		if first, taken := locals[local]; taken {
			t.l.problem(t.file, t.line, t.path, fmt.Sprintf("becomes the tool name %q, and so does the tool at %s; rename a server", local, first))
		}
		locals[local] = t.where()
	}
	return tools
}

const (
	leastEvery = 10 * time.Second
	mostEvery  = 7 * 24 * time.Hour
)

// readEvery reads how often something is done by itself.
func readEvery(s *section) time.Duration {
	if s == nil {
		return 0
	}
	defer s.end()
	s.need("every")
	return s.duration("every", leastEvery, mostEvery)
}

const (
	// defaultDrainWindow is for tools that write: their answers may have cost something.
	defaultDrainWindow = 5 * time.Minute
	mostDrain          = time.Hour
)

// drain is the drain window of a tool that says nothing of it.
func (v *Server) drain(effect string) time.Duration {
	switch {
	case v.Drain >= 0:
		return v.Drain
	case effect == "write":
		return defaultDrainWindow
	}
	return 0
}

// cancels reads what becomes of an operation whose caller has gone.
func (s *section) cancels(absent bool) bool {
	word := s.text("on_caller_disconnect", oneOf("detach", "cancel"))
	return word == "cancel" || word == "" && absent
}

// longEnough reports a limit, 0 for none, that cuts a call off which takes as
// long as it is expected to.
func (s *section) longEnough(expected time.Duration, key string, limit time.Duration) {
	if limit > 0 && expected > limit {
		s.report("expected_duration", fmt.Sprintf("is %v, but the %s of this tool is %v; give it a longer one", expected, key, limit))
	}
}

const (
	leastKeyWindow = time.Minute
	mostKeyWindow  = 366 * 24 * time.Hour
)

func readUpstreamKey(s *section) (k UpstreamKey) {
	if s == nil {
		return k
	}
	defer s.end()
	s.need("window")
	k.Window = s.duration("window", leastKeyWindow, mostKeyWindow)
	k.Argument = s.text("argument", argument)
	k.Meta = s.text("meta", metaName)
	if s.has("argument") == s.has("meta") {
		s.report("argument", "or meta says where the key goes: give one of them")
	}
	return k
}

func readRecovery(s *section, tools map[string]Tool) (r Recovery) {
	if s == nil {
		return r
	}
	defer s.end()
	s.need("tool")
	r.Tool = s.text("tool", toolName)
	r.Argument = s.text("argument", argument)
	if tool := tools[r.Tool]; r.Tool != "" && (!tool.Enabled || tool.Effect != "read") {
		s.report("tool", quote(r.Tool)+" must be among the tools of this server, enabled and with effect: read")
	}
	return r
}
