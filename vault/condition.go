package vault

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// A Health is what Vault says of itself to anybody.
type Health struct {
	Version                      string // Vault's own text
	Initialized, Sealed, Standby bool
	Clock                        time.Time     // Vault's, in whole seconds
	Asked                        time.Time     // by ours
	Took                         time.Duration // the answer
}

// Health asks sys/health, which is the whole Vault's and not a namespace's.
func (c *Client) Health(ctx context.Context) (Health, error) {
	const op = "vault.Health"
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Whatever the condition is, the status is to be 200.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+"/v1/sys/health?standbyok=true&perfstandbyok=true&sealedcode=200&uninitcode=200&drsecondarycode=200", nil)
	if err != nil {
		return Health{}, unanswered(op, err)
	}
	h := Health{Asked: c.now()}
	_, a, err := answers{next: c.answers.next}.exchange(req)
	if err := answered(op, a, err); err != nil {
		return Health{}, err
	}
	h.Took = c.now().Sub(h.Asked)
	h.Version, _ = member[string](a.members, "version")
	h.Initialized, _ = member[bool](a.members, "initialized")
	h.Standby, _ = member[bool](a.members, "standby")
	sealed, ok := member[bool](a.members, "sealed")
	said, dated := member[int64](a.members, "server_time_utc")
	if !ok || !dated {
		return Health{}, fault.New(op, fault.VaultUnexpected, "a health without seal and clock")
	}
	h.Sealed, h.Clock = sealed, time.Unix(said, 0)
	return h, nil
}

// A Login is what Vault knows of the broker's login.
type Login struct {
	Life, Whole time.Duration // what is left, and what it had at its birth; 0: for ever
	Renewable   bool
	Policies    []string // sorted; those of its identity with it
	Uses        int64    // how often it can be used; 0: any number
}

// Login looks the login up.
func (c *Client) Login(ctx context.Context) (found Login, err error) {
	const op = "vault.Login"
	err = c.asLogin(ctx, op, func(l *login) error {
		a, err := c.plain(ctx, http.MethodGet, "auth/token/lookup-self", l.token, nil)
		if err := answered(op, a, err); err != nil {
			return err
		}
		data := a.object("data")
		var ok, born bool
		found.Life, ok = seconds(data, "ttl")
		found.Whole, born = seconds(data, "creation_ttl")
		found.Renewable, _ = member[bool](data, "renewable")
		found.Uses, _ = member[int64](data, "num_uses")
		found.Policies = append(names(data["policies"]), names(data["identity_policies"])...)
		slices.Sort(found.Policies)
		if !ok || !born || len(found.Policies) == 0 {
			return fault.New(op, fault.VaultUnexpected, "a lookup without lives or policies")
		}
		return nil
	})
	return found, err
}

func names(raw strictjson.Raw) (list []string) {
	_ = json.Unmarshal(raw, &list)
	return list
}

// A Rehearsal is what an epoch showed that nobody's operation is in.
type Rehearsal struct {
	Life      time.Duration // that the token role allows, as far as twice of what is needed was asked for
	Policies  []string
	Orphan    bool     // it would outlive its login
	Renewable bool     // it could outlive its life
	Odd       []Oddity // what was not answered as it has to be
}

// An Oddity is a step of a rehearsal: what was tried, and what it means that Vault
// answered otherwise.
type Oddity struct {
	Step, Means string
	Status      int
}

// rehearsed are the steps of a hold, and what its epoch must not be able to do.
var rehearsed = []struct {
	step, method, path string // "ID" is the place of the hold
	body               bool
	want               int
	means              string
}{
	{"put", http.MethodPost, "cubbyhole/op/ID", true, 204, "an operation cannot hold its token"},
	{"read", http.MethodGet, "cubbyhole/op/ID", false, 200, "no leg can be checked"},
	{"put again", http.MethodPost, "cubbyhole/op/ID", true, 403, "what is held can be replaced"},
	{"list", "LIST", "cubbyhole/op", false, 403, "holds can be listed"},
	{"look itself up", http.MethodGet, "auth/token/lookup-self", false, 403, "it may do more than hold"},
	{"drop", http.MethodDelete, "cubbyhole/op/ID", false, 204, "a hold stays until its epoch ends"},
}

// Rehearse mints an epoch, goes through the life of a hold in it with a text that is
// nobody's token, and revokes it.
func (c *Client) Rehearse(ctx context.Context) (r Rehearsal, err error) {
	var t issue
	err = c.asLogin(ctx, "vault.mint", func(l *login) error {
		t, err = c.issueEpoch(ctx, l, 2*epochLife) // more than the role may allow
		return err
	})
	if err != nil {
		return Rehearsal{}, err
	}
	e := &epoch{token: t.value}
	defer c.revoke(context.WithoutCancel(ctx), e)
	r = Rehearsal{Life: t.life, Policies: t.policies, Orphan: t.orphan, Renewable: t.renewable}
	body, _ := entry(secret.New(madeUp()))
	id := strings.ToLower(rand.Text())
	for _, s := range rehearsed {
		sent := body
		if !s.body {
			sent = nil
		}
		a, err := c.plain(ctx, s.method, strings.ReplaceAll(s.path, "ID", id), e.token, sent)
		if err != nil {
			return Rehearsal{}, unanswered("vault.Rehearse", err)
		}
		if a.status != s.want {
			r.Odd = append(r.Odd, Oddity{s.step, s.means, a.status})
		}
	}
	return r, nil
}
