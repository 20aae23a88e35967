package vaulttest

import (
	"os"
	"strings"
	"testing"
	"time"
)

const hold = "cubbyhole/op/aaaaaaaaaaaaaaaaaaaaaaaaaa"

var entry = document{"token": "first-value"}

// A step is one request and the status that is due.
type step struct {
	status       int
	who          string
	method, path string
	body         document
}

func (r *rig) steps(t *testing.T, name string, steps ...step) {
	t.Run(name, func(t *testing.T) {
		for _, s := range steps {
			r.want(t, s.status, s.who, s.method, s.path, s.body)
		}
	})
}

func (r *rig) holds(t *testing.T) {
	login := r.broker(t)
	op := func(t *testing.T) string { return r.epoch(t, login, "broker-op").value }
	mine, other := op(t), op(t)

	r.steps(t, "put, read, drop", step{204, mine, "POST", hold, entry}, step{200, mine, "GET", hold, nil},
		step{204, mine, "DELETE", hold, nil}, step{404, mine, "GET", hold, nil})
	r.steps(t, "absent is 404", step{404, mine, "GET", hold, nil})
	r.steps(t, "dropping twice is 204", step{204, mine, "DELETE", hold, nil}, step{204, mine, "DELETE", hold, nil})
	r.steps(t, "written once", step{204, mine, "POST", hold, entry}, step{403, mine, "POST", hold, document{"token": "second-value"}},
		step{403, mine, "PUT", hold, entry})
	r.steps(t, "no list", step{403, mine, "LIST", "cubbyhole/op", nil}, step{403, mine, "GET", "cubbyhole/op?list=true", nil},
		step{403, mine, "LIST", "cubbyhole/", nil})
	r.steps(t, "no deeper path", step{403, mine, "POST", hold + "/b", entry}, step{403, mine, "GET", hold + "/b", nil})
	r.steps(t, "no other path", step{403, mine, "POST", "cubbyhole/other", entry}, step{403, mine, "POST", "cubbyhole/op", entry})
	r.steps(t, "another epoch sees its own", step{404, other, "GET", hold, nil}, step{204, other, "DELETE", hold, nil})
	r.steps(t, "root sees its own", step{404, r.RootToken, "GET", hold, nil})
	r.steps(t, "the login sees nothing", step{403, login.value, "GET", hold, nil}, step{403, login.value, "POST", hold, entry},
		step{403, login.value, "DELETE", hold, nil})
	r.steps(t, "nobody and strangers see nothing", step{403, nobody, "GET", hold, nil}, step{403, stranger, "GET", hold, nil},
		step{403, stranger, "POST", hold, entry}, step{403, stranger, "DELETE", hold, nil})
	t.Run("all the time it is there, unchanged", func(t *testing.T) {
		if got := r.want(t, 200, mine, "GET", hold, nil).text("data", "token"); got != "first-value" {
			t.Errorf("it reads %q", got)
		}
	})
	for name, value := range map[string]string{
		"a long value":    strings.Repeat("0123456789abcdef", 4096),
		"any characters":  "quote\" back\\slash <html> & \u2028 \u00e9 \U0001F511 tab\t nul\x00",
		"looks like JSON": `{"token":"x"}`,
	} {
		t.Run(name+" comes back as it was", func(t *testing.T) {
			epoch := op(t)
			r.want(t, 204, epoch, "POST", hold, document{"token": value})
			if got := r.want(t, 200, epoch, "GET", hold, nil).text("data", "token"); got != value {
				t.Error("it comes back as another")
			}
		})
	}
	t.Run("over a megabyte is not stored", func(t *testing.T) {
		epoch := op(t)
		if s := r.ask(t, epoch, "POST", hold, document{"token": strings.Repeat("x", 1<<20+1)}); s.status < 400 {
			t.Errorf("it is answered %d", s.status)
		}
		r.want(t, 404, epoch, "GET", hold, nil)
	})
	r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": login.accessor})
}

