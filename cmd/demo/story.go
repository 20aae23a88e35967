package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"onbehalf.internal/broker/brokertest"
)

// A story runs four calls and says of each what happened and whether it should.
type story struct {
	ctx   context.Context
	rig   *brokertest.Rig
	out   io.Writer
	wrong []error
}

func (s *story) tell(vault string) {
	where := "a stand-in in this process, NOT Vault; -vault ADDR takes a real one"
	if vault != "" {
		where = "real, at " + vault
	}
	s.say("A broker between an agent gateway and MCP servers, with everything it needs, on loopback:\n")
	s.say("  broker             %s", s.rig.URL)
	s.say("  identity provider  %s   (dev, RFC 8693)", s.rig.Provider.Issuer())
	s.say("  MCP servers        %s  \"records\", 2026-07-28\n                     %s  \"archive\", 2025-11-25", s.rig.Records.URL, s.rig.Archive.URL)
	s.say("  Vault              %s", where)
	s.permitted()
	s.refused()
	s.cutOff()
}

func (s *story) permitted() {
	s.say("\n1. A permitted call. user:7 has a grant, so the gateway may call whoami on archive for it.\n")
	a := s.call(brokertest.Call{Server: "archive", Tool: "whoami", Key: "story-1"})
	s.legs(a)
	s.say("\n   %s (ran: %s, retry: %s). The server says it was called as: %s", a.State, a.Ran, a.Retry, a.Text)
	s.say("   The exchanged token's hold: %s.", a.Hold)
	s.check("the permitted call succeeds and its hold is dropped", a.Status == 200 && a.State == "succeeded" && a.Hold == "dropped")
}

func (s *story) refused() {
	exchanges, seen := s.rig.Provider.Exchanges(), len(s.rig.Records.Requests())
	s.say("\n2. A refused call. user:8 is known, and has no grant.\n")
	a := s.call(brokertest.Call{Actor: "user:8", Tool: "whoami", Key: "story-2"})
	exchanges, seen = s.rig.Provider.Exchanges()-exchanges, len(s.rig.Records.Requests())-seen
	s.say("   HTTP %d, %s. The provider was asked %d times, the server %d times; the denial is in the audit.", a.Status, a.Reason, exchanges, seen)
	s.check("the refused call is refused before anything is spent", a.Status == 403 && a.Reason == "no_grant" && exchanges == 0 && seen == 0)
}

func (s *story) cutOff() {
	s.say("\n3. A call that is cut off. The tool \"drop\" does its work and drops the connection without an answer.\n")
	call := brokertest.Call{Tool: "drop", Arguments: map[string]string{"job": "invoice-17"}, Key: "story-3"}
	a := s.call(call)
	s.legs(a)
	s.say("\n   %s (ran: %s, cause: %s). Repeating: %s.", a.State, a.Ran, a.Cause, a.Retry)
	s.check("the cut-off call is told as unknown", a.Status == 200 && a.State == "unknown" && a.Retry == "never_without_looking")

	s.say("\n4. Its retrieval, by the gateway's own key. A repeat of the call gets the same job and sends nothing.\n")
	got := s.get("/v1/operations?request_key=story-3")
	again := s.call(call)
	look := s.call(brokertest.Call{Tool: "job", Arguments: map[string]string{"job": "invoice-17"}, Key: "story-4"})
	s.say("   operation %s: %s. The repeat: operation %s, replayed: %s.", got.ID, got.State, again.ID, again.Header.Get("Broker-Replayed"))
	s.say("   Looking with the server's own read-only tool: %s", look.Text)
	s.say("   The tool ran %d time.", s.rig.Records.Calls("drop"))
	s.check("the job is found by its key and ran once", got.Status == 200 && got.ID == a.ID && again.ID == a.ID &&
		again.Header.Get("Broker-Replayed") == "true" && s.rig.Records.Calls("drop") == 1)
	s.say("")
}

// meanings say what a leg does, for a reader who sees them for the first time.
var meanings = map[string]string{
	"subject":                   "read user:7's credential from Vault, as its grant says",
	"exchange":                  "traded it for a token for this server's audience and scope, and checked what came",
	"hold":                      "put the token under a short-lived Vault path",
	"server/discover":           "first contact: which protocol does the server speak",
	"initialize":                "handshake  (hold read before it)",
	"notifications/initialized": "handshake  (hold read before it)",
	"tools/call":                "the call   (hold read, \"sending\" on disk before the first byte)",
	"drop":                      "deleted the token",
}

func (s *story) legs(a brokertest.Answer) {
	for _, l := range a.Legs {
		s.say("   %-26s %7.1f ms   %s", l.Name, l.Took.Seconds()*1000, meanings[l.Name])
	}
}

func (s *story) call(c brokertest.Call) brokertest.Answer {
	return s.heard(s.rig.Do(s.ctx, c))
}

func (s *story) get(path string) brokertest.Answer {
	return s.heard(s.rig.Look(s.ctx, path, brokertest.Call{}))
}

func (s *story) heard(a brokertest.Answer, err error) brokertest.Answer {
	if err != nil {
		s.wrong = append(s.wrong, err)
	}
	return a
}

func (s *story) check(what string, ok bool) {
	if !ok {
		s.wrong = append(s.wrong, errors.New("not so: "+what))
	}
}

func (s *story) verdict() error { return errors.Join(s.wrong...) }

func (s *story) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }
