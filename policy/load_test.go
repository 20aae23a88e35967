package policy_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onbehalf.internal/broker/policy"
	"onbehalf.internal/broker/secret/canary"
)

func problems(t testing.TB, path string) policy.Problems {
	t.Helper()
	s, err := policy.Load(path)
	if err == nil {
		return nil
	}
	if s != nil {
		t.Error("Load returned a snapshot and an error")
	}
	var ps policy.Problems
	if !errors.As(err, &ps) || len(ps) == 0 {
		t.Fatalf("Load: %T %v, want Problems", err, err)
	}
	return ps
}

// Whole files that are none.
func TestLoadRefusesFiles(t *testing.T) {
	for name, r := range map[string]struct {
		text string
		line int
		want string // part of the text
	}{
		"empty":            {"", 0, "is empty"},
		"comment":          {"# nothing\n", 0, "is empty"},
		"null":             {"~\n", 1, "no value"},
		"a list":           {"- version: 1\n", 1, "mapping"},
		"a word":           {"version\n", 1, "mapping"},
		"second document":  {config(t) + "---\nversion: 1\n", strings.Count(base, "\n") + 1, "second document"},
		"after the end":    {config(t) + "...\nversion: 1\n", strings.Count(base, "\n") + 2, "second document"},
		"broken second":    {config(t) + "---\n[\n", strings.Count(base, "\n") + 3, "not YAML"},
		"byte order mark":  {"\ufeff" + config(t), 1, "byte order mark"},
		"indent by tab":    {"version: 1\nlisten:\n\tapi: x\n", 3, "not YAML"},
		"bad indent":       {"version: 1\nlisten:\n  api: x\n   metrics: y\n", 4, "not YAML"},
		"open bracket":     {"version: 1\nlisten: {api: x\n", 3, "not YAML"},
		"unknown alias":    {"version: *x\n", 1, "not YAML"},
		"bare asterisk":    {"version: 1\nlisten: [*]\n", 2, "not YAML"},
		"NUL":              {"version: 1\nlisten: {api: \"x\x00\"}\n", 2, "invisible"},
		"not UTF-8":        {"version: 1\nlisten: {api: \"x\xff\"}\n", 2, "UTF-8"},
		"escape sequence":  {"version: 1\n# \x1b[31m\n", 2, "invisible"},
		"bidi in comment":  {"version: 1\n# a\u202eb\n", 2, "invisible"},
		"zero width":       {"version: 1\nstore: {path: a\u200bb}\n", 2, "invisible"},
		"template":         {"version: 1\nstore: {path: ${HOME}/x}\n", 2, "templating"},
		"deep":             {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), 1, "16 deep"},
		"deep but in size": {strings.Repeat(strings.Repeat("[", 15)+strings.Repeat("]", 15)+"\n", 100), 2, "not YAML"},
		"alias bomb": {"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\ne: &e [*d, *d]\nf: &f [*e, *e]\n" +
			"g: &g [*f, *f]\nh: &h [*g, *g]\ni: [*h, *h]\n", 1, "anchors"},
		"8 MiB and a byte": {strings.Repeat("#", 8<<20) + "\n", 0, "too large"},
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": r.text}))
		if len(ps) == 0 || ps[0].File != "profiles.yaml" || ps[0].Line != r.line || !strings.Contains(ps[0].Text, r.want) {
			t.Errorf("%s: %.300v, want line %d: …%s…", name, ps, r.line, r.want)
		}
	}
}

func TestLoadAcceptsLineEnds(t *testing.T) {
	crlf := load(t, strings.ReplaceAll(config(t), "\n", "\r\n"))
	if _, err := crlf.Decide(question(t, crlf, "gateway", "user:7", "records", "search"), now); err != nil {
		t.Error(err)
	}
}

