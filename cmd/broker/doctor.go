package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"onbehalf.internal/broker/doctor"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/httpapi"
)

// doctorTime bounds what doctor asks as a gateway, examinationTime an examination.
const doctorTime, examinationTime = 30 * time.Second, 2 * time.Minute

// doctorFlags are two callers: a gateway that asks as for a call that was cut off, and
// an admin who has the broker examined.
type doctorFlags struct {
	clientFlags
	adminFile         string
	patience, onlyBad bool
}

func doctorCommand(w world) *cobra.Command {
	var flags doctorFlags
	cmd := &cobra.Command{Use: "doctor", Short: "Say what is wrong around a running broker, and what to type", Args: cobra.NoArgs,
		Long: `Look at a running broker from two sides, begin nothing and print no result.

As a gateway, with its bearer and an actor: whether the broker is ready, and
whether what was done for the actor can be found again, which is what is left when
a call is cut off:

  refused          there is no way back yet; what to mend is said
  an empty list    as it should be, when nothing was called so far
  operations       the oldest is fetched by its id and by its key, which has to
                   be one answer

As an admin, with --admin-bearer-file: the broker looks at its configuration, disk,
database, clock, at Vault (what its login may do is held against what it needs), at
each identity provider by a dry exchange for nobody, at each server by a probe, and
at the proxies that show themselves on the way. With --patience an answer is also
waited for as long as the longest call may take, to see whether anything between
here and the broker cuts it.

Exit status: 0 all of it is as it should be; 1 something is not.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := flags.examine(cmd.Context(), w)
			if err != nil {
				return err
			}
			return report(w, found, flags.onlyBad)
		}}
	flags.bind(cmd)
	cmd.Flags().StringVar(&flags.adminFile, "admin-bearer-file", "", "file with an admin's bearer (default: $BROKER_ADMIN_BEARER_FILE)")
	cmd.Flags().BoolVar(&flags.patience, "patience", false, "also wait as long as the longest call may take")
	cmd.Flags().BoolVar(&flags.onlyBad, "only-wrong", false, "print nothing of what is well")
	return cmd
}

// report prints the findings, and is an exit where one of them is wrong.
func report(w world, found []doctor.Finding, onlyBad bool) error {
	words := map[doctor.State]string{doctor.OK: "ok", doctor.Note: "--", doctor.Wrong: "NO"}
	well := true
	for _, f := range found {
		well = well && f.State != doctor.Wrong
		if onlyBad && f.State != doctor.Wrong {
			continue
		}
		fmt.Fprintf(w.stdout, "%s  %s: %s\n", words[f.State], f.About, f.Says)
		if f.Do != "" {
			fmt.Fprintf(w.stdout, "      %s\n", strings.ReplaceAll(f.Do, "\n", "\n      "))
		}
	}
	if !well {
		return exit(1)
	}
	return nil
}

// examine looks from both sides, or from the one that there is a bearer for.
func (f *doctorFlags) examine(ctx context.Context, w world) (found []doctor.Finding, err error) {
	admin := clientFlags{address: f.address}
	admin.bearerFile = first(f.adminFile, w.getenv("BROKER_ADMIN_BEARER_FILE"))
	if first(f.bearerFile, w.getenv("BROKER_BEARER_FILE")) != "" || admin.bearerFile == "" {
		c, err := f.client(w)
		if err != nil {
			return nil, err
		}
		if found, err = asGateway(ctx, c); err != nil {
			return nil, err
		}
	}
	if admin.bearerFile == "" {
		return append(found, doctor.Finding{About: "the rest", State: doctor.Note, Says: "was not looked at: that takes an admin", Do: "--admin-bearer-file FILE"}), nil
	}
	c, err := admin.client(w)
	if err != nil {
		return nil, err
	}
	more, err := asAdmin(ctx, c, f.patience)
	return append(found, more...), err
}

func asGateway(ctx context.Context, c *client) (found []doctor.Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	for _, look := range []func(context.Context, *client) (doctor.Finding, error){readiness, retrieval} {
		f, err := look(ctx, c)
		if err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, nil
}

// asAdmin has the broker examined, and looks at the way to it.
func asAdmin(ctx context.Context, c *client, patient bool) ([]doctor.Finding, error) {
	const about = "examination"
	asked, cancel := context.WithTimeout(ctx, examinationTime)
	defer cancel()
	res, body, err := c.whole(asked, http.MethodPost, "/v1/doctor", nil)
	if err != nil {
		return nil, err
	}
	var said httpapi.Examination
	if res.StatusCode != http.StatusOK || json.Unmarshal(body, &said) != nil || said.Findings == nil {
		f := refused(about, res.StatusCode, body, "")
		if reasonIn(body) == fault.RoleMissing {
			f.Do = "This caller lacks the role admin: callers.<id>.roles."
		}
		return []doctor.Finding{f}, nil
	}
	found, longest := said.Findings, time.Duration(said.Longest)*time.Millisecond
	if sign, shows := doctor.Signs(res.Header); shows {
		found = append(found, sign.Finding("way to the broker", longest))
	}
	if patient {
		found = append(found, patience(ctx, c, longest))
	}
	return found, nil
}

// patience asks for an answer that takes as long as the longest call.
func patience(ctx context.Context, c *client, longest time.Duration) doctor.Finding {
	const about = "patience on the way to the broker"
	ctx, cancel := context.WithTimeout(ctx, longest+doctorTime)
	defer cancel()
	began := time.Now()
	status, body, err := c.do(ctx, http.MethodGet, "/v1/doctor/patience?wait="+longest.String(), nil)
	took := time.Since(began)
	early := took < longest
	took = took.Round(100 * time.Millisecond)
	f := doctor.Finding{About: about, State: doctor.Wrong}
	switch {
	case ctx.Err() != nil:
		f.Says = fmt.Sprintf("no answer within %s, where one was to come after %s", took, longest)
	case err != nil || status >= http.StatusInternalServerError:
		f.Says = fmt.Sprintf("something cut the answer off after %s, and a call may take %s", took, longest)
		f.Do = "raise its timeout above that, or lower operation.timeout; until then a gateway asks again by the key of its call"
	case status != http.StatusOK:
		return refused(about, status, body, "")
	case early:
		f.Says = fmt.Sprintf("an answer came after %s, where one was to come after %s: it is not the broker's", took, longest)
	default:
		f.State, f.Says = doctor.OK, fmt.Sprintf("nothing cut an answer that took %s, as long as the longest call", took)
	}
	return f
}

// refused is what became of a request that was not answered as it should.
func refused(about string, status int, body []byte, so string) doctor.Finding {
	f := doctor.Finding{About: about, State: doctor.Wrong}
	if r := reasonIn(body); r != fault.None {
		f.Says, f.Do = fmt.Sprintf("%d%s. %s", status, so, r), doctor.Remedy(r)
		return f
	}
	f.Says, f.Do = fmt.Sprintf("something answers with %d that is no broker", status), "is --api its address?"
	return f
}

// reasonIn is the reason of a problem of ours.
func reasonIn(body []byte) fault.Reason {
	var p httpapi.Problem
	if json.Unmarshal(body, &p) != nil || !p.Reason.Known() {
		return fault.None
	}
	return p.Reason
}

// readiness is what /readyz says.
func readiness(ctx context.Context, c *client) (doctor.Finding, error) {
	f := doctor.Finding{About: "ready", State: doctor.Wrong}
	status, body, err := c.do(ctx, http.MethodGet, "/readyz", nil)
	var said struct {
		Status any // a word, and in a problem a number
		Reason fault.Reason
	}
	bad := json.Unmarshal(body, &said)
	switch {
	case err != nil:
		return f, err
	case bad == nil && status == http.StatusOK && said.Status == "ready":
		f.State, f.Says = doctor.OK, "an operation could run now"
	case bad == nil && said.Reason.Known():
		f.Says, f.Do = string(said.Reason), doctor.Remedy(said.Reason)
	default:
		f.Says, f.Do = fmt.Sprintf("something answers /readyz with %d that is no broker", status), "is --api its address?"
	}
	return f, nil
}

// retrieval is the list of what was done for the actor, and its oldest entry.
func retrieval(ctx context.Context, c *client) (doctor.Finding, error) {
	f := doctor.Finding{About: "retrieval", State: doctor.Wrong}
	status, body, err := c.do(ctx, http.MethodGet, "/v1/operations", nil)
	if err != nil {
		return f, err
	}
	if status != http.StatusOK {
		return refused(f.About, status, body, ", so what is cut off cannot be found again"), nil
	}
	var list struct {
		Operations []httpapi.Operation
		Window     string
	}
	if json.Unmarshal(body, &list) != nil || list.Operations == nil || list.Window == "" {
		return refused(f.About, status, nil, ""), nil
	}
	if len(list.Operations) == 0 {
		f.State, f.Says = doctor.OK, "an empty list, as it should be where nothing was called in the last "+list.Window+"; what is cut off will be found here, or by its key"
		return f, nil
	}
	return oldest(ctx, c, f, list.Operations)
}

// oldest fetches the last of the list in both ways. What changes meanwhile, such
// as a hold that is dropped, is looked at again.
func oldest(ctx context.Context, c *client, f doctor.Finding, list []httpapi.Operation) (doctor.Finding, error) {
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
				f.Says = fmt.Sprintf("the oldest of %d operations is in the list, and asking for it at %q is answered %d", len(list), path, status)
				return f, nil
			}
			bodies[i] = body
		}
		if bytes.Equal(bodies[0], bodies[1]) {
			f.State, f.Says = doctor.OK, fmt.Sprintf("%d operations; the oldest, %q, is one answer by its id and by its key", len(list), op.ID)
			return f, nil
		}
		if bytes.Equal(bodies[0], bodies[2]) {
			break
		}
	}
	f.Says, f.Do = fmt.Sprintf("the oldest of %d operations, %q, is one thing by its id and another by its key", len(list), op.ID), "is there one broker behind --api?"
	return f, nil
}
