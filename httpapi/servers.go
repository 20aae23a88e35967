package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"onbehalf.internal/broker/audit"
	"onbehalf.internal/broker/catalogue"
	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/operation"
	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/strictjson"
)

// A Server is a server as the operator declared it and as it was found.
type Server struct {
	ID               string `json:"id"`
	Enabled          bool   `json:"enabled"`
	DataClass        string `json:"data_class"`
	Auth             string `json:"auth"` // "delegated" or "legacy"
	RequiresApproval bool   `json:"requires_approval"`

	Import  Imported `json:"import"`
	Health  Health   `json:"health"`
	Changed []string `json:"changed"` // tools that are refused: they are not what is pinned, or came back
}

// Imported is how the last imports ended.
type Imported struct {
	Status  catalogue.Status `json:"status"`
	Problem string           `json:"problem,omitempty"` // why it is not ok
	At      time.Time        `json:"at,omitzero"`       // of the last attempt
	Good    time.Time        `json:"good_at,omitzero"`  // of the last one that got a list
	Tools   int              `json:"tools"`             // that it took
}

// Health is what is known of a server from what it answered.
type Health struct {
	Is       string       `json:"is,omitempty"` // as the last probe found it
	Reason   fault.Reason `json:"reason,omitempty"`
	Probed   time.Time    `json:"probed_at,omitzero"`
	Contact  time.Time    `json:"contact_at,omitzero"` // the last time that anything of it succeeded
	Latency  float64      `json:"latency_ms,omitempty"`
	Era      policy.Era   `json:"era,omitempty"`
	Version  string       `json:"version,omitempty"`
	Software string       `json:"software,omitempty"` // as it calls itself
	Release  string       `json:"release,omitempty"`
}

// servers answers GET /v1/servers: those that are declared, by id.
func (a *API) servers(ctx context.Context, r *request) (answer, error) {
	if r.http.URL.RawQuery != "" {
		return answer{}, fault.New("httpapi.servers", fault.MalformedRequest, "this address takes no query")
	}
	servers, err := Servers(ctx, a.Policy.Current(), a.Catalogue)
	if err != nil {
		return answer{}, err
	}
	return inJSON(http.StatusOK, struct {
		Servers []Server `json:"servers"`
		Ledger  Ledger   `json:"ledger"`
	}{servers, a.ledger()}), nil
}

// Servers are those that are declared, by id, with what is known of them.
func Servers(ctx context.Context, snapshot *policy.Snapshot, c *catalogue.Catalogue) ([]Server, error) {
	known, err := c.Servers(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]catalogue.Server{}
	for _, s := range known {
		byName[s.Name] = s
	}
	list := []Server{}
	for _, declared := range snapshot.Servers() {
		list = append(list, shownServer(snapshot, declared, byName[declared.ID]))
	}
	return list, nil
}

func shownServer(snapshot *policy.Snapshot, declared *policy.Server, found catalogue.Server) Server {
	s := Server{ID: declared.ID, Enabled: declared.Enabled, DataClass: declared.DataClass.String(), Auth: declared.Auth.Mode,
		RequiresApproval: declared.RequiresApproval, Changed: snapshot.Changed(declared.ID),
		Import: Imported{catalogue.NeverImported, found.Problem, found.Imported, found.Good, found.Tools},
		Health: Health{found.Is, found.Probe, found.Probed, found.Contact, float64(found.Latency.Microseconds()) / 1000, found.Era, found.Version, found.Software, found.SoftwareVersion},
	}
	if found.Status != "" {
		s.Import.Status = found.Status
	}
	return s
}

// An ImportAnswer is how an import ended. Refused says why there was no list; then
// nothing was changed but what is told of the server.
type ImportAnswer struct {
	Server   string            `json:"server"`
	Refused  fault.Reason      `json:"refused,omitempty"`
	Imported int               `json:"imported"`
	Skipped  []Skipped         `json:"skipped"`
	Orphaned int               `json:"orphaned"` // now, also those that were before
	New      []string          `json:"new"`
	Changed  []audit.Redefined `json:"changed"`
	Vanished []string          `json:"vanished"`
	Returned []string          `json:"returned"`
	Legs     []audit.Leg       `json:"legs"`
	Ledger   Ledger            `json:"ledger"`
}

// Skipped is a tool that was not taken.
type Skipped struct {
	Tool    string `json:"tool"`
	Why     string `json:"why"`
	Pointer string `json:"pointer,omitempty"` // into its inputSchema
}

// importServer answers POST /v1/servers/{id}/import. The attempt is 200, however it
// ended.
func (a *API) importServer(ctx context.Context, r *request) (answer, error) {
	if wantsStream(r.http.Header) {
		return a.streamImport(r), nil
	}
	found, err := a.Runner.Import(ctx, operation.Asker{Caller: r.caller}, r.param("id"), nil)
	if err != nil {
		return answer{}, err
	}
	return inJSON(http.StatusOK, a.imported(found)), nil
}

func (a *API) imported(found operation.Discovery) ImportAnswer {
	got := ImportAnswer{Server: found.Server, Skipped: []Skipped{}, New: []string{}, Changed: []audit.Redefined{},
		Vanished: []string{}, Returned: []string{}, Legs: append([]audit.Leg{}, found.Legs...), Ledger: a.ledger()}
	if found.Outcome.State != fault.Succeeded {
		got.Refused = found.Outcome.Cause
		return got
	}
	rep := found.Report
	got.Imported, got.Orphaned = rep.Imported, rep.Orphaned
	got.New, got.Vanished, got.Returned = append(got.New, rep.New...), append(got.Vanished, rep.Vanished...), append(got.Returned, rep.Returned...)
	got.Changed = append(got.Changed, rep.Changed...)
	for _, s := range rep.Skipped {
		got.Skipped = append(got.Skipped, Skipped{s.Tool, s.Why, s.Pointer})
	}
	return got
}