// One change each to a file that loads: the key that is complained of, and what
// is said. The first column is replaced by the second, and the problem is on
// the line where the replacement begins plus the number in the fourth.
func TestLoadRefusesValues(t *testing.T) {
	const (
		listen  = `listen: {api: "127.0.0.1:8471"}`
		vault   = "vault:\n  address: http://127.0.0.1:8200\n"
		login   = "auth: {method: token}"
		store   = "store: {path: broker.db}"
		bearer  = `bearer_sha256: ["GATEWAY"]`
		actors  = `actors: {asserted: ["user:7", "user:8", "user:9", "service:nightly"]}`
		token   = "token_endpoint: https://identity.example.org/oauth/token"
		client  = `client: {id: broker, auth: basic, key: "vault:kv/broker/client#key"}`
		aud     = "allowed_audiences: [mcp-api, other-api]"
		scopes  = "allowed_scopes: [records.read, records.write]"
		answer  = "response: {token_format: jwt}"
		grant   = "\"user:7\":\n        enabled: true\n"
		cred    = `credential: "vault:kv/broker/subjects/7#token"`
		expires = "expires: 2027-03-31"
		url     = "url: https://records.example.org/mcp"
		class   = "data_class: internalConfiguration"
		auth    = `auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/records#token"}`
		legacy  = `auth: {mode: legacy, credential: "vault:kv/broker/servers/static#key"}`
		tool    = "search: {enabled: true, effect: read}"
		g7      = "profiles.company.grants.user:7"
		records = "servers.records"
	)
	for _, r := range []struct {
		old, new string
		key      string
		line     int
		want     string
	}{
		// what YAML can do and this file must not
		{store, "store: &x {path: broker.db}", "store", 0, "anchors"},
		{store, "store: {path: !!str broker.db}", "store.path", 0, "tags"},
		{store, "store: {path: !x broker.db}", "store.path", 0, "tags"},
		{store, "store: {path: !!binary YnJva2Vy}", "store.path", 0, "tags"},
		{store, "store: {<<: {path: broker.db}}", "store", 0, "merge keys"},
		{store, "store: {? [path] : broker.db}", "store", 0, "not a single text"},
		{store, "store: {path: broker.db, path: broker.db}", "store.path", 0, "given twice"},
		{store, "store: {path: broker.db, Path: broker.db}", "store.Path", 0, "not a known key; known here: keep_keys, keep_results, path"},
		{store, "store: {path: broker.db, 1: x}", "store", 0, "put it in quotes"},
		{store, "store: {path: ~}", "store.path", 0, "no value"},
		{store, "store: {path: broker.db, keep_results: 7d}", "store.keep_results", 0, "a duration from"},
		{store, "store: {path: broker.db, keep_results: 48h}", "store.keep_results", 0, "needs keep_keys beside it"},
		{store, "store: {path: broker.db, keep_results: 48h, keep_keys: 24h}", "store.keep_results", 0, "not shorter"},
		{store, "store: {path: }", "store.path", 0, "no value"},
		{store, "store: {path: null}", "store.path", 0, "no value"},
		{store, "store: {path: ''}", "store.path", 0, "1 to 4096"},
		{store, "store: {path: 'broker.db '}", "store.path", 0, "neither begins nor ends"},
		{store, `store: {path: "broker\u200b.db"}`, "store.path", 0, "invisible"},
		{store, `store: {path: "broker\0.db"}`, "store.path", 0, "invisible"},
		{store, `store: {path: "\x24{HOME}"}`, "store.path", 0, "templating"},
		{store, "store: {path: |-\n    a\n    b}", "", 0, "not YAML"},
		{store, "store:\n  path: |-\n    a\n    b", "store.path", 1, "line break"},
		{store, "store: {path: 12}", "store.path", 0, "put it in quotes"},
		{store, "store: {path: true}", "store.path", 0, "put it in quotes"},
		{store, "store: {path: [broker.db]}", "store.path", 0, "is a list; write text"},
		{store, "store: {}", "store", 0, "empty"},
		{store, "store: []", "store", 0, "mapping"},
		{store, store + "\nbudget: 3", "budget", 1, "known here: audit, callers, keys, listen, mcp, operation, profiles, servers, stop, store, traces, ui, vault, version"},
		{"version: 1\n", "version: 2\n", "version", 0, "not 1"},
		{"version: 1\n", "version: '1'\n", "version", 0, "a number"},
		{"version: 1\n", "version: 01\n", "version", 0, "not 1"},
		{"version: 1\n", "", "version", 0, "missing"},
		{store + "\n", "", "store", -6, "missing"},

		// keys
		{store, store + "\nkeys: {results: \"vault:kv/x#y\"}", "keys.results", 1, `"vault:kv/x#y" must be a file with keys, "file:<path>", or a key that stays in Vault, "vault-transit:<mount>/<key>"`},
		{store, store + "\nkeys: {results: \"vault:transit/broker\"}", "keys.results", 1, "a key that stays in Vault"},
		{store, store + "\nkeys: {results: \"vault-transit:transit\"}", "keys.results", 1, "a key that stays in Vault"},
		{store, store + "\nkeys: {results: \"vault-transit:transit/a/b\"}", "keys.results", 1, "a key that stays in Vault"},
		{store, store + "\nkeys: {results: \"vault-transit:transit/+\"}", "keys.results", 1, "a key that stays in Vault"},
		{store, store + "\nkeys: {results: \"file:\"}", "keys.results", 1, "a file with keys"},
		{store, store + "\nkeys: {results: \"broker/results.key\"}", "keys.results", 1, "a file with keys"},
		{store, store + "\nkeys: {results: \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1=\"}", "keys.results", 1, "the value (not shown) must be a file with keys"},
		{store, store + "\nkeys: {results: \"file:" + strings.Repeat("x", 4097) + "\"}", "keys.results", 1, "a file with keys"},
		{store, store + "\nkeys: {results: []}", "keys.results", 1, "empty list"},
		{store, store + "\nkeys: {results: {file: x}}", "keys.results", 1, "is a mapping; write text"},
		{store, store + "\nkeys: {results: 7}", "keys.results", 1, "put it in quotes"},
		{store, store + "\nkeys: {results: [\"file:a\", 7]}", "keys.results[1]", 1, "put it in quotes"},
		{store, store + "\nkeys: {results: [\"file:a\", \"file:b\", \"file:a\"]}", "keys.results[2]", 1, `"file:a" is listed twice; remove one`},
		{store, store + "\nkeys: {results: [\"vault-transit:t/a\", \"vault-transit:t/a\"]}", "keys.results[1]", 1, "listed twice"},
		{store, store + "\nkeys: {results: [\"file:a\",\n  \"vault:transit/x\"]}", "keys.results[1]", 2, "a key that stays in Vault"},
		{store, store + "\nkeys: {results: [\"file:0\"" + strings.Repeat(", \"file:x\"", 8) + "]}", "keys.results", 1, "at most 8 are allowed"},

		// not there yet
		{store, store + "\nkeys: {audit: \"vault-transit:transit/broker\"}", "keys.audit", 1, "must be a file that broker audit keygen made"},
		{store, store + "\nkeys: {audit: \"file:\"}", "keys.audit", 1, "must be a file that broker audit keygen made"},
		{store, store + "\nkeys: {audit: [\"file:x\"]}", "keys.audit", 1, "is a list; write text"},
		{store, store + "\naudit: {heads: stdout}", "audit", 1, "needs keys.audit"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {to: stdout}", "audit.heads", 2, "is missing"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {to: stdout}", "audit.to", 2, "known here: heads, keep, sink"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {heads: syslog}", "audit.heads", 2, "must be \"file:<path>\", or stdout"},
		{store, store + "\naudit: {sink: stdout}", "audit.sink", 1, "must be \"file:<path>\""},
		{store, store + "\naudit: {sink: \"file:\"}", "audit.sink", 1, "must be \"file:<path>\""},
		{store, store + "\naudit: {sink: \"file:a\", heads: stdout}", "audit", 1, "needs keys.audit: without a key"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {sink: \"file:a\", heads: \"file:a\"}", "audit.sink", 2, "is the file of heads"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {sink: \"file:a\", keep: 400d}", "audit.keep", 2, "must be a duration from 1h0m0s to"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {sink: \"file:a\", keep: 59m}", "audit.keep", 2, "must be a duration from 1h0m0s to"},
		{store, store + "\nkeys: {audit: \"file:x\"}\naudit: {heads: stdout, keep: 48h}", "audit.keep", 2, "needs sink beside it"},
		{store, store + "\naudit: {sink: \"file:a\", keep: 48h}", "audit", 1, "needs keys.audit for keep"},
		{store, store + "\ntraces: {}", "traces", 1, "is empty"},
		{store, store + "\ntraces: {propagate: true}", "traces.otlp", 1, "is missing"},
		{store, store + "\ntraces: {otlp: \"http://collector.example.org:4318\"}", "traces.otlp", 1, "must be https"},
		{store, store + "\ntraces: {otlp: \"http://10.0.0.1:4318\"}", "traces.otlp", 1, "must be https"},
		{store, store + "\ntraces: {otlp: \"grpc://127.0.0.1:4317\"}", "traces.otlp", 1, "must be a URL"},
		{store, store + "\ntraces: {otlp: \"https://key@collector.example.org\"}", "traces.otlp", 1, "must not hold a user"},
		{store, store + "\ntraces: {otlp: \"https://collector.example.org?key=1\"}", "traces.otlp", 1, "must not hold a user, a query"},
		{store, store + "\ntraces: {otlp: \"http://127.0.0.1:4318\", propagate: \"yes\"}", "traces.propagate", 1, "is text"},
		{store, store + "\ntraces: {otlp: \"http://127.0.0.1:4318\", bearer: secret}", "traces.bearer", 1, "must be a file"},
		{store, store + "\ntraces: {otlp: \"http://127.0.0.1:4318\", headers: {a: b}}", "traces.headers", 1, "known here: bearer, ca_file, otlp, propagate"},
		{store, store + "\ntraces: {otlp: \"https://collector.example.org\", ca_file: missing.pem}", "traces.ca_file", 1, "the file"},
		{listen, `listen: {api: "127.0.0.1:8471", tls: {cert: x}}`, "listen.tls", 0, "not available yet"},
		{bearer, bearer + "\n    client_cert: {subject: x}", "callers.gateway.client_cert", 1, "not available yet"},
		{bearer, bearer + "\n    jwt: {issuer: x}", "callers.gateway.jwt", 1, "not available yet"},
		{actors, `actors: {signed: {issuer: x, audience: y, subjects: ["user:"], jwks: "https://x.example/jwks"}}`, "callers.gateway.actors.signed.jwks", 0, "not available yet"},
		{tool, `search: {enabled: true, pin: "sha256:x"}`, records + ".tools.search.pin", 0, "64 digits"},
		{class, class + "\n    pin: always", records + ".pin", 1, "imported"},
		{class, class + "\n    import: {every: 1s}", records + ".import.every", 1, "a duration"},
		{class, class + "\n    probe: {}", records + ".probe", 1, "is empty"},
		{class, class + "\n    approval: {by: x}", records + ".approval.by", 1, "not a known key; known here: expires"},
		{class, class + "\n    approval: {expires: 59s}", records + ".approval.expires", 1, "from 1m0s to 24h0m0s"},
		{class, class + "\n    approval: {expires: 25h}", records + ".approval.expires", 1, "from 1m0s to 24h0m0s"},
		{class, class + "\n    approval: 15m", records + ".approval", 1, "write a mapping"},

		// addresses of our own
		{listen, `listen: {api: "0.0.0.0:8471"}`, "listen.api", 0, "not a loopback"},
		{listen, `listen: {api: ":8471"}`, "listen.api", 0, "not a loopback"},
		{listen, `listen: {api: "10.0.0.1:8471"}`, "listen.api", 0, "not a loopback"},
		{listen, `listen: {api: "broker.example.org:8471"}`, "listen.api", 0, "not a loopback"},
		{listen, `listen: {api: "127.0.0.1"}`, "listen.api", 0, "a port"},
		{listen, `listen: {api: "127.0.0.1:70000"}`, "listen.api", 0, "a port"},
		{listen, `listen: {api: "127.0.0.1:08471"}`, "listen.api", 0, "a port"},
		{listen, `listen: {api: "unix:broker.sock"}`, "listen.api", 0, "absolute"},
		{listen, `listen: {api: "unix:/` + strings.Repeat("x", 107) + `"}`, "listen.api", 0, "at most 107"},
		{listen, `listen: {api: "127.0.0.1:8471", metrics: "0.0.0.0:9"}`, "listen.metrics", 0, "not a loopback"},
		{vault, "vault:\n  address: http://vault.example.org:8200\n", "vault.address", 1, "https"},
		{vault, "vault:\n  address: https://vault.example.org:8200/\n", "vault.address", 1, "path"},
		{vault, vault + "  ca_file: none.pem\n", "vault.ca_file", 2, "does not exist"},
		{vault, "vault:\n  address: unix:vault.sock\n", "vault.address", 1, "absolute"},
		{vault, "vault:\n  address: unix:///run/vault.sock\n", "vault.address", 1, "absolute"},
		{vault, "vault:\n  address: unix:/run/../vault.sock\n", "vault.address", 1, "absolute"},
		{vault, vault + "  namespace: /team\n", "vault.namespace", 2, "the path of a namespace"},
		{vault, vault + "  namespace: team/a/\n", "vault.namespace", 2, "no slash at its ends"},
		{vault, vault + "  namespace: team//a\n", "vault.namespace", 2, "the path of a namespace"},
		{vault, vault + "  namespace: ../team\n", "vault.namespace", 2, "the path of a namespace"},
		{vault, vault + "  namespace: \"team a\"\n", "vault.namespace", 2, "the path of a namespace"},
		{vault, vault + "  namespace: team%2fa\n", "vault.namespace", 2, "the path of a namespace"},
		{vault, vault + "  namespace: root\n", "vault.namespace", 2, "leave the key out"},
		{vault, vault + "  namespace: team/sys\n", "vault.namespace", 2, "cannot be the name of a namespace"},
		{login, "auth: {method: approle}", "vault.auth.role_id", 0, "missing"},
		{login, "auth: {method: approle, role_id: x, secret_id_file: y, role: z}", "vault.auth.role", 0, "no effect with method approle"},
		{login, "auth: {method: approle, role_id: x, secret_id_file: y, mount: /a}", "vault.auth.mount", 0, "a mount path"},
		{login, "auth: {method: approle, role_id: x, secret_id_file: y, secret_id_response_wrapping_path: sys/wrapping/wrap}",
			"vault.auth.secret_id_response_wrapping_path", 0, "auth/approle/role/<role>/secret-id"},
		{login, "auth: {method: approle, role_id: x, secret_id_file: y, mount: other, secret_id_response_wrapping_path: auth/approle/role/broker/secret-id}",
			"vault.auth.secret_id_response_wrapping_path", 0, "auth/other/role/<role>/secret-id"},
		{login, "auth: {method: approle, role_id: x, secret_id_file: y, secret_id_response_wrapping_path: auth/approle/role/a/b/secret-id}",
			"vault.auth.secret_id_response_wrapping_path", 0, "auth/approle/role/<role>/secret-id"},
		{login, "auth: {method: kubernetes}", "vault.auth.role", 0, "missing"},
		{login, "auth: {method: kubernetes, role: ../x}", "vault.auth.role", 0, "1 to 64"},
		{login, "auth: {method: kubernetes, role: x, role_id: y}", "vault.auth.role_id", 0, "no effect with method kubernetes"},
		{login, "auth: {method: jwt, role: x}", "vault.auth.jwt_file", 0, "missing"},
		{login, "auth: {method: token_file}", "vault.auth.token_file", 0, "missing"},
		{login, "auth: {method: token_file, token_file: x, mount: y}", "vault.auth.mount", 0, "no effect with method token_file"},
		{login, "auth: {method: cert, cert_file: x}", "vault.auth.key_file", 0, "missing"},
		{login, "auth: {method: cert, cert_file: x, key_file: y}", "vault.address", -1, "must be https with method cert"},
		{login, "auth: {method: proxy}", "vault.address", -1, "must be a Unix socket with method proxy"},
		{vault + "  " + login, "vault:\n  address: unix:/run/vault.sock\n  auth: {method: cert, cert_file: x, key_file: y}", "vault.address", 1, "must be https with method cert"},
		{vault + "  " + login, "vault:\n  address: unix:/run/vault.sock\n  auth: {method: proxy, role: x}", "vault.auth.role", 2, "no effect with method proxy"},
		{login, "auth: {method: token, role_id: x}", "vault.auth.role_id", 0, "no effect"},
		{login, "auth: {method: magic}", "vault.auth.method", 0, "one of approle, kubernetes, jwt, cert, token_file, proxy, token"},
		{"hold: {role: broker-op}", "hold: {role: ../x}", "vault.hold.role", 0, "1 to 64"},
		{"hold: {role: broker-op}", "hold: {role: broker-op, per: actor}", "vault.hold.per", 0, "must be one of epoch, operation"},
		{"timeout: 20s", "timeout: 20", "operation.timeout", 0, "a duration"},
		{"timeout: 20s", "timeout: 010", "operation.timeout", 0, "a duration"},
		{"timeout: 20s", "timeout: 3.7", "operation.timeout", 0, "a duration"},
		{"timeout: 20s", "timeout: 1_000", "operation.timeout", 0, "a duration"},
		{"timeout: 20s", "timeout: -20s", "operation.timeout", 0, "a duration"},
		{"timeout: 20s", "timeout: 0s", "operation.timeout", 0, "a duration"},
		{"timeout: 20s", "timeout: 31m", "operation.timeout", 0, "10ms to 30m0s"},
		{"timeout: 20s", "timeout: 99999999999999999999s", "operation.timeout", 0, "a duration"},

		// callers
		{bearer, `bearer_sha256: []`, "callers.gateway.bearer_sha256", 0, "empty list"},
		{bearer, `bearer_sha256: ["GATEWAY", "LONELY"]`, "callers.lonely.bearer_sha256[0]", 6, "a bearer of caller \"gateway\" already"},
		{bearer, `bearer_sha256: ["GATEWAY", "GATEWAY"]`, "callers.gateway.bearer_sha256[1]", 0, "already"},
		{bearer, `bearer_sha256: ["` + strings.Repeat("0", 64) + `"]`, "callers.gateway.bearer_sha256[0]", 0, "64 digits"},
		{bearer, `bearer_sha256: ["` + strings.ToUpper(sha256Hex("x")) + `"]`, "callers.gateway.bearer_sha256[0]", 0, "64 digits"},
		{bearer, `bearer_sha256: ["` + sha256Hex("") + `"]`, "callers.gateway.bearer_sha256[0]", 0, "nothing"},
		{bearer, `bearer_sha256: ["` + sha256Hex("changeme") + `"]`, "callers", -3, "anybody guesses"},
		{bearer, "", "callers.gateway.bearer_sha256", -2, "missing"},
		{bearer, `bearer_sha256: ["` + sha256Hex("a") + `", "` + sha256Hex("b") + `", "` + sha256Hex("c") + `"]`, "callers.gateway.bearer_sha256", 0, "at most 2"},
		{"gateway:\n    roles: [operate, admin]", "gateway:\n    roles: [root]", "callers.gateway.roles[0]", 1, "one of operate, approve, audit, admin"},
		{"gateway:\n    roles: [operate, admin]", "gateway:\n    roles: operate", "callers.gateway.roles", 1, "a list"},
		{"gateway:\n", "gate way:\n", `callers["gate way"]`, 0, "1 to 128"},
		{actors, `actors: {}`, "callers.gateway.actors", 0, "empty"},
		{actors, `actors: {asserted: []}`, "callers.gateway.actors.asserted", 0, "empty list"},
		{actors, `actors: {asserted: ["*"]}`, "callers.gateway.actors.asserted[0]", 0, "wildcard"},
		{actors, `actors: {asserted: ["user:"]}`, "callers.gateway.actors.asserted[0]", 0, "must be an actor"},
		{actors, `actors: {asserted: [12345]}`, "callers.gateway.actors.asserted[0]", 0, "quotes"},
		{actors, `actors: {asserted: [no]}`, "callers.gateway.actors.asserted[0]", 0, "must be an actor"},
		{actors, `actors: {asserted: ["user:7", "user:7"]}`, "callers.gateway.actors.asserted[1]", 0, "twice"},
		{actors, `approvers: {issuer: x, audience: y, subjects: ["role:"], jwks: x}`, "callers.gateway.approvers.subjects[0]", 0, "must be an actor"},
		{actors, `approvers: {issuer: x, audience: y, subjects: ["user:"]}`, "callers.gateway.approvers.jwks", 0, "is missing"},
		{actors, `approvers: {issuer: x, audience: y, subjects: ["user:"], jwks: none.jwks}`, "callers.gateway.approvers.jwks", 0, "does not exist"},
		{actors, `actors: {signed: {issuer: x, audience: y, subjects: ["role:"], jwks: x}}`, "callers.gateway.actors.signed.subjects[0]", 0, "must be an actor"},
		{actors, `actors: {signed: {issuer: x, audience: y, subjects: ["user:"], jwks: none.jwks}}`, "callers.gateway.actors.signed.jwks", 0, "does not exist"},
		{actors, `actors: {signed: {issuer: x, audience: y, subjects: ["user:"], jwks: profiles.yaml}}`, "callers.gateway.actors.signed.jwks", 0, "no key set"},
		{"servers: [records,", "servers: [elsewhere,", "callers.gateway.servers[0]", 0, "not among the servers"},
		{"servers: [records,", "servers: ['*',", "callers.gateway.servers[0]", 0, "wildcard"},
		{"zone: externalEu", "zone: moon", "callers.gateway.zone", 0, "one of externalGlobal"},

		// profiles
		{"  company:\n", "  -company:\n", `profiles["-company"]`, 0, "1 to 64"}, // and three servers look for it
		{token, token + "?x=1", "profiles.company.token_endpoint", 0, "query"},
		{token, "token_endpoint: http://identity.example.org/token", "profiles.company.token_endpoint", 0, "https"},
		{token, "token_endpoint: http://127.0.0.1:9/token", "profiles.company.token_endpoint", 0, "allow_cidrs"},
		{client, `client: {id: broker, auth: basic}`, "profiles.company.client.key", 0, "missing"},
		{client, `client: {id: broker, auth: basic, key: "hunter2"}`, "profiles.company.client.key", 0, "vault:<mount>"},
		{client, `client: {id: broker, auth: basic, key: "file:/etc/key"}`, "profiles.company.client.key", 0, "vault:<mount>"},
		{client, `client: {id: broker, auth: basic, key: "vault:kv/../x#key"}`, "profiles.company.client.key", 0, "vault:<mount>"},
		{client, `client: {id: broker, auth: mtls, key: "vault:kv/x#key"}`, "profiles.company.client.certificate", 0, "missing"},
		{client, `client: {id: broker, auth: digest, key: "vault:kv/x#key"}`, "profiles.company.client.auth", 0, "one of basic"},
		{client, `client: {id: broker, auth: none, key: "vault:kv/x#key"}`, "profiles.company.client.key", 0, "no effect"},
		{client, `client: {id: broker, auth: basic, key: "vault:kv/x#key", alg: ES256}`, "profiles.company.client.alg", 0, "no effect"},
		{client, `client: {id: broker, auth: private_key_jwt, key: "vault:kv/x#key", alg: HS256}`, "profiles.company.client.alg", 0, "one of RS256"},
		{client, `client: {id: broker, auth: private_key_jwt, key: "vault:kv/x#key", audience: issuer}`, "profiles.company.client.audience", 0, "expect_issuer"},
		{aud, "allowed_audiences: []", "profiles.company.allowed_audiences", 0, "empty list"},
		{aud, "allowed_audiences: ['*']", "profiles.company.allowed_audiences[0]", 0, "wildcard"},
		{aud, "allowed_audiences: [mcp api]", "profiles.company.allowed_audiences[0]", 0, "without a space"},
		{aud, "allowed_audiences: mcp-api", "profiles.company.allowed_audiences", 0, "a list"},
		{aud, "allowed_audiences: [" + strings.Repeat("a", 513) + "]", "profiles.company.allowed_audiences[0]", 0, "512"},
		{aud, "allowed_audiences: [" + entries(33) + "]", "profiles.company.allowed_audiences", 0, "at most 32"},
		{scopes, "allowed_scopes: [" + entries(65) + "]", "profiles.company.allowed_scopes", 0, "at most 64"},
		{scopes, `allowed_scopes: ["a b"]`, "profiles.company.allowed_scopes[0]", 0, "RFC 6749"},
		{scopes, `allowed_scopes: [records.*]`, "profiles.company.allowed_scopes[0]", 0, "wildcard"},
		{answer, "response: {token_format: opaque}", "profiles.company.response.audience_unverified", 0, "must be true"},
		{answer, "response: {token_format: opaque, audience_unverified: false}", "profiles.company.response.audience_unverified", 0, "must be true"},
		{answer, "response: {token_format: opaque, audience_unverified: true, expect_issuer: x}", "profiles.company.response.expect_issuer", 0, "no effect"},
		{answer, "response: {token_format: jwt, audience_unverified: true}", "profiles.company.response.audience_unverified", 0, "must not be true"},
		{answer, "response: {}", "profiles.company.response", 0, "empty"},
		{answer, "response: {expect_issuer: x}", "profiles.company.response.token_format", 0, "missing"},
		{answer, "response: {token_format: jwt, default_ttl: 6m}", "profiles.company.response.default_ttl", 0, "more than max_ttl, which is 5m0s"},
		{answer, answer + "\n    extra_params: {audience: x}", "profiles.company.extra_params.audience", 1, "reserved"},
		{answer, answer + "\n    extra_params: {client_secret: x}", "profiles.company.extra_params.client_secret", 1, "reserved"},
		{answer, answer + "\n    extra_params: {requested_subject: x}", "profiles.company.extra_params.requested_subject", 1, "reserved"},
		{answer, answer + "\n    resource: [/mcp]", "profiles.company.resource[0]", 1, "absolute URI"},
		{answer, answer + "\n    allow_cidrs: [0.0.0.0/0]", "profiles.company.allow_cidrs[0]", 1, "not all addresses"},
		{answer, answer + "\n    allow_cidrs: [10.1.2.3/8]", "profiles.company.allow_cidrs[0]", 1, "host bits zero"},
		{answer, answer + "\n    grants_files: [grants.yaml]", "profiles.company.grants_files", 1, ".jsonl"},
		{answer, answer + "\n    grants_files: [../*.jsonl]", "profiles.company.grants_files", 1, "below the folder"},
		{answer, answer + "\n    grants_files: ['*.jsonl']", "profiles.company.grants_files", 1, "no file"},

		// grants
		{grant, "\"user:7\":\n", g7 + ".enabled", 0, "missing"},
		{grant, "\"user:7\":\n        enabled: yes\n", g7 + ".enabled", 1, "is text; write true or false"},
		{grant, "\"user:7\":\n        enabled: True\n", g7 + ".enabled", 1, "must be written true or false"},
		{grant, "\"user:7\":\n        enabled: 1\n", g7 + ".enabled", 1, "write true or false"},
		{grant, "\"user:7\":\n        enabled: \"true\"\n", g7 + ".enabled", 1, "write true or false"},
		{grant, "\"user:7\":\n        enabled: ~\n", g7 + ".enabled", 1, "no value"},
		{`"user:7":`, `7:`, "profiles.company.grants", 0, "put it in quotes"},
		{`"user:7":`, `"7":`, "profiles.company.grants.7", 0, "must be an actor"},
		{`"user:7":`, `"*":`, `profiles.company.grants["*"]`, 0, "wildcard"},
		{`"user:7":`, `"user:7 ":`, `profiles.company.grants["user:7 "]`, 0, "must be an actor"},
		{`"user:7":`, `"user:８":`, `profiles.company.grants["user:８"]`, 0, "must be an actor"},
		{`"user:7":`, `"user:8":`, "profiles.company.grants.user:8", 6, "given twice"},
		{cred, `credential: "vault:kv/broker#"`, g7 + ".credential", 0, "vault:<mount>"},
		{cred, `credential: ["vault:kv/broker/subjects/7#token"]`, g7 + ".credential", 0, "is a list"},
		{cred + "\n", "\n", g7 + ".credential", -2, "missing"},
		{cred, `credential: {}`, g7 + ".credential", 0, "empty"},
		{cred, `credential: {refresh_token: "vault:kv/x#r", file: /run/token}`, g7 + ".credential", 0, "names 2 kinds"},
		{cred, `credential: {refresh_token: "vault:kv/x#r", vault_oidc: {role: x}, file: /run/token}`, g7 + ".credential", 0, "names 3 kinds"},
		{cred, `credential: {token: "vault:kv/x#t"}`, g7 + ".credential", 0, "names 0 kinds of credential; name one of refresh_token, vault_oidc, file"},
		{cred, `credential: {token: "vault:kv/x#t"}`, g7 + ".credential.token", 0, "known here: file, refresh_token, vault_oidc"},
		{cred, `credential: {file: /run/token, Role: x}`, g7 + ".credential.Role", 0, "not a known key"},
		{cred, `credential: {refresh_token: hunter2}`, g7 + ".credential.refresh_token", 0, "vault:<mount>"},
		{cred, `credential: {refresh_token: [x]}`, g7 + ".credential.refresh_token", 0, "is a list"},
		{cred, `credential: {vault_oidc: broker-user-7}`, g7 + ".credential.vault_oidc", 0, "mapping"},
		{cred, `credential: {vault_oidc: {mount: identity}}`, g7 + ".credential.vault_oidc.role", 0, "missing"},
		{cred, `credential: {vault_oidc: {role: "../x"}}`, g7 + ".credential.vault_oidc.role", 0, "1 to 64"},
		{cred, `credential: {vault_oidc: {mount: a/b, role: x}}`, g7 + ".credential.vault_oidc.mount", 0, "1 to 64"},
		{cred, `credential: {vault_oidc: {role: x, key: y}}`, g7 + ".credential.vault_oidc.key", 0, "known here: mount, role"},
		{cred, `credential: {file: token}`, g7 + ".credential.file", 0, "absolute"},
		{cred, `credential: {file: /run/../etc/token}`, g7 + ".credential.file", 0, "absolute"},
		{cred, `credential: {file: /run/token/}`, g7 + ".credential.file", 0, "absolute"},
		{cred, `credential: {file: "/` + strings.Repeat("x", 4096) + `"}`, g7 + ".credential.file", 0, "absolute"},
		{cred, `credential: {file: 7}`, g7 + ".credential.file", 0, "quotes"},
		{"[records.read]\n        " + expires, "[records.read, records.admin]\n        " + expires, g7 + ".allowed_scopes", 0, `"records.admin" is more than profile "company" allows`},
		{"allowed_audiences: [mcp-api]\n        allowed_scopes: [records.read]\n        " + expires, "allowed_audiences: [mcp-api, x-api]\n        allowed_scopes: [records.read]\n        " + expires, g7 + ".allowed_audiences", 0, `"x-api" is more than`},
		{"[records.read]\n        " + expires, "[]\n        " + expires, g7 + ".allowed_scopes", 0, "empty list"},
		{expires, "expires: 2026-13-01", g7 + ".expires", 0, "must be a day"},
		{expires, "expires: 2027-03-31T12:00:00Z", g7 + ".expires", 0, "must be a day"},
		{expires, "expires: never", g7 + ".expires", 0, "must be a day"},
		{expires, "expires: 20270331", g7 + ".expires", 0, "write a date"},
		{expires, expires + "\n        since: yesterday", g7 + ".since", 1, "must be a day"},
		{expires, expires + "\n        reason: " + strings.Repeat("x", 513), g7 + ".reason", 1, "1 to 512"},
		{expires, expires + "\n        allow_wildcard: true", g7 + ".allow_wildcard", 1, "not a known key"},

		// servers
		{"  records:\n", "  Records:\n", "servers.Records", 0, "1 to 32"},
		{"  records:\n", "  my-records:\n", "servers.my-records", 0, "1 to 32"},
		{url, url + "?a=b", records + ".url", 0, "query"},
		{url + "\n    enabled: true\n", url + "\n", records + ".enabled", -1, "missing"},
		{class, "data_class: internal", records + ".data_class", 0, "one of publicContent"},
		{class, class + "\n    era: old", records + ".era", 1, "one of auto, modern, legacy"},
		{class, class + "\n    versions: [\"2024-11-05\"]", records + ".versions[0]", 1, "one of 2025-03-26"},
		{class, class + "\n    versions: [2025-11-25]", records + ".versions[0]", 1, "put it in quotes"},
		{class + "\n    requires_approval: false", class + "\n    requires_approval: '0'", records + ".requires_approval", 1, "write true or false"},
		{auth, "auth: {mode: machine}", records + ".auth.mode", 0, "one of delegated, legacy"},
		{auth, `auth: {credential: "vault:kv/x#y"}`, records + ".auth.mode", 0, "missing"},
		{auth, "auth: {mode: delegated, profile: company}", records + ".auth.audience", 0, "missing"},
		{auth, "auth: {mode: delegated, profile: nobody, audience: mcp-api, scopes: [records.read]}", records + ".auth.profile", 0, "not among the profiles"},
		{auth, "auth: {mode: delegated, profile: company, audience: x-api, scopes: [records.read]}", records + ".auth.audience", 0, `"x-api" is more than`},
		{auth, "auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [admin]}", records + ".auth.scopes", 0, `"admin" is more than`},
		{auth, "auth: {mode: delegated, profile: company, audience: mcp-api, scopes: []}", records + ".auth.scopes", 0, "empty list"},
		{auth, `auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.read], credential: "vault:kv/x#y"}`, records + ".auth.credential", 0, "no effect"},
		{auth, "id_style: number\n    " + auth, records + ".id_style", 0, "one of string, int"},
		{auth, "limits: {}\n    " + auth, records + ".limits", 0, "empty"},
		{auth, "limits: {bodies: 1}\n    " + auth, records + ".limits.bodies", 0, "not a known key; known here: body, cursor"},
		{auth, "limits: {body: 1023}\n    " + auth, records + ".limits.body", 0, "a whole number from 1024 to 67108864"},
		{auth, "limits: {body: 67108865}\n    " + auth, records + ".limits.body", 0, "a whole number"},
		{auth, "limits: {body: 2e6}\n    " + auth, records + ".limits.body", 0, "a whole number"},
		{auth, "limits: {body: 2MiB}\n    " + auth, records + ".limits.body", 0, "is text; write a number"},
		{auth, "limits: {pages: 0}\n    " + auth, records + ".limits.pages", 0, "a whole number from 1 to 1000"},
		{auth, "limits: {depth: 257}\n    " + auth, records + ".limits.depth", 0, "a whole number from 8 to 256"},
		{auth, "limits: {tools: 0x10}\n    " + auth, records + ".limits.tools", 0, "a whole number"},
		{legacy, `auth: {mode: legacy, discovery_credential: "vault:kv/x#y"}`, "servers.static.auth.discovery_credential", 0, "no effect"},
		{legacy, `auth: {mode: legacy, placement: bearer}`, "servers.static.auth.placement", 0, "no effect"},
		{legacy, `auth: {mode: legacy, credential: "vault:kv/x#y", header: X-Key}`, "servers.static.auth.header", 0, "no effect"},
		{legacy, `auth: {mode: legacy, credential: "vault:kv/x#y", placement: header}`, "servers.static.auth.header", 0, "missing"},
		{legacy, `auth: {mode: legacy, credential: "vault:kv/x#y", placement: cookie}`, "servers.static.auth.placement", 0, "one of bearer, header"},
		{legacy, `auth: {mode: legacy, credential: "vault:kv/x#y", placement: header, header: Authorization}`, "servers.static.auth.header", 0, "meaning of its own"},
		{tool, `search: {effect: read}`, records + ".tools.search.enabled", 0, "missing"},
		{tool, `search: {enabled: true, effect: readonly}`, records + ".tools.search.effect", 0, "one of write"},
		{tool, `"*": {enabled: true}`, records + `.tools["*"]`, 0, "wildcard"},
		{tool, `"a/b": {enabled: true}`, records + `.tools["a/b"]`, 0, "1 to 128"},
		{tool, `search: {enabled: true, expected_duration: 21s}`, records + ".tools.search.expected_duration", 0, "is 21s, but the timeout of this tool is 20s"},
		{tool, `search: {enabled: true, expected_duration: 5s, timeout: 4s}`, records + ".tools.search.expected_duration", 0, "the timeout of this tool is 4s"},
		{auth, "recovery: {}\n    " + auth, records + ".recovery", 0, "empty"},
		{auth, "recovery: {argument: k}\n    " + auth, records + ".recovery.tool", 0, "missing"},
		{auth, "recovery: {tool: nothing}\n    " + auth, records + ".recovery.tool", 0, "must be among the tools of this server, enabled and with effect: read"},
		{tool, `search: {enabled: true, request_key: {argument: k}}`, records + ".tools.search.request_key.window", 0, "is missing"},
		{tool, `search: {enabled: true, request_key: {window: 1h}}`, records + ".tools.search.request_key.argument", 0, "give one of them"},
		{tool, `search: {enabled: true, request_key: {argument: k, meta: a.b/k, window: 1h}}`, records + ".tools.search.request_key.argument", 0, "give one of them"},
		{tool, `search: {enabled: true, request_key: {argument: "a b", window: 1h}}`, records + ".tools.search.request_key.argument", 0, "1 to 128"},
		{tool, `search: {enabled: true, request_key: {meta: progressToken, window: 1h}}`, records + ".tools.search.request_key.meta", 0, "a prefix, a slash"},
		{tool, `search: {enabled: true, request_key: {meta: io.modelcontextprotocol/k, window: 1h}}`, records + ".tools.search.request_key.meta", 0, "keeps for itself"},
		{tool, `search: {enabled: true, expected_duration: 5s, idle_window: 4s}`, records + ".tools.search.expected_duration", 0, "the idle_window of this tool is 4s"},
		{tool, `search: {enabled: true, idle_window: 0s}`, records + ".tools.search.idle_window", 0, "a duration"},
		{tool, `search: {enabled: true, drain_window: 61m}`, records + ".tools.search.drain_window", 0, "a duration"},
		{tool, `search: {enabled: true, drain_window: -1s}`, records + ".tools.search.drain_window", 0, "a duration"},
		{tool, `search: {enabled: true, on_caller_disconnect: stop}`, records + ".tools.search.on_caller_disconnect", 0, "detach"},
		{tool, `search: ~`, records + ".tools.search", 0, "no value"},
		{tool, `search: {}`, records + ".tools.search", 0, "empty"},
		{"tools:\n      search: {enabled: true, effect: read}\n      slow: {enabled: true, timeout: 3m}\n      purge: {enabled: false}\n", "tools: {}\n", records + ".tools", 0, "empty"},
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t, r.old, r.new)}))
		line := strings.Count(base[:strings.Index(base, r.old)], "\n") + 1 + r.line
		want := policy.Problem{File: "profiles.yaml", Line: line, Key: r.key}
		found := false
		for _, p := range ps {
			found = found || p.File == want.File && p.Line == want.Line && p.Key == want.Key && strings.Contains(p.Text, r.want)
		}
		if !found {
			t.Errorf("%q:\n%v\nwant %v…%s…", r.new, ps, want, r.want)
		}
		if len(ps) > 4 {
			t.Errorf("%q: %d problems follow from one:\n%v", r.new, len(ps), ps)
		}
	}
}

