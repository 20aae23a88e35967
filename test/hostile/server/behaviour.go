// Package server is a scripted MCP server over Streamable HTTP that misbehaves
// on purpose: one [Behaviour] a name, from a wrong id to a gzip bomb. A client
// under test calls it, and what the server saw is then compared with what the
// client says.
//
// What always holds:
//
//   - It is reached and read as any HTTP server: what is hostile is the answer.
//   - Each run of a behaviour has a state of its own (see [Server.Run]); no run
//     sees another.
//   - It notes what it saw ([Request]) without the token, and whether the tool
//     ran: scripts say so themselves, with the step works.
//   - Redirects, metadata and references point to a second listener, which
//     answers nothing useful and notes everybody who comes ([Server.Strayed]).
//   - No body is held in memory to be sent: large ones are written piece by
//     piece until they end or the client has gone.
//
// It knows nothing of the client it is used with. It does not judge: what a
// client should make of a behaviour is in Behaviour.Expect, in words.
package server

import (
	"maps"
	"slices"
	"strings"
)

// An Era is which protocol a behaviour is played in.
type Era string

// The eras.
const (
	Modern Era = "modern" // 2026-07-28, without a handshake
	Legacy Era = "legacy" // 2025-11-25, with initialize and a session
	Both   Era = "both"   // as the client likes
)

// A Behaviour is one way to misbehave, or to be odd and still right.
type Behaviour struct {
	Name   string `json:"name"` // a segment of a URL
	Era    Era    `json:"era"`
	Leg    string `json:"leg"`    // where it is not like other servers
	Expect string `json:"expect"` // what a careful client makes of it
	Does   string `json:"does"`   // one sentence
	Lies   bool   `json:"lies"`   // it says that nothing ran, and the tool did

	script script
	unread bool // it does not read bodies
}

// A script has the steps of each leg: the first request gets the first step,
// and the last step is for all that follow.
type script map[string][]step

// The legs, by what a client sends.
const (
	discover    = "server/discover"
	initialize  = "initialize"
	initialized = "notifications/initialized"
	list        = "tools/list"
	call        = "tools/call"
	cancelled   = "notifications/cancelled"
	answer      = "answer" // to a request of the server
	deletion    = "DELETE"
)

// at makes a behaviour that is odd on one leg and plays the rest as it should.
func at(leg string, era Era, name, expect, does string, steps ...step) Behaviour {
	return Behaviour{Name: name, Era: era, Leg: leg, Expect: expect, Does: does, script: script{leg: steps}}
}

// with adds steps on another leg.
func (b Behaviour) with(leg string, steps ...step) Behaviour {
	b.script = maps.Clone(b.script)
	b.script[leg] = steps
	return b
}

// steps returns the steps of leg: its own, or those of a server that does what
// its revision says.
func (b Behaviour) steps(leg string) []step {
	if own, ok := b.script[leg]; ok {
		return own
	}
	if b.Era == Legacy && leg == discover {
		return []step{say(400, kindJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`)}
	}
	return proper[leg]
}

// proper is a server with one tool that plays both eras.
var proper = script{
	discover:    {result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`)},
	initialize:  {say(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":`+greeting+`}`, "Mcp-Session-Id", session)},
	initialized: {say(202, "", "")},
	list:        {result(`{"resultType":"complete","tools":[` + tool + `],"ttlMs":0,"cacheScope":"private"}`)},
	call:        {works(result(good))},
	cancelled:   {say(202, "", "")},
	answer:      {say(202, "", "")},
	deletion:    {say(200, "", "")},
}

const (
	session  = "s-1"
	greeting = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"hostile","version":"1"}}`
	tool     = `{"name":"search","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`
	good     = `{"resultType":"complete","content":[{"type":"text","text":"ok"}]}`
	reply    = `{"jsonrpc":"2.0","id":$ID,"result":` + good + `}`
)

// Foreign is in the texts of many scripts. A client does not let it into an
// error, a log line or a metric.
const Foreign = "server-text-that-must-not-travel"

// What a client should say, as it is spelled most often.
const (
	succeeded    = "succeeded"
	malformed    = "unknown: reply malformed"
	mismatched   = "unknown: reply mismatched"
	tooLarge     = "unknown: reply too large"
	lost         = "unknown: connection lost"
	ended        = "unknown: stream ended"
	late         = "unknown: wall clock"
	asked        = "unknown: server asked"
	between      = "unknown: intermediary"
	unclear      = "unknown: status unclear"
	continuation = "unknown: unsupported continuation"
	rpcError     = "rpc error: server error"
	notSent      = "not sent: "
)

// All returns every behaviour, by name.
func All() []Behaviour {
	all := slices.Concat(allowed, statuses, refusals, wires, streams, envelopes, results, asides,
		discoveries, handshakes, sessions, lists, farewells)
	slices.SortFunc(all, func(a, b Behaviour) int { return strings.Compare(a.Name, b.Name) })
	return all
}
