package mcpclient

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// A Liveness is what a probe has found, in a word.
type Liveness string

const (
	Up            Liveness = "up"             // it speaks with us
	Down          Liveness = "down"           // nobody answers, or a gateway says that nobody does
	Unwelcome     Liveness = "unwelcome"      // alive, and refuses our credential
	WrongProtocol Liveness = "wrong_protocol" // alive, and no version of MCP in common, or none at all
	NotAsked      Liveness = "not_asked"      // nothing was sent; why is in the report
)

// A Sight is what a probe saw. Name and Release are the server's own text.
type Sight struct {
	Is            Liveness
	Latency       time.Duration // of the leg whose answer decided
	Name, Release string        // as it calls itself; "" where it says nothing, or our token
}

// Probe asks for no more than it takes to know that the server would take a call:
// server/discover, or the handshake. What is remembered of its era is not believed.
// The outcome is succeeded with ran = no, or not_sent and why.
func (c *Conversation) Probe(ctx context.Context, g Gate) (s Sight, rep Report) {
	c.begin(g, Call{Idle: c.server.Idle})
	defer c.end()
	defer func() {
		if recover() != nil {
			s, rep = Sight{Is: NotAsked}, c.report(ending{failure: fault.InternalError})
		}
	}()
	e := c.look(ctx)
	s.Is, s.Latency = e.liveness(), e.took
	if s.Is != Up {
		return s, c.report(e.beforehand())
	}
	s.Name, s.Release = implementationIn(e.result)
	return s, c.report(ending{sent: true, status: http.StatusOK, accepted: true})
}

// look returns the ending that decided; its result says who the server is.
func (c *Conversation) look(ctx context.Context) sighting {
	allowed := dialects(c.server)
	if len(allowed) == 0 {
		return sighting{ending: ending{failure: fault.VersionUnsupported}}
	}
	if allowed[0].era == policy.EraLegacy {
		return c.greetLegacy(ctx, allowed[0])
	}
	c.speaks = allowed[0]
	seen := c.sighted(c.leg(ctx, message{method: methodDiscover}))
	supported, _, ok := discovered(seen.result)
	switch {
	case seen.understood() && ok && slices.Contains(supported, versionModern):
		c.remember(allowed[0])
		return seen
	case len(allowed) == 1:
		return seen.unlike()
	}
	legacy, after := judgeProbe(seen.ending, acceptedVersions(c.server))
	if legacy.known() {
		return c.greetLegacy(ctx, legacy)
	}
	seen.failure = cmp.Or(seen.failure, after.failure)
	return seen.unlike()
}

func (c *Conversation) greetLegacy(ctx context.Context, d dialect) sighting {
	c.speaks = d
	e, ok := c.initialize(ctx, d.version)
	seen := c.sighted(e)
	if !ok {
		return seen.unlike()
	}
	if confirmed := c.leg(ctx, message{method: methodInitialized, notification: true}); !confirmed.accepted {
		return c.sighted(confirmed).unlike()
	}
	c.remember(d)
	return seen
}

// A sighting is an ending, and how long its leg took.
type sighting struct {
	ending
	took time.Duration
}

func (c *Conversation) sighted(e ending) sighting { return sighting{e, c.legs[len(c.legs)-1].Took} }

// understood reports whether there is an answer that may be read.
func (e ending) understood() bool { return e.failure == fault.None && e.result != nil && !e.echoed }

// unlike is s as what is seen of a server that does not speak with us, whatever it
// says.
func (s sighting) unlike() sighting {
	switch {
	case s.failure != fault.None || s.status != http.StatusOK:
	case s.echoed:
		s.failure = fault.SecretEchoed
	default:
		s.failure = fault.VersionUnsupported
	}
	return s
}

func (c *Conversation) remember(d dialect) {
	c.greeted = true
	if len(dialects(c.server)) > 1 {
		c.client.eras.Set(serverKey(c.server), d, rememberEra)
	}
}

// liveness says what an ending shows of a server.
func (e ending) liveness() Liveness {
	switch {
	case e.understood():
		return Up
	case !e.sent && e.status == 0 && !reached(e.failure):
		return NotAsked
	case e.status == http.StatusUnauthorized, e.status == http.StatusForbidden:
		return Unwelcome
	case e.status == 0 && e.failure != fault.VersionUnsupported, e.status >= 500 && e.rpc == nil:
		return Down
	}
	return WrongProtocol
}

// reached reports whether a leg that was not sent has found out about the server
// all the same: there is no way to it, or no version to speak.
func reached(r fault.Reason) bool {
	return r == fault.ConnectFailed || r == fault.TLSFailed || r == fault.HostRefused || r == fault.VersionUnsupported
}

// implementationIn returns how a server calls itself, in the answer to initialize
// (serverInfo) or to server/discover (_meta).
func implementationIn(result strictjson.Raw) (name, release string) {
	m := strictjson.Parts(result)
	info, ok := m["serverInfo"]
	if !ok {
		info = strictjson.Parts(m["_meta"])["io.modelcontextprotocol/serverInfo"]
	}
	said := strictjson.Parts(info)
	name, _ = text(said["name"])
	release, _ = text(said["version"])
	return name, release
}