// ImportProgress is the data of an event "page".
type ImportProgress struct {
	Pages int     `json:"pages"`
	Tools int     `json:"tools"`
	Left  float64 `json:"budget_ms"` // of the budget
}

// streamImport imports while it tells of every page: events "page", and at last
// "imported", or "problem" where nothing was begun.
func (a *API) streamImport(r *request) answer {
	return answer{status: http.StatusOK, media: "text/event-stream", headers: map[string]string{"X-Accel-Buffering": "no"},
		stream: func(ctx context.Context, s *events) {
			found, err := a.Runner.Import(ctx, operation.Asker{Caller: r.caller}, r.param("id"), func(p operation.Progress) {
				data, _ := json.Marshal(ImportProgress{p.Pages, p.Tools, float64(p.Left.Microseconds()) / 1000})
				s.send("page", data)
			})
			if err != nil {
				s.send("problem", a.problem(err).body)
				return
			}
			data, _ := json.Marshal(a.imported(found))
			s.send("imported", data)
		}}
}

// A ProbeAnswer is what a probe found.
type ProbeAnswer struct {
	Server string      `json:"server"`
	Health             // without the contact of before
	Legs   []audit.Leg `json:"legs"`
	Ledger Ledger      `json:"ledger"`
}

// probe answers POST /v1/servers/{id}/probe.
func (a *API) probe(ctx context.Context, r *request) (answer, error) {
	found, err := a.Runner.Probe(ctx, operation.Asker{Caller: r.caller}, r.param("id"))
	if err != nil {
		return answer{}, err
	}
	h := Health{Is: string(found.Sight.Is), Reason: found.Outcome.Cause, Probed: a.Now().UTC(), Latency: float64(found.Sight.Latency.Microseconds()) / 1000,
		Era: found.Era, Version: found.Spoken, Software: catalogue.Cleaned(found.Sight.Name), Release: catalogue.Cleaned(found.Sight.Release)}
	return inJSON(http.StatusOK, ProbeAnswer{found.Server, h, append([]audit.Leg{}, found.Legs...), a.ledger()}), nil
}

// A KeptTool is a tool as the catalogue has it, with what the operator says of it.
type KeptTool struct {
	Name        string         `json:"name"` // the server's own
	Local       string         `json:"local_name"`
	Title       string         `json:"title,omitempty"`
	Description string         `json:"description"`
	Schema      strictjson.Raw `json:"input_schema,omitempty"` // absent: what is stored is none
	Pin         string         `json:"pin"`
	Pinned      string         `json:"pinned,omitempty"` // by the operator
	Declared    bool           `json:"declared"`
	Enabled     bool           `json:"enabled"`
	Since       time.Time      `json:"since"`
	Seen        time.Time      `json:"seen"`
	Orphaned    time.Time      `json:"orphaned_at,omitzero"`
	Returned    time.Time      `json:"returned_at,omitzero"`

	// Where Pin is not Pinned: what is different.
	Changes []catalogue.Change `json:"changes,omitempty"`
	Unseen  bool               `json:"pinned_unseen,omitempty"` // what is pinned was never imported
}

// serverTools answers GET /v1/servers/{id}/tools.
func (a *API) serverTools(ctx context.Context, r *request) (answer, error) {
	const op = "httpapi.serverTools"
	declared, ok := a.Policy.Current().Server(r.param("id"))
	if !ok || r.http.URL.RawQuery != "" {
		return answer{}, fault.New(op, fault.ServerUnknown, "")
	}
	kept, err := a.Catalogue.Tools(ctx, declared.ID)
	if err != nil {
		return answer{}, err
	}
	list := struct {
		Server string     `json:"server"`
		Tools  []KeptTool `json:"tools"`
		Ledger Ledger     `json:"ledger"`
	}{declared.ID, []KeptTool{}, a.ledger()}
	for _, k := range kept {
		rule, named := declared.Tools[k.Name]
		shown := KeptTool{k.Name, k.Local, k.Title, k.Description, k.Schema, k.Pin, rule.Pin, named, rule.Enabled, k.Since, k.Seen, k.Orphaned, k.Returned, nil, false}
		if rule.Pin != "" && rule.Pin != k.Pin {
			if shown.Changes, shown.Unseen, err = a.changes(ctx, k, rule.Pin); err != nil {
				return answer{}, err
			}
		}
		list.Tools = append(list.Tools, shown)
	}
	return inJSON(http.StatusOK, list), nil
}

// changes is what is different in k from what is pinned.
func (a *API) changes(ctx context.Context, k catalogue.Kept, pinned string) (_ []catalogue.Change, unseen bool, err error) {
	old, found, err := a.Catalogue.Definition(ctx, k.Server, k.Name, pinned)
	if err != nil || !found {
		return nil, err == nil, err
	}
	now, _, err := a.Catalogue.Definition(ctx, k.Server, k.Name, k.Pin)
	return catalogue.Diff(old, now), false, err
}

// inJSON is an answer of ours.
func inJSON(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		panic("broker: internal error: an answer that is not JSON: " + err.Error())
	}
	return answer{status: status, media: "application/json", body: body}
}
