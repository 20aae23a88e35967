package mcpclient_test

import (
	"context"
	"testing"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
)

// TestLiveness: what a person does about a server that does not work differs, so a
// probe tells a server that is down from one that refuses our credential and from one
// that speaks something else. It never asks for more than it takes to know.
func TestLiveness(t *testing.T) {
	const who = `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"shop","version":"7"}}`
	found := result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},` + who + `}`)
	page := raw("text/html", "<html>")
	auto, modern, legacy := policy.EraAuto, policy.EraModern, policy.EraLegacy
	for name, r := range map[string]struct {
		era     policy.Era
		lines   map[string][]answer // instead of what a good server says
		want    mcpclient.Liveness
		cause   fault.Reason
		methods string
	}{
		"modern":                        {modern, map[string][]answer{probe: {found}}, mcpclient.Up, "", probe},
		"modern, found out":             {auto, map[string][]answer{probe: {found}}, mcpclient.Up, "", probe},
		"legacy":                        {legacy, nil, mcpclient.Up, "", "initialize notifications/initialized"},
		"legacy, found out":             {auto, nil, mcpclient.Up, "", "server/discover initialize notifications/initialized"},
		"modern, 401":                   {modern, map[string][]answer{probe: {status(401, "")}}, mcpclient.Unwelcome, fault.Unauthorized, probe},
		"auto, 403":                     {auto, map[string][]answer{probe: {status(403, "")}}, mcpclient.Unwelcome, fault.StatusRefused, probe},
		"legacy, 401":                   {legacy, map[string][]answer{initialize: {status(401, "")}}, mcpclient.Unwelcome, fault.Unauthorized, initialize},
		"legacy, 401 to the second":     {legacy, map[string][]answer{initialized: {status(401, "")}}, mcpclient.Unwelcome, fault.Unauthorized, "initialize notifications/initialized"},
		"503":                           {auto, map[string][]answer{probe: {status(503, "")}}, mcpclient.Down, fault.Intermediary, probe},
		"it hangs up":                   {auto, map[string][]answer{probe: {cut("")}}, mcpclient.Down, fault.ConnectionLost, probe},
		"modern, a web page":            {modern, map[string][]answer{probe: {page}}, mcpclient.WrongProtocol, fault.ReplyMalformed, probe},
		"legacy, a web page":            {legacy, map[string][]answer{initialize: {page}}, mcpclient.WrongProtocol, fault.ReplyMalformed, initialize},
		"modern, it knows no such":      {modern, map[string][]answer{probe: {rpcError(`{"code":-32601,"message":""}`)}}, mcpclient.WrongProtocol, fault.VersionUnsupported, probe},
		"modern, other versions":        {modern, map[string][]answer{probe: {result(`{"supportedVersions":["2099-01-01"]}`)}}, mcpclient.WrongProtocol, fault.VersionUnsupported, probe},
		"auto, other versions":          {auto, map[string][]answer{probe: {result(`{"supportedVersions":["2099-01-01"]}`)}}, mcpclient.WrongProtocol, fault.VersionUnsupported, probe},
		"legacy, another version":       {legacy, map[string][]answer{initialize: {result(`{"protocolVersion":"2024-11-05"}`)}}, mcpclient.WrongProtocol, fault.VersionUnsupported, initialize},
		"legacy, no version":            {legacy, map[string][]answer{initialize: {result(`{}`)}}, mcpclient.WrongProtocol, fault.ReplyMalformed, initialize},
		"404 everywhere":                {auto, map[string][]answer{probe: {status(404, "")}, initialize: {status(404, "")}}, mcpclient.WrongProtocol, fault.Intermediary, "server/discover initialize"},
		"modern, it repeats our token":  {modern, map[string][]answer{probe: {result(`{"supportedVersions":["2026-07-28"],"x":"` + token + `"}`)}}, mcpclient.WrongProtocol, fault.SecretEchoed, probe},
		"legacy, it repeats our token":  {legacy, map[string][]answer{initialize: {result(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"` + token + `"}}`)}}, mcpclient.WrongProtocol, fault.SecretEchoed, initialize},
		"modern, it says nothing of it": {modern, map[string][]answer{probe: {result(`{"supportedVersions":["2026-07-28"]}`)}}, mcpclient.Up, "", probe},
	} {
		t.Run(name, func(t *testing.T) {
			server := withFarewell(result(good))
			for method, lines := range r.lines {
				server.lines[method] = lines
			}
			talk := mcpclient.New(mcpclient.Config{}).Open(server.server(t, r.era))
			defer talk.Close()
			got, rep := talk.Probe(within(t, 5*time.Second), open())
			var methods string
			for i, m := range server.methods() {
				if i > 0 {
					methods += " "
				}
				methods += m
			}
			if got.Is != r.want || rep.Outcome.Cause != r.cause || methods != r.methods || got.Is != mcpclient.NotAsked && got.Latency <= 0 {
				t.Errorf("%+v, %+v after %q\nwant %s, %q after %q", got, rep.Outcome, methods, r.want, r.cause, r.methods)
			}
			switch {
			case r.want != mcpclient.Up && (got.Name != "" || rep.Outcome.State != fault.NotSent):
				t.Errorf("%+v, %+v", got, rep.Outcome)
			case r.want == mcpclient.Up && (rep.Outcome.State != fault.Succeeded || rep.Outcome.Ran != fault.RanNo || rep.Era == "" || rep.Version == ""):
				t.Errorf("%+v", rep)
			}
			if name == "modern" && (got.Name != "shop" || got.Release != "7") || name == "legacy" && (got.Name != "x" || got.Release != "1") {
				t.Errorf("it is called %q %q", got.Name, got.Release)
			}
		})
	}
}