func (r *rig) epochs(t *testing.T) {
	login := r.broker(t)
	mint := "auth/token/create/broker-op"
	t.Run("it lives 75 s, and no longer", func(t *testing.T) {
		for name, ask := range map[string]document{
			"asked as we do":  {"explicit_max_ttl": "75s"},
			"asked nothing":   {},
			"asked 10 h":      {"ttl": "10h"},
			"asked a max":     {"explicit_max_ttl": "10h"},
			"asked renewable": {"renewable": true},
		} {
			s := r.want(t, 200, login.value, "PUT", mint, ask)
			if !lives(s.number("auth", "lease_duration"), 75) || at(s.body, "auth", "renewable") != false || at(s.body, "auth", "orphan") != false {
				t.Errorf("%s: it lives %v s, renewable %v, orphan %v", name, s.number("auth", "lease_duration"),
					at(s.body, "auth", "renewable"), at(s.body, "auth", "orphan"))
			}
		}
	})
	t.Run("a shorter life is granted", func(t *testing.T) {
		if n := r.want(t, 200, login.value, "PUT", mint, document{"explicit_max_ttl": "20s"}).number("auth", "lease_duration"); !lives(n, 20) {
			t.Errorf("it lives %v s", n)
		}
	})
	t.Run("our own cap holds where the role has none", func(t *testing.T) {
		s := r.want(t, 200, login.value, "PUT", "auth/token/create/suite-uncapped", document{"explicit_max_ttl": "75s"})
		if n := s.number("auth", "lease_duration"); !lives(n, 75) {
			t.Errorf("it lives %v s", n)
		}
	})
	t.Run("its policy is broker-op alone", func(t *testing.T) {
		list, _ := at(r.want(t, 200, login.value, "PUT", mint, document{}).body, "auth", "policies").([]any)
		if len(list) != 1 || list[0] != "broker-op" {
			t.Errorf("its policies are %v", list)
		}
	})
	r.steps(t, "no other policies", step{400, login.value, "PUT", mint, document{"policies": []string{"default"}}},
		step{400, login.value, "PUT", mint, document{"policies": []string{"root"}}}, step{400, login.value, "PUT", mint, document{"policies": []string{"broker"}}})
	r.steps(t, "an unknown role is 400", step{400, login.value, "PUT", "auth/token/create/suite-absent", document{}})
	r.steps(t, "a role that is not the broker's is 403", step{403, login.value, "PUT", "auth/token/create/somebody", document{}})

	e := r.epoch(t, login, "broker-op").value
	r.steps(t, "it can do nothing else", step{403, e, "GET", "auth/token/lookup-self", nil}, step{403, e, "PUT", mint, document{}},
		step{403, e, "PUT", "auth/token/renew-self", document{}}, step{403, e, "GET", "kv/data/broker/subjects/7", nil},
		step{403, e, "PUT", "auth/token/create", document{}})

	r.epochsEnd(t, login)
	r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": login.accessor})
}

// epochsEnd: however an epoch ends, its hold ends with it.
func (r *rig) epochsEnd(t *testing.T, login token) {
	t.Run("revoked by itself, its hold is gone", func(t *testing.T) {
		e := r.epoch(t, login, "broker-op").value
		r.want(t, 204, e, "POST", hold, entry)
		r.want(t, 204, e, "POST", "auth/token/revoke-self", nil)
		r.wantDead(t, e)
		r.want(t, 403, e, "POST", "auth/token/revoke-self", nil)
	})
	t.Run("revoked by accessor, its hold is gone", func(t *testing.T) {
		e := r.epoch(t, login, "broker-op")
		r.want(t, 204, e.value, "POST", hold, entry)
		r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": e.accessor})
		r.wantDead(t, e.value)
	})
	t.Run("it dies with its login", func(t *testing.T) {
		login := r.broker(t)
		e := r.epoch(t, login, "broker-op").value
		r.want(t, 204, e, "POST", hold, entry)
		r.want(t, 204, r.RootToken, "POST", "auth/token/revoke-accessor", document{"accessor": login.accessor})
		r.wantDead(t, e)
	})
	t.Run("run out, its hold is gone within a second", func(t *testing.T) {
		before := r.Residue()
		e := r.epoch(t, login, "suite-short").value
		r.want(t, 204, e, "POST", hold, entry)
		if n := r.Residue(); n != before+1 {
			t.Fatalf("the residue went from %d to %d by one hold", before, n)
		}
		eventually(t, 2*time.Second+time.Second, "the epoch of 2 s is dead", func() bool {
			return r.ask(t, e, "GET", hold, nil).status == 403
		})
		eventually(t, time.Second, "nothing is left", func() bool { return r.Residue() == before })
	})
}

