package mcpclient

import (
	"context"
	"net/http"
	"slices"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// versionModern is the version without a handshake, versions all that we speak,
// newest first. They are names: only equality means anything.
const versionModern = "2026-07-28"

var versions = []string{versionModern, "2025-11-25", "2025-06-18", "2025-03-26"}

// A dialect is an era and the version in it that is spoken or, before the
// handshake, offered.
type dialect struct {
	era     policy.Era
	version string
}

func (d dialect) known() bool { return d.era != "" }

// dialects returns what s may be spoken to in, the modern one first: at most one
// of each era, within the operator's pin and list of versions.
func dialects(s *policy.Server) (all []dialect) {
	accepted := acceptedVersions(s)
	if s.Era != policy.EraLegacy && slices.Contains(accepted, versionModern) {
		all = append(all, dialect{policy.EraModern, versionModern})
	}
	if s.Era != policy.EraModern {
		all = append(all, legacyIn(accepted)...)
	}
	return all
}

func acceptedVersions(s *policy.Server) []string {
	if len(s.Versions) == 0 {
		return versions
	}
	return slices.DeleteFunc(slices.Clone(versions), func(v string) bool { return !slices.Contains(s.Versions, v) })
}

// legacyIn returns the newest legacy version in accepted, as a list of one or none.
func legacyIn(accepted []string) []dialect {
	for _, v := range accepted {
		if v != versionModern {
			return []dialect{{policy.EraLegacy, v}}
		}
	}
	return nil
}

// greet brings the conversation to where tools/… may be sent: the era is known
// and, with a legacy server, the handshake is done. If not, ok is false and the
// ending says why.
func (c *Conversation) greet(ctx context.Context) (e ending, ok bool) {
	if c.greeted {
		return ending{}, true
	}
	found, e := c.findDialect(ctx)
	if !found.known() {
		return e, false
	}
	c.speaks = found
	if found.era == policy.EraLegacy {
		e, c.greeted = c.handshake(ctx, found.version)
		return e, c.greeted
	}
	c.greeted = true
	return ending{}, true
}

// findDialect takes the only dialect that is allowed, the one that is
// remembered, or asks.
func (c *Conversation) findDialect(ctx context.Context) (dialect, ending) {
	allowed := dialects(c.server)
	switch len(allowed) {
	case 0:
		return dialect{}, ending{failure: fault.VersionUnsupported}
	case 1:
		return allowed[0], ending{}
	}
	if d, ok := c.client.eras.Get(serverKey(c.server)); ok && slices.Contains(acceptedVersions(c.server), d.version) {
		return d, ending{}
	}
	d, e := c.probe(ctx)
	if d.known() {
		c.client.eras.Set(serverKey(c.server), d, rememberEra)
	}
	return d, e
}

// probe asks with server/discover, which no legacy server has. The question is
// not tools/list: some legacy servers answer that without a handshake.
func (c *Conversation) probe(ctx context.Context) (dialect, ending) {
	c.speaks = dialect{policy.EraModern, versionModern}
	e := c.leg(ctx, message{method: methodDiscover})
	c.speaks = dialect{}
	return judgeProbe(e, acceptedVersions(c.server))
}

// judgeProbe says which dialect an answer to server/discover speaks for. One
// that speaks for none, such as a 401 or a 503, ends the operation and is not
// remembered.
func judgeProbe(e ending, accepted []string) (dialect, ending) {
	legacy := legacyIn(accepted)[0] // there is one, or nobody would ask
	switch code := e.rpc.code(); {
	case e.failure != fault.None || e.echoed:
		return dialect{}, e
	case e.result != nil:
		supported, said, ok := discovered(e.result)
		switch {
		case !said: // it answers whatever it is asked, and does not know this
			return legacy, e
		case !ok:
			return dialect{}, ending{failure: fault.ReplyMalformed}
		}
		return choose(supported, accepted)
	case e.status == http.StatusOK: // a JSON-RPC error: legacy servers do not know the method
		return legacy, e
	case e.status == http.StatusBadRequest && code == codeVersion:
		return choose(e.rpc.supported, accepted)
	case e.status == http.StatusBadRequest && (code == codeHeader || code == codeCapability):
		return dialect{}, e // a modern server that our request does not suit
	case e.status == http.StatusBadRequest, e.status == http.StatusNotFound, e.status == http.StatusMethodNotAllowed:
		return legacy, e
	}
	return dialect{}, e
}

// discovered returns the versions in an answer to server/discover; said is false
// if nothing in it speaks of versions.
func discovered(result strictjson.Raw) (supported []string, said, ok bool) {
	m := strictjson.Parts(result)
	raw, said := m["supportedVersions"]
	supported, ok = texts(raw)
	return supported, said, ok && resultType(m) == fault.None
}

// choose returns the best dialect that both sides speak.
func choose(supported, accepted []string) (dialect, ending) {
	common := slices.DeleteFunc(slices.Clone(accepted), func(v string) bool { return !slices.Contains(supported, v) })
	if slices.Contains(common, versionModern) {
		return dialect{policy.EraModern, versionModern}, ending{}
	}
	if legacy := legacyIn(common); legacy != nil {
		return legacy[0], ending{}
	}
	return dialect{}, ending{failure: fault.VersionUnsupported}
}

// reconsiderEra forgets what is remembered of a server that answered like one
// of another era. Forgetting too much costs one probe; codeParams is about
// the caller's arguments and would cost it often.
func (c *Conversation) reconsiderEra(e ending) {
	switch e.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		if e.rpc.code() != codeParams {
			c.client.eras.Delete(serverKey(c.server))
		}
	}
}

// handshake opens a session with a legacy server. If the server loses it before
// the handshake is over, which it says with 404, one new session is opened;
// no tool can have run.
func (c *Conversation) handshake(ctx context.Context, offer string) (e ending, ok bool) {
	for range 2 {
		if e, ok = c.initialize(ctx, offer); !ok {
			return e, false
		}
		e = c.leg(ctx, message{method: methodInitialized, notification: true})
		if e.accepted || e.status != http.StatusNotFound || !e.session {
			return e, e.accepted
		}
	}
	return e, false
}

// initialize offers a version and takes from the answer the version and the
// session id that hold from here on.
func (c *Conversation) initialize(ctx context.Context, offer string) (e ending, ok bool) {
	c.speaks.version, c.session = "", ""
	e = c.leg(ctx, message{method: methodInitialize, params: params{
		ProtocolVersion: offer, Capabilities: &struct{}{}, ClientInfo: c.client.implementation(),
	}})
	c.reconsiderEra(e)
	if e.result == nil || e.failure != fault.None || e.echoed {
		return e, false
	}
	m := strictjson.Parts(e.result)
	version, isText := text(m["protocolVersion"])
	session, valid := sessionID(e.header)
	if !isText || !valid {
		e.failure = fault.ReplyMalformed
		return e, false
	}
	c.session = session // the server has it, whatever it speaks
	if version == versionModern || !slices.Contains(acceptedVersions(c.server), version) {
		e.failure = fault.VersionUnsupported
		return e, false
	}
	c.speaks.version = version
	return e, true
}

// sessionID returns the session id in the head of an initialize answer: none,
// or one of 1 to 256 visible characters.
func sessionID(h http.Header) (id string, valid bool) {
	switch ids := h.Values("Mcp-Session-Id"); {
	case len(ids) == 0 || len(ids) == 1 && ids[0] == "":
		return "", true
	case len(ids) == 1 && len(ids[0]) <= 256 && visible(ids[0]):
		return ids[0], true
	}
	return "", false
}
