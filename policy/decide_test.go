package policy_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/policy"
)

func TestDecide(t *testing.T) {
	s := load(t, config(t))
	type row struct {
		caller, actor, server, tool string
		want                        fault.Reason
	}
	allow := func(caller, actor, server, tool string) row { return row{caller, actor, server, tool, fault.None} }
	deny := func(caller, actor, server, tool string, r fault.Reason) row {
		return row{caller, actor, server, tool, r}
	}
	for _, r := range []row{
		allow("gateway", "user:7", "records", "search"),
		allow("gateway", "user:7", "records", "slow"),
		allow("gateway", "user:7", "static", "search"),
		allow("gateway", "user:9", "static", "search"), // legacy: no grant needed

		deny("gateway", "user:7", "nowhere", "search", fault.ServerUnknown),
		deny("gateway", "user:7", "RECORDS", "search", fault.ServerUnknown), // bytes, not letters
		deny("lonely", "user:7", "records", "search", fault.ServerNotAllowed),
		deny("", "", "records", "search", fault.ServerNotAllowed), // the zero caller
		deny("gateway", "user:7", "off", "search", fault.ServerDisabled),
		deny("gateway", "user:7", "inert", "search", fault.ServerInert),
		deny("gateway", "user:7", "records", "drop", fault.ToolUnknown),
		deny("gateway", "user:7", "records", "", fault.ToolUnknown),
		deny("gateway", "user:7", "records", "purge", fault.ToolDisabled),
		deny("gateway", "user:7", "secrets", "search", fault.ZoneExceeded),
		deny("gateway", "user:9", "records", "search", fault.NoGrant),
		deny("gateway", "service:nightly", "records", "search", fault.NoGrant), // no user's grant serves it
		deny("gateway", "", "records", "search", fault.NoGrant),                // the zero actor
		deny("gateway", "", "static", "search", fault.NoGrant),                 // also where no grant is needed
		deny("gateway", "user:8", "records", "search", fault.GrantDisabled),
		deny("gateway", "user:7", "odd", "search", fault.AudienceNotAllowed),
		allow("gateway", "user:7", "asking", "search"), // when a person says so, too
		deny("", "", "", "", fault.ServerUnknown),      // the zero question
	} {
		d, err := s.Decide(question(t, s, r.caller, r.actor, r.server, r.tool), now)
		if reason(err) != r.want || d.IsZero() != (err != nil) {
			t.Errorf("Decide(%q, %q, %q, %q) = %v, want %q", r.caller, r.actor, r.server, r.tool, err, r.want)
		}
		if err != nil && fault.KindOf(err) != fault.Denied {
			t.Errorf("Decide(%q, %q, %q, %q): kind %q", r.caller, r.actor, r.server, r.tool, fault.KindOf(err))
		}
		_, why := s.Explain(r.caller, r.actor, r.server, r.tool, now)
		if why != string(r.want) {
			t.Errorf("Explain(%q, %q, %q, %q) says %q, want %q", r.caller, r.actor, r.server, r.tool, why, r.want)
		}
	}
}

// Too much is refused whole: a scope that the grant lacks is not left out.
func TestScopesAreContainedNotCut(t *testing.T) {
	s := load(t, config(t, "audience: other-api, scopes: [records.read, records.write]", "audience: mcp-api, scopes: [records.read, records.write]"))
	_, err := s.Decide(question(t, s, "gateway", "user:7", "odd", "search"), now)
	if reason(err) != fault.ScopeNotAllowed {
		t.Errorf("Decide = %v, want scope_not_allowed", err)
	}
}

func TestDecisionSaysWhatItAllows(t *testing.T) {
	s := load(t, config(t))
	q := question(t, s, "gateway", "user:7", "records", "search")
	d, err := s.Decide(q, now)
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"caller":    d.Caller() == q.Caller,
		"actor":     d.Actor() == q.Actor,
		"server":    d.Server().ID == "records",
		"tool":      d.Tool() == "search",
		"profile":   d.Profile().ID == "company",
		"grant":     d.Grant().Credential.String() == "vault:kv/broker/subjects/7#token",
		"audience":  d.Audience() == "mcp-api",
		"scopes":    len(d.Scopes()) == 1 && d.Scopes()[0] == "records.read",
		"snapshot":  d.Snapshot() == s.Hash,
		"discovery": !d.Discovery(),
	} {
		if !ok {
			t.Errorf("the decision's %s is wrong", name)
		}
	}
}