// wantDead checks that a token can do nothing any more.
func (r *rig) wantDead(t *testing.T, token string) {
	t.Helper()
	r.want(t, 403, token, "GET", hold, nil)
	r.want(t, 403, token, "POST", hold, entry)
	r.want(t, 403, token, "DELETE", hold, nil)
}

func (r *rig) logins(t *testing.T) {
	login := r.broker(t).value
	if r.Namespace == "" { // no namespace has a health of its own
		r.steps(t, "health needs no token", step{200, nobody, "GET", "sys/health", nil})
	} else {
		r.steps(t, "a namespace tells no health", step{400, nobody, "GET", "sys/health", nil})
	}
	t.Run("it knows its life", func(t *testing.T) {
		if n := r.want(t, 200, login, "GET", "auth/token/lookup-self", nil).number("data", "ttl"); n < 3500 || n > 3600 {
			t.Errorf("it lives %v s, want an hour", n)
		}
	})
	t.Run("root lives for ever", func(t *testing.T) {
		if n := r.want(t, 200, r.RootToken, "GET", "auth/token/lookup-self", nil).number("data", "ttl"); n != 0 {
			t.Errorf("its ttl is %v, want 0", n)
		}
	})
	t.Run("it renews itself", func(t *testing.T) {
		if n := r.want(t, 200, login, "PUT", "auth/token/renew-self", document{}).number("auth", "lease_duration"); n < 3500 {
			t.Errorf("then it lives %v s", n)
		}
	})
	r.steps(t, "root is not renewable", step{400, r.RootToken, "PUT", "auth/token/renew-self", document{}})
	r.steps(t, "it makes no other token", step{403, login, "PUT", "auth/token/create", document{"policies": []string{"broker-op"}}},
		step{403, login, "PUT", "auth/token/create-orphan", document{"policies": []string{"broker-op"}}})
	r.steps(t, "it revokes nobody else", step{403, login, "POST", "auth/token/revoke-accessor", document{"accessor": "x"}})
	r.steps(t, "it changes no rules", step{403, login, "PUT", "sys/policies/acl/broker", document{"policy": ""}},
		step{403, login, "POST", "auth/token/roles/broker-op", document{}}, step{403, login, "POST", "sys/mounts/x", document{"type": "kv"}},
		step{403, login, "POST", "auth/approle/role/broker/secret-id", document{}})
	r.steps(t, "revoked, it is dead", step{204, login, "PUT", "auth/token/revoke-self", document{}},
		step{403, login, "GET", "auth/token/lookup-self", nil}, step{403, login, "PUT", "auth/token/create/broker-op", document{}})

	t.Run("approle", func(t *testing.T) {
		id := r.secretID(t)
		s := r.want(t, 200, nobody, "PUT", "auth/approle/login", document{"role_id": r.roleID, "secret_id": id})
		made := issued(t, s)
		if !lives(s.number("auth", "lease_duration"), 3600) || at(s.body, "auth", "renewable") != true {
			t.Errorf("the login lives %v s, renewable %v", s.number("auth", "lease_duration"), at(s.body, "auth", "renewable"))
		}
		r.epoch(t, made, "broker-op")
		r.want(t, 204, made.value, "PUT", "auth/token/revoke-self", document{})
	})
	r.steps(t, "approle: a wrong id is 400",
		step{400, nobody, "PUT", "auth/approle/login", document{"role_id": r.roleID, "secret_id": "wrong"}},
		step{400, nobody, "PUT", "auth/approle/login", document{"role_id": "wrong", "secret_id": r.secretID(t)}},
		step{400, nobody, "PUT", "auth/approle/login", document{"role_id": r.roleID}})
}

