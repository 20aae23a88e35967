package operation

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/ledger"
	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// callOf is the call as it goes to the server: the caller's arguments, and the
// key where the server takes one.
func callOf(ask sealed, d policy.Decision) (mcpclient.Call, error) {
	call := mcpclient.Call{Tool: ask.Tool, Arguments: ask.Arguments, Idle: d.Idle(), Drain: d.Drain()}
	key, value := d.UpstreamKey(), upstreamKey(ask.Caller.ID(), ask.Actor.String(), ask.RequestKey)
	switch {
	case key.Meta != "":
		call.Meta = map[string]string{key.Meta: value}
	case key.Argument != "":
		var err error
		if call.Arguments, err = strictjson.With(ask.Arguments, key.Argument, value); err != nil {
			return call, fault.New("operation.callOf", fault.MalformedRequest, "arguments: "+err.Error()+"; the broker sets it from request_key")
		}
	}
	return call, nil
}

// upstreamKey is the caller's request key as a server sees it. It is the same
// for every attempt, by whatever process, and says nothing of who asks. It is a
// UUID of version 8 (RFC 9562, 5.8), since some servers take nothing else.
func upstreamKey(caller, actor, key string) string {
	h := sha256.New()
	for _, s := range []string{"broker request key", caller, actor, key} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	u := uuid.UUID(h.Sum(nil)[:16])
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return u.String()
}

// carrier is how the key reaches the server, in a word for the ledger.
func carrier(k policy.UpstreamKey) string {
	if k.Meta != "" {
		return "meta " + k.Meta
	}
	return "argument " + k.Argument
}

// A Look is a call of the server's own tool that only reads, by which a caller
// finds out what became of an operation.
type Look struct {
	Tool      string            `json:"tool"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// lookWith says how to look, where looking is what the caller has to do.
func (r *Runner) lookWith(op ledger.Operation, at time.Time) *Look {
	server, known := r.policy.Current().Server(op.Server)
	if !known || server.Recovery.Tool == "" || op.Retry(at) != fault.RetryLookFirst {
		return nil
	}
	look := &Look{Tool: server.Recovery.Tool}
	if server.Recovery.Argument != "" && op.Upstream != "" {
		look.Arguments = map[string]string{server.Recovery.Argument: upstreamKey(op.Caller, op.Actor, op.RequestKey)}
	}
	return look
}