// The most specific timeout that is set is the budget, whether it is longer or
// shorter than the others.
func TestBudget(t *testing.T) {
	s := load(t, config(t, "audience: other-api, scopes: [records.read, records.write]", "audience: mcp-api, scopes: [records.read]"))
	for _, r := range []struct {
		server, tool string
		want         time.Duration
	}{
		{"records", "slow", 3 * time.Minute},
		{"odd", "search", 2 * time.Second},
		{"records", "search", 20 * time.Second},
	} {
		d, err := s.Decide(question(t, s, "gateway", "user:7", r.server, r.tool), now)
		if err != nil {
			t.Fatal(err)
		}
		if d.Budget() != r.want {
			t.Errorf("budget of %s %s = %v, want %v", r.server, r.tool, d.Budget(), r.want)
		}
	}
}

// A grant that expires on a day ends as that day begins in UTC.
func TestGrantExpires(t *testing.T) {
	s := load(t, config(t))
	q := question(t, s, "gateway", "user:7", "records", "search")
	end := time.Date(2027, 3, 31, 0, 0, 0, 0, time.UTC)
	for _, r := range []struct {
		at   time.Time
		want fault.Reason
	}{
		{end.Add(-1), fault.None},
		{end, fault.GrantExpired},
		{end.Add(1), fault.GrantExpired},
		{end.In(time.FixedZone("", -12*3600)), fault.GrantExpired},
	} {
		if _, err := s.Decide(q, r.at); reason(err) != r.want {
			t.Errorf("at %v: %v, want %q", r.at, err, r.want)
		}
	}
}

func TestZoneCeilings(t *testing.T) {
	classes := []string{"publicContent", "editorContent", "sourceCode", "internalConfiguration", "systemDiagnostics", "secretAdjacent"}
	for zone, allowed := range map[string]int{"local": 6, "privateHosted": 5, "externalEu": 4, "externalGlobal": 2, "": 2} {
		line := "    zone: " + zone + "\n"
		if zone == "" {
			line = ""
		}
		for i, class := range classes {
			s := load(t, config(t, "    zone: externalEu\n", line, "secretAdjacent", class))
			_, err := s.Decide(question(t, s, "gateway", "user:7", "secrets", "search"), now)
			want := fault.None
			if i+1 > allowed {
				want = fault.ZoneExceeded
			}
			if reason(err) != want {
				t.Errorf("zone %q, class %s: %v, want %q", zone, class, err, want)
			}
		}
	}
}

func TestDecideDiscovery(t *testing.T) {
	s := load(t, config(t))
	for _, r := range []struct {
		caller, server string
		want           fault.Reason
	}{
		{"gateway", "records", fault.None},
		{"gateway", "static", fault.None},
		{"gateway", "secrets", fault.None}, // no data of an actor comes back
		{"gateway", "nowhere", fault.ServerUnknown},
		{"lonely", "records", fault.ServerNotAllowed},
		{"", "records", fault.ServerNotAllowed},
		{"gateway", "off", fault.ServerDisabled},
		{"gateway", "inert", fault.ServerInert},
		{"gateway", "odd", fault.DiscoveryMissing}, // no grant serves instead
	} {
		d, err := s.DecideDiscovery(question(t, s, r.caller, "", r.server, "").Caller, r.server, now)
		if reason(err) != r.want {
			t.Errorf("DecideDiscovery(%q, %q) = %v, want %q", r.caller, r.server, err, r.want)
		}
		if err == nil && (!d.Discovery() || d.Grant() != nil || d.Tool() != "" || !d.Actor().IsZero()) {
			t.Errorf("DecideDiscovery(%q, %q) allows more than discovery", r.caller, r.server)
		}
	}
}

// TestDecideDry: a discovery that needs no credential of the server's, of a server that
// has an identity provider.
func TestDecideDry(t *testing.T) {
	s := load(t, config(t))
	for _, r := range []struct {
		caller, server string
		want           fault.Reason
	}{
		{"gateway", "records", fault.None},
		{"gateway", "odd", fault.None}, // without a discovery credential
		{"gateway", "static", fault.NoGrant},
		{"gateway", "nowhere", fault.ServerUnknown},
		{"lonely", "records", fault.ServerNotAllowed},
		{"", "records", fault.ServerNotAllowed},
		{"gateway", "off", fault.ServerDisabled},
		{"gateway", "inert", fault.ServerInert},
	} {
		d, err := s.DecideDry(question(t, s, r.caller, "", r.server, "").Caller, r.server, now)
		if reason(err) != r.want {
			t.Errorf("DecideDry(%q, %q) = %v, want %q", r.caller, r.server, err, r.want)
		}
		if err == nil && (!d.Dry() || !d.Discovery() || d.Profile() == nil || d.Grant() != nil || d.Tool() != "" || !d.Actor().IsZero()) {
			t.Errorf("DecideDry(%q, %q) allows more than a dry exchange", r.caller, r.server)
		}
	}
	probe, err := s.DecideDiscovery(question(t, s, "gateway", "", "records", "").Caller, "records", now)
	if err != nil || probe.Dry() || (policy.Decision{}).Dry() {
		t.Errorf("%v: another decision is dry", err)
	}
}