func (r *rig) secretID(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(r.secretIDFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (r *rig) kv(t *testing.T) {
	login, root := r.broker(t).value, r.RootToken
	const one, two = "kv1/broker/one", "kv/data/broker/subjects/7"
	value := document{"token": "kv-value"}
	r.want(t, 204, root, "PUT", one, value)
	r.want(t, 200, root, "PUT", two, document{"data": value})
	r.want(t, 200, root, "PUT", "kv/data/elsewhere", document{"data": value})

	for mount, version := range map[string]string{"kv": "2", "kv1": "1"} {
		t.Run(mount+" is version "+version, func(t *testing.T) {
			s := r.want(t, 200, login, "GET", "sys/internal/ui/mounts/"+mount, nil)
			if s.text("data", "options", "version") != version || s.text("data", "type") != "kv" || s.text("data", "path") != mount+"/" {
				t.Errorf("it says %v", s.body["data"])
			}
		})
	}
	r.steps(t, "an absent mount is 403", step{403, login, "GET", "sys/internal/ui/mounts/absent", nil},
		step{403, login, "GET", "absent/x", nil}, step{404, root, "GET", "absent/x", nil})
	r.steps(t, "a mount is told to those who may use it", step{403, stranger, "GET", "sys/internal/ui/mounts/kv", nil},
		step{403, nobody, "GET", "sys/internal/ui/mounts/kv", nil})
	t.Run("a field of version 1", func(t *testing.T) {
		if got := r.want(t, 200, login, "GET", one, nil).text("data", "token"); got != "kv-value" {
			t.Errorf("it reads %q", got)
		}
	})
	t.Run("a field of version 2", func(t *testing.T) {
		if got := r.want(t, 200, login, "GET", two, nil).text("data", "data", "token"); got != "kv-value" {
			t.Errorf("it reads %q", got)
		}
	})
	r.steps(t, "absent is 404", step{404, login, "GET", "kv/data/broker/absent", nil}, step{404, login, "GET", "kv1/broker/absent", nil})
	t.Run("a deleted version is 404 with data that is null", func(t *testing.T) {
		r.want(t, 200, root, "PUT", "kv/data/broker/deleted", document{"data": value})
		r.want(t, 204, root, "DELETE", "kv/data/broker/deleted", nil)
		s := r.want(t, 404, login, "GET", "kv/data/broker/deleted", nil)
		if inner, there := s.body["data"].(document)["data"]; !there || inner != nil {
			t.Errorf("its data is %v", inner)
		}
	})
	r.steps(t, "without metadata it is 404", step{200, root, "PUT", "kv/data/broker/erased", document{"data": value}},
		step{204, root, "DELETE", "kv/metadata/broker/erased", nil}, step{404, login, "GET", "kv/data/broker/erased", nil})
	r.steps(t, "the login reads its own part only", step{403, login, "GET", "kv/data/elsewhere", nil},
		step{403, login, "GET", "kv/data/broker/a/b/c", nil}, step{403, login, "LIST", "kv/metadata/broker", nil})
	r.steps(t, "the login writes nothing", step{403, login, "PUT", two, document{"data": value}},
		step{403, login, "DELETE", two, nil}, step{403, login, "DELETE", "kv/metadata/broker/subjects/7", nil})
}