// TestProbeThatAsksNothing: what keeps a leg from leaving says nothing of the server,
// and what is not there is down.
func TestProbeThatAsksNothing(t *testing.T) {
	server := withFarewell(result(good))
	declared := server.server(t, policy.EraModern)
	gate := open()
	gate.Credential = func(context.Context, string) (mcpclient.Credential, error) {
		return mcpclient.Credential{}, fault.New("test", fault.VaultSealed, "")
	}
	talk := mcpclient.New(mcpclient.Config{}).Open(declared)
	defer talk.Close()
	if got, rep := talk.Probe(within(t, 5*time.Second), gate); got.Is != mcpclient.NotAsked || rep.Outcome != fault.NotSentBecause(fault.VaultSealed) || len(server.methods()) != 0 {
		t.Errorf("%+v, %+v", got, rep.Outcome)
	}
	gone := mcpclient.New(mcpclient.Config{}).Open(declare(t, "http://127.0.0.1:1/mcp", policy.EraModern))
	defer gone.Close()
	if got, rep := gone.Probe(within(t, 5*time.Second), open()); got.Is != mcpclient.Down || rep.Outcome != fault.NotSentBecause(fault.ConnectFailed) {
		t.Errorf("%+v, %+v", got, rep.Outcome)
	}
}

// TestProbeDoesNotBelieve: a server that has changed its era since is seen as it is.
func TestProbeDoesNotBelieve(t *testing.T) {
	server := withFarewell(result(good))
	client, declared := mcpclient.New(mcpclient.Config{}), server.server(t, policy.EraAuto)
	for _, want := range []policy.Era{policy.EraLegacy, policy.EraModern} {
		talk := client.Open(declared)
		if _, rep := talk.Probe(within(t, 5*time.Second), open()); rep.Era != want {
			t.Errorf("%s, want %s", rep.Era, want)
		}
		talk.Close()
		server.lines[probe] = []answer{result(`{"supportedVersions":["2026-07-28"]}`)}
	}
	server.lines[toolsCall] = []answer{result(`{"resultType":"complete",` + good[1:])}
	before := server.count(probe)
	if rep := call(t, client, declared, open()); rep.Era != policy.EraModern || server.count(probe) != before || rep.Outcome.State != fault.Succeeded {
		t.Errorf("%+v after %q", rep, server.methods())
	}
}