// TestDryStands: a dry exchange ends with what it was allowed by, and with nothing else.
func TestDryStands(t *testing.T) {
	old := load(t, config(t))
	dry, err := old.DecideDry(question(t, old, "gateway", "", "records", "").Caller, "records", now)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]struct {
		oldnew []string
		want   string
	}{
		"nothing changed":   {nil, ""},
		"discovery removed": {[]string{`, discovery_credential: "vault:kv/broker/discovery/records#token"`, ""}, ""},
		"grant removed":     {[]string{`"user:7":`, `"user:6":`}, ""},
		"server disabled":   {[]string{"records.example.org/mcp\n    enabled: true", "records.example.org/mcp\n    enabled: false"}, "now server_disabled"},
		"endpoint moved":    {[]string{"https://identity.", "https://id."}, "another token endpoint"},
		"more scopes":       {[]string{"scopes: [records.read], disc", "scopes: [records.read, records.write], disc"}, "another scope"},
		"no role admin":     {[]string{"[operate, admin]", "[operate, approve, audit]"}, "now role_missing"},
		"taken from caller": {[]string{"servers: [records, inert,", "servers: [inert,"}, "now server_not_allowed"},
	} {
		err := load(t, config(t, r.oldnew...)).Stands(dry, now)
		if e, ok := err.(*fault.Error); err == nil && r.want != "" || err != nil && (!ok || e.Reason != fault.GrantRevoked || e.Detail != r.want) {
			t.Errorf("%s: %v, want %q", name, err, r.want)
		}
	}
}