func entries(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "e%d, ", i)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// All problems are reported at once, by file and line, each with its key.
func TestLoadReportsEverything(t *testing.T) {
	path := write(t, map[string]string{
		"profiles.yaml": config(t,
			`listen: {api: "127.0.0.1:8471"}`, `listen: {api: "0.0.0.0:80"}`,
			"timeout: 20s", "timeout: 20",
			"zone: externalEu", "zone: mars",
			"response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [\"*.jsonl\"]",
			"url: https://records.example.org/mcp", "url: HTTPS://records.example.org/mcp",
		),
		"b.jsonl": "{}\n{\"actor\":\"user:7\"}\nnot json\n",
		"a.jsonl": `{"actor":"user:1","enabled":true,"credential":"vault:a/b#c","allowed_audiences":["mcp-api"],"allowed_scopes":["*"]}` + "\n",
	})
	const want = `a.jsonl:1: allowed_scopes[0]: "*" holds a wildcard; name each one
b.jsonl:1: is empty; fill it in or remove it
b.jsonl:2: actor: "user:7" has a grant in profile "company" already, at profiles.yaml:29; remove one
b.jsonl:2: allowed_audiences: is missing; it has no default
b.jsonl:2: allowed_scopes: is missing; it has no default
b.jsonl:2: credential: is missing; it has no default
b.jsonl:2: enabled: is missing; it has no default
b.jsonl:3: is not one JSON object: document is not JSON at byte 1
profiles.yaml:2: listen.api: "0.0.0.0:80" is not a loopback address; others need TLS, which is not available yet
profiles.yaml:8: operation.timeout: "20" must be a duration from 10ms to 30m0s, such as 20s
profiles.yaml:15: callers.gateway.zone: "mars" must be one of externalGlobal, externalEu, privateHosted, local
profiles.yaml:42: servers.records.url: "HTTPS://records.example.org/mcp" must be written as it is sent: "https://records.example.org/mcp"`
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(problems(t, path).Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

// A server + tool name has to be one name for whoever is offered the tools.
func TestLoadRefusesCollidingToolNames(t *testing.T) {
	ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t,
		"  off:\n", "  records_slow:\n", "servers: [records, inert, off,", "servers: [records, inert,",
		"slow: {enabled: true, timeout: 3m}", "slow_search: {enabled: true}")}))
	if len(ps) != 1 || ps[0].Key != "servers.records_slow.tools.search" || !strings.Contains(ps[0].Text, `"mcp_records_slow_search"`) {
		t.Errorf("%v", ps)
	}
}

