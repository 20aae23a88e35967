package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// doctorTime bounds all that doctor asks.
const doctorTime = 30 * time.Second

// doctorCommand tries out, before it is needed, what a gateway does after a call
// was cut off. It begins nothing and prints no result.
func doctorCommand(w world) *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{Use: "doctor", Short: "Try out whether a call that is cut off could be found again", Args: cobra.NoArgs,
		Long: `Ask a running broker, as a gateway would with the same bearer and actor, whether
it is ready, and for what was done for the actor. Retrieval is what is left when
a call is cut off, so try it before you need it:

  refused          there is no way back yet; what to mend is said
  an empty list    as it should be, when nothing was called so far
  operations       the oldest is fetched by its id and by its key, which has to
                   be one answer

Nothing is begun and no result is printed. Exit status: 0 all of it is as it
should be; 1 something is not.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.client(w)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTime)
			defer cancel()
			well := true
			for _, look := range []func(context.Context, *client) (finding, error){readiness, retrieval} {
				f, err := look(ctx, c)
				if err != nil {
					return err
				}
				fmt.Fprintln(w.stdout, f)
				well = well && f.ok
			}
			if !well {
				return exit(1)
			}
			return nil
		}}
	flags.bind(cmd)
	return cmd
}

// A finding is one line: what was looked at, and what to do where it is not well.
type finding struct {
	ok         bool
	what, says string
}

func (f finding) String() string {
	if f.ok {
		return "ok  " + f.what + ": " + f.says
	}
	return "NO  " + f.what + ": " + f.says
}

// readiness is what /readyz says.
func readiness(ctx context.Context, c *client) (finding, error) {
	f := finding{what: "ready"}
	status, body, err := c.do(ctx, http.MethodGet, "/readyz", nil)
	var said struct {
		Status any // a word, and in a problem a number
		Reason fault.Reason
	}
	wrong := json.Unmarshal(body, &said)
	switch {
	case err != nil:
		return f, err
	case wrong == nil && status == http.StatusOK && said.Status == "ready":
		f.ok, f.says = true, "an operation could run now"
	case wrong == nil && said.Reason.Known():
		f.says = remedy(said.Reason)
	default:
		f.says = fmt.Sprintf("something answers /readyz with %d that is no broker; is --api its address?", status)
	}
	return f, nil
}

// retrieval is the list of what was done for the actor, and its oldest entry.
func retrieval(ctx context.Context, c *client) (finding, error) {
	f := finding{what: "retrieval"}
	status, body, err := c.do(ctx, http.MethodGet, "/v1/operations", nil)
	if err != nil {
		return f, err
	}
	if status != http.StatusOK {
		var p httpapi.Problem
		if json.Unmarshal(body, &p) != nil || !p.Reason.Known() {
			f.says = fmt.Sprintf("something answers with %d that is no broker; is --api its address?", status)
			return f, nil
		}
		f.says = fmt.Sprintf("%d, so what is cut off cannot be found again. %s", status, remedy(p.Reason))
		return f, nil
	}
	var list struct {
		Operations []httpapi.Operation
		Window     string
	}
	if json.Unmarshal(body, &list) != nil || list.Operations == nil || list.Window == "" {
		f.says = "something answers that is no broker; is --api its address?"
		return f, nil
	}
	if len(list.Operations) == 0 {
		f.ok, f.says = true, "an empty list, as it should be where nothing was called in the last "+list.Window+"; what is cut off will be found here, or by its key"
		return f, nil
	}
	return oldest(ctx, c, f, list.Operations)
}

// oldest fetches the last of the list in both ways. What changes meanwhile, such
// as a hold that is dropped, is looked at again.
func oldest(ctx context.Context, c *client, f finding, list []httpapi.Operation) (finding, error) {
	op := list[len(list)-1]
	byID, byKey := "/v1/operations/"+url.PathEscape(op.ID), "/v1/operations?request_key="+url.QueryEscape(op.RequestKey)
	for range 3 {
		var bodies [3][]byte
		for i, path := range []string{byID, byKey, byID} {
			status, body, err := c.do(ctx, http.MethodGet, path, nil)
			if err != nil {
				return f, err
			}
			if status != http.StatusOK && status != http.StatusAccepted {
				f.says = fmt.Sprintf("the oldest of %d operations is in the list, and asking for it at %q is answered %d", len(list), path, status)
				return f, nil
			}
			bodies[i] = body
		}
		if bytes.Equal(bodies[0], bodies[1]) {
			f.ok, f.says = true, fmt.Sprintf("%d operations; the oldest, %q, is one answer by its id and by its key", len(list), op.ID)
			return f, nil
		}
		if bytes.Equal(bodies[0], bodies[2]) {
			break
		}
	}
	f.says = fmt.Sprintf("the oldest of %d operations, %q, is one thing by its id and another by its key: is there one broker behind --api?", len(list), op.ID)
	return f, nil
}

// remedies are what a person does about a reason.
var remedies = map[fault.Reason]string{
	fault.CallerUnknown:    "The broker does not know this bearer: its SHA-256 has to be under callers.<id>.bearer_sha256.",
	fault.ActorMissing:     "Say for whom: --actor, or --assertion-file, as the gateway does.",
	fault.ActorInvalid:     "This is no actor; one is user:… or service:…, said in one way.",
	fault.AssertionInvalid: "The assertion is not believed: look at issuer, audience, subjects and key under callers.<id>.actors.signed, and at its exp.",
	fault.ActorNotAllowed:  "This caller may not speak for this actor, or not in this way: look at callers.<id>.actors.",
	fault.RoleMissing:      "This caller lacks the role operate.",
	fault.HostNotAllowed:   "Use the address that the broker listens on, as in listen.api.",
	fault.RateLimited:      "This caller asks too much at the moment; try again.",
	fault.Draining:         "The broker is stopping.",
	fault.VaultNotReady:    "It has no live login or epoch in Vault: the log says why; deploy/vault/setup.sh sets up what it needs.",
	fault.VaultUnreachable: "Vault does not answer.",
	fault.VaultSealed:      "Vault is sealed.",
	fault.VaultDenied:      "Vault says no: compare its policies with deploy/vault.",
	fault.StoreFailed:      "Its disk has failed: free space, then restart it.",
	fault.StoreUnavailable: "It cannot read its store: the log says why.",
}

// remedy is the word itself, and what to do.
func remedy(r fault.Reason) string {
	text, known := remedies[r]
	if !known {
		text = "docs/outcomes.md says what it means."
	}
	return string(r) + ": " + text
}