// TestLongest: of all budgets that a call can have.
func TestLongest(t *testing.T) {
	slow := []string{"slow: {enabled: true, timeout: 3m}", "slow: {enabled: false, timeout: 3m}"}
	for want, oldnew := range map[time.Duration][]string{
		3 * time.Minute:  nil,
		20 * time.Second: slow,
		30 * time.Second: append([]string{"    data_class: internalConfiguration\n", "    data_class: internalConfiguration\n    timeout: 30s\n"}, slow...),
		40 * time.Second: append([]string{"search: {enabled: true, effect: read", "search: {enabled: true, timeout: 40s, effect: read"}, slow...),
	} {
		if got := load(t, config(t, oldnew...)).Longest(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestStands(t *testing.T) {
	old := load(t, config(t))
	execution, err := old.Decide(question(t, old, "gateway", "user:7", "records", "search"), now)
	if err != nil {
		t.Fatal(err)
	}
	discovery, err := old.DecideDiscovery(execution.Caller(), "records", now)
	if err != nil {
		t.Fatal(err)
	}
	static, err := old.Decide(question(t, old, "gateway", "user:7", "static", "search"), now)
	if err != nil {
		t.Fatal(err)
	}
	const stands = ""
	other := sha256Hex("another bearer")
	for name, r := range map[string]struct {
		oldnew                       []string
		execution, discovery, static string // details
	}{
		"nothing changed": {nil, stands, stands, stands},
		"another actor's grant": {[]string{`      "user:8":
        enabled: false`, `      "user:8":
        enabled: true`}, stands, stands, stands},
		"grant removed":     {[]string{`"user:7":`, `"user:6":`}, "now no_grant", stands, stands},
		"grant disabled":    {[]string{"\"user:7\":\n        enabled: true", "\"user:7\":\n        enabled: false"}, "now grant_disabled", stands, stands},
		"grant expired":     {[]string{"2027-03-31", "2026-11-30"}, "now grant_expired", stands, stands},
		"other credential":  {[]string{"subjects/7#token", "subjects/6#token"}, "another credential", stands, stands},
		"other kind":        {[]string{`"vault:kv/broker/subjects/7#token"`, `{refresh_token: "vault:kv/broker/subjects/7#token"}`}, "another credential", stands, stands},
		"subject pinned":    {[]string{"        expires", "        subject: \"7\"\n        expires"}, "another subject", stands, stands},
		"other audience":    {[]string{"audience: mcp-api, scopes: [records.read], disc", "audience: other-api, scopes: [records.read], disc", "        allowed_audiences: [mcp-api]\n        allowed_scopes: [records.read]\n        exp", "        allowed_audiences: [mcp-api, other-api]\n        allowed_scopes: [records.read]\n        exp"}, "another audience", stands, stands},
		"more scopes":       {[]string{"scopes: [records.read], disc", "scopes: [records.read, records.write], disc", "[records.read]\n        expires", "[records.read, records.write]\n        expires"}, "another scope", stands, stands},
		"server moved":      {[]string{"https://records.example.org", "https://records2.example.org"}, "another server address", "another server address", stands},
		"endpoint moved":    {[]string{"https://identity.", "https://id."}, "another token endpoint", stands, stands},
		"tool disabled":     {[]string{"search: {enabled: true, effect: read}", "search: {enabled: false}"}, "now tool_disabled", stands, stands},
		"server disabled":   {[]string{"records.example.org/mcp\n    enabled: true", "records.example.org/mcp\n    enabled: false"}, "now server_disabled", "now server_disabled", stands},
		"taken from caller": {[]string{"servers: [records, inert,", "servers: [inert,"}, "now server_not_allowed", "now server_not_allowed", stands},
		"caller removed":    {[]string{"  gateway:\n", "  gateway2:\n"}, "now caller_unknown", "now caller_unknown", "now caller_unknown"},
		"bearer replaced":   {[]string{`["GATEWAY"]`, `["` + other + `"]`}, "now caller_unknown", "now caller_unknown", "now caller_unknown"},
		"bearer rotated":    {[]string{`["GATEWAY"]`, `["` + other + `", "GATEWAY"]`}, stands, stands, stands},
		"bearer moved":      {[]string{`["GATEWAY"]`, `["` + other + `"]`, `["LONELY"]`, `["GATEWAY"]`}, "now caller_unknown", "now caller_unknown", "now caller_unknown"},
		"no role operate":   {[]string{"[operate, admin]", "[approve, audit, admin]"}, "now role_missing", stands, "now role_missing"},
		"no role admin":     {[]string{"[operate, admin]", "[operate, approve, audit]"}, stands, "now role_missing", stands},
		"more roles":        {[]string{"[operate, admin]", "[operate, approve, audit, admin]"}, stands, stands, stands},
		"actor removed":     {[]string{`["user:7", "user:8", "user:9", "service:nightly"]`, `["user:8", "user:9", "service:nightly"]`}, "now actor_not_allowed", stands, "now actor_not_allowed"},
		"no actors":         {[]string{`    actors: {asserted: ["user:7", "user:8", "user:9", "service:nightly"]}` + "\n", ""}, "now actor_not_allowed", stands, "now actor_not_allowed"},
		"another actor":     {[]string{`["user:7", "user:8", "user:9", "service:nightly"]`, `["user:7"]`}, stands, stands, stands},
		"another caller":    {[]string{"  lonely:\n", "  lonelier:\n"}, stands, stands, stands},
		"lower zone":        {[]string{"    zone: externalEu\n", "    zone: externalGlobal\n"}, "now zone_exceeded", stands, stands},
		"higher zone":       {[]string{"    zone: externalEu\n", "    zone: local\n"}, stands, stands, stands},
		"server inert":      {[]string{"    data_class: internalConfiguration\n", ""}, "now server_inert", "now server_inert", stands},
		"tool removed":      {[]string{"      search: {enabled: true, effect: read}\n", ""}, "now tool_unknown", stands, stands},
		"another tool":      {[]string{"      purge: {enabled: false}\n", ""}, stands, stands, stands},
		"approval asked":    {[]string{"internalConfiguration\n    requires_approval: false\n", "internalConfiguration\n"}, stands, stands, stands},
		"profile narrowed": {[]string{"allowed_scopes: [records.read, records.write]", "allowed_scopes: [records.write]", "scopes: [records.read], disc", "scopes: [records.write], disc", "scopes: [records.read]}\n    tools: {search: {enabled: true}}\n  secrets", "scopes: [records.write]}\n    tools: {search: {enabled: true}}\n  secrets",
			"scopes: [records.read, records.write]}\n    tools", "scopes: [records.write]}\n    tools", "        allowed_scopes: [records.read]\n        expires", "        allowed_scopes: [records.write]\n        expires",
			"subjects/8#token\"\n        allowed_audiences: [mcp-api]\n        allowed_scopes: [records.read]", "subjects/8#token\"\n        allowed_audiences: [mcp-api]\n        allowed_scopes: [records.write]"}, "another scope", stands, stands},
		"discovery changed": {[]string{"discovery/records#token", "discovery/other#token"}, stands, "another credential", stands},
		"discovery removed": {[]string{`, discovery_credential: "vault:kv/broker/discovery/records#token"`, ""}, stands, "now discovery_credential_missing", stands},
		"static changed":    {[]string{"servers/static#key", "servers/static#new"}, stands, stands, "another credential"},
		"static in header":  {[]string{"servers/static#key\"", "servers/static#key\", placement: header, header: X-Key"}, stands, stands, "another placement"},
		"made legacy":       {[]string{`auth: {mode: delegated, profile: company, audience: mcp-api, scopes: [records.read], discovery_credential: "vault:kv/broker/discovery/records#token"}`, "auth: {mode: legacy}"}, "another auth mode", "another auth mode", stands},
	} {
		s := load(t, config(t, r.oldnew...))
		check := func(kind string, d policy.Decision, want string) {
			err := s.Stands(d, now)
			switch e, ok := err.(*fault.Error); {
			case err == nil && want == stands:
			case !ok || e.Reason != fault.GrantRevoked || e.Detail != want:
				t.Errorf("%s: the %s decision: %v, want %q", name, kind, err, want)
			}
		}
		check("execution", execution, r.execution)
		check("discovery", discovery, r.discovery)
		check("static", static, r.static)
	}
	if err := old.Stands(policy.Decision{}, now); reason(err) != fault.GrantRevoked {
		t.Errorf("the zero decision stands: %v", err)
	}
}

// TestSecondStepMoved: the second of two steps is a token endpoint, too.
func TestSecondStepMoved(t *testing.T) {
	two := func(host string) string {
		return config(t, "    response: {token_format: jwt}\n", `    audience: [https://as.example.org]
    requested_token_type: urn:ietf:params:oauth:token-type:id-jag
    then:
      token_endpoint: https://`+host+`/token
      client: {id: broker, auth: basic, key: "vault:kv/broker/second#key"}
      response: {token_format: jwt}
`)
	}
	old := load(t, two("as.example.org"))
	d, err := old.Decide(question(t, old, "gateway", "user:7", "records", "search"), now)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]fault.Reason{"as.example.org": fault.None, "as2.example.org": fault.GrantRevoked} {
		if err := load(t, two(host)).Stands(d, now); reason(err) != want {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
}

// TestStandsForSigned: what an assertion was believed by is asked again, too.
func TestStandsForSigned(t *testing.T) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	another, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwks := func(x []byte) string {
		return `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k1","x":"` + base64.RawURLEncoding.EncodeToString(x) + `"}]}`
	}
	const entry = `signed: {issuer: https://gateway.example.org, jwks: gateway.jwks, audience: broker, subjects: ["user:"]}`
	snapshot := func(signed, jwks string) *policy.Snapshot {
		t.Helper()
		text := config(t, `asserted: ["user:7", "user:8", "user:9", "service:nightly"]`, signed)
		s, err := policy.Load(write(t, map[string]string{"profiles.yaml": text, "gateway.jwks": jwks}))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": "https://gateway.example.org", "aud": "broker", "sub": "user:7", "jti": "j",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix()})
	token.Header["kid"] = "k1"
	assertion, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	old := snapshot(entry, jwks(public))
	q := question(t, old, "gateway", "", "records", "search")
	if q.Actor, err = old.Directory.Actor(q.Caller, http.Header{"Broker-Actor-Assertion": {assertion}}); err != nil {
		t.Fatal(err)
	}
	d, err := old.Decide(q, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		signed, jwks, want string
	}{
		{entry, jwks(public), ""},
		{strings.Replace(entry, `"user:"`, `"user:7", "service:"`, 1), jwks(public), ""},
		{strings.Replace(entry, `"user:"`, `"user:8"`, 1), jwks(public), "now actor_not_allowed"},
		{`asserted: ["user:7"]`, jwks(public), "now actor_not_allowed"},
		{strings.Replace(entry, "gateway.example", "other.example", 1), jwks(public), "now assertion_invalid"},
		{strings.Replace(entry, "audience: broker", "audience: other", 1), jwks(public), "now assertion_invalid"},
		{entry, jwks(another), "now assertion_invalid"},
	} {
		err := snapshot(r.signed, r.jwks).Stands(d, now)
		if e := (*fault.Error)(nil); (err == nil) != (r.want == "") || errors.As(err, &e) && (e.Reason != fault.GrantRevoked || e.Detail != r.want) {
			t.Errorf("%s with %s: %v, want %q", r.signed, r.jwks, err, r.want)
		}
	}
}