func TestLoadRefusesFilesOfOthers(t *testing.T) {
	const grant = `{"actor":"user:1","enabled":true,"credential":"vault:a/b#c","allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"]}`
	files := map[string]string{
		"profiles.yaml":  config(t, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [grants.jsonl]", `actors: {asserted: ["user:7", "user:8", "user:9", "service:nightly"]}`, `actors: {signed: {issuer: x, audience: y, subjects: ["user:"], jwks: gateway.jwks}}`),
		"grants.jsonl":   grant + "\n",
		"gateway.jwks":   sampleKeys(t),
		"unrelated.json": "",
	}
	for _, r := range []struct {
		name string
		mode os.FileMode
		want string
	}{
		{"profiles.yaml", 0o600, ""},
		{"profiles.yaml", 0o644, ""},
		{"profiles.yaml", 0o664, "can be written"},
		{"profiles.yaml", 0o602, "can be written"},
		{"grants.jsonl", 0o620, "can be written"},
		{"gateway.jwks", 0o622, "can be written"},
		{"unrelated.json", 0o666, ""},
	} {
		path := write(t, files)
		if err := os.Chmod(filepath.Join(filepath.Dir(path), r.name), r.mode); err != nil {
			t.Fatal(err)
		}
		ps := problems(t, path)
		if (len(ps) == 0) != (r.want == "") || r.want != "" && (len(ps) != 1 || !strings.Contains(ps.Error(), r.want)) {
			t.Errorf("%s with mode %o: %v, want %q", r.name, r.mode, ps, r.want)
		}
	}
}

// Opening a named pipe would wait for its writer.
func TestLoadDoesNotWaitForPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profiles.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := problems(t, path).Error(); got != "profiles.yaml: is not a regular file" {
		t.Error(got)
	}
}

// Whatever 8 MiB hold, Load ends soon.
func TestLoadEndsSoon(t *testing.T) {
	many := func(format string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"unknown keys": many("k%d: x\n", 100_000),
		"one key":      strings.Repeat("k: x\n", 100_000),
		"bad names":    "servers:\n" + many("  K%d: {url: x}\n", 100_000),
		"bad servers":  "servers:\n" + many("  k%d: {url: x}\n", 25_000),
		"parameters":   config(t, "response: {token_format: jwt}", "extra_params:\n"+many("      k%d: x\n", 100_000)),
		"a long list":  "callers: {x: {servers: [" + many("k%d, ", 100_000) + "]}}\n",
	} {
		began := time.Now()
		if problems(t, write(t, map[string]string{"profiles.yaml": text})) == nil {
			t.Errorf("%s: accepted", name)
		}
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("%s: %v", name, took)
		}
	}
}

func TestLoadWithoutFile(t *testing.T) {
	dir := t.TempDir()
	if got, want := problems(t, filepath.Join(dir, "profiles.yaml")).Error(), "profiles.yaml: does not exist; relative paths begin at the folder of the config"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := problems(t, dir).Error(); !strings.HasSuffix(got, ": is not a regular file") {
		t.Error(got)
	}
}

// The hash is over the name and every byte of each file that was read.
func TestHash(t *testing.T) {
	const grant = `{"actor":"user:1","enabled":true,"credential":"vault:a/b#c","allowed_audiences":["mcp-api"],"allowed_scopes":["records.read"]}` + "\n"
	text := config(t, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [\"*.jsonl\"]")
	hash := func(files map[string]string) string {
		s, err := policy.Load(write(t, files))
		if err != nil {
			t.Fatal(err)
		}
		return s.Hash
	}
	first := hash(map[string]string{"profiles.yaml": text, "a.jsonl": grant})
	if !strings.HasPrefix(first, "sha256:") || len(first) != 7+64 {
		t.Errorf("hash %q", first)
	}
	if again := hash(map[string]string{"profiles.yaml": text, "a.jsonl": grant}); again != first {
		t.Error("the same files in another folder have another hash")
	}
	for name, files := range map[string]map[string]string{
		"a comment":        {"profiles.yaml": text + "# x\n", "a.jsonl": grant},
		"a grant's field":  {"profiles.yaml": text, "a.jsonl": strings.Replace(grant, "a/b", "a/c", 1)},
		"a file's name":    {"profiles.yaml": text, "b.jsonl": grant},
		"a file more":      {"profiles.yaml": text, "a.jsonl": grant, "b.jsonl": strings.Replace(grant, "user:1", "user:2", 1)},
		"a trailing space": {"profiles.yaml": text, "a.jsonl": grant[:len(grant)-1] + " \n"},
	} {
		if hash(files) == first {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

// Nobody's mistake makes a problem repeat a credential.
func TestProblemsHideCredentials(t *testing.T) {
	const (
		vaultToken = "hvs.CAESIJ5kQ0vYw2s8n1TtB7xGmPq"
		opaque     = "f3Kp9sVn2LqX7tRw4ZbC8mHd"
		jwt        = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1c2VyOjcifQ.c2lnbmF0dXJlLW9mLXNvbWVvbmU"
	)
	digest := sha256Hex("the bearer of the gateway") + "0"
	canary.Run(t, func(c *canary.Cage) {
		for _, oldnew := range [][]string{
			{`credential: "vault:kv/broker/subjects/7#token"`, "credential: "},
			{`credential: "vault:kv/broker/subjects/7#token"`, "credential: vault:"},
			{`credential: "vault:kv/broker/subjects/7#token"`, "credential: vault:kv/x#!"},
			{`"GATEWAY"`, ""},
			{"id: broker", "id: "},
			{"  company:\n", "  "},
			{"  gateway:\n", "  "},
			{"  records:\n", "  "},
			{"expires: 2027-03-31", "expires: "},
			{"expires: 2027-03-31", "reason: "},
			{"      \"user:8\"", "      "},
			{"search: {enabled: true, effect: read}", "x: {enabled: true, effect: "},
			{"https://records.example.org/mcp", "https://records.example.org/mcp?token="},
			{"https://records.example.org/mcp", "https://user:"},
			{"allowed_scopes: [records.read, records.write]", "allowed_scopes: "},
			{"store: {path: broker.db}", "store: {path: broker.db}\nextra: [["},
			{"store: {path: broker.db}", "store: {path: broker.db}\nextra: *"},
			{"response: {token_format: jwt}", "response: {token_format: jwt}\n    extra_params: {secret: "},
		} {
			for _, planted := range []string{vaultToken, opaque, jwt, digest} {
				for _, tail := range []string{"", ":\n", ": {}", "}", "]"} {
					_, err := policy.Load(write(t, map[string]string{"profiles.yaml": config(t, oldnew[0], oldnew[1]+planted+tail)}))
					if err != nil {
						c.Value(oldnew[1], err)
					}
				}
			}
		}
		path := write(t, map[string]string{
			"profiles.yaml": config(t, "response: {token_format: jwt}", "response: {token_format: jwt}\n    grants_files: [a.jsonl]"),
			"a.jsonl":       `{"actor":"` + opaque + `","credential":"` + jwt + `","x":"` + vaultToken + `","` + digest + `":1}` + "\n" + `{"` + opaque + `"` + "\n",
		})
		_, err := policy.Load(path)
		c.Value("grants file", err)
	}, vaultToken, opaque, jwt, digest)
}

// A token where nothing else is wrong is refused all the same.
func TestLoadRefusesTokens(t *testing.T) {
	for _, s := range []string{
		"hvs.CAESIJ5kQ0vYw2s8n1TtB7xGmPq",
		"eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ1c2VyOjcifQ.c2lnbmF0dXJl",
		"-----BEGIN PRIVATE KEY-----",
	} {
		ps := problems(t, write(t, map[string]string{"profiles.yaml": config(t,
			"response: {token_format: jwt}", "response: {token_format: jwt}\n    extra_params: {hint: \""+s+"\"}")}))
		if len(ps) != 1 || ps[0].Key != "profiles.company.extra_params.hint" || !strings.Contains(ps[0].Text, "holds none") {
			t.Errorf("%v", ps)
		}
	}
}
