package identity_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"onbehalf.internal/broker/fault"
	"onbehalf.internal/broker/identity"
)

func TestAssertion(t *testing.T) {
	r := newRig(t)
	for _, tc := range []struct {
		alg, kid string
		method   jwt.SigningMethod
		key      any
	}{
		{"ES256", "k1", jwt.SigningMethodES256, r.p256},
		{"ES384", "k2", jwt.SigningMethodES384, r.p384},
		{"RS256", "k3", jwt.SigningMethodRS256, r.rsa},
		{"PS256", "k3", jwt.SigningMethodPS256, r.rsa},
		{"EdDSA", "k4", jwt.SigningMethodEdDSA, r.ed},
	} {
		a, err := r.assert(t, sign(t, tc.method, tc.key, `{"alg":"`+tc.alg+`","kid":"`+tc.kid+`"}`, goodClaims))
		if err != nil || a.String() != "user:7" || a.JTI() != "j-1" {
			t.Errorf("%s: Actor = %q, jti %q, %v", tc.alg, a, a.JTI(), err)
		}
	}
}

// TestAdmin: the claim that the configuration names says who is an administrator, by
// its own value or by one in a list, and nothing else does.
func TestAdmin(t *testing.T) {
	r := newRig(t)
	for claim, want := range map[string]bool{
		`"roles":"admin"`: true, `"roles":["reader","admin"]`: true,
		`"roles":"Admin"`: false, `"roles":"admin reader"`: false, `"roles":[]`: false, `"roles":[["admin"]]`: false, `"roles":true`: false,
		`"roles":{"admin":true}`: false, `"Roles":"admin"`: false, `"admin":true`: false, `"role":"admin"`: false,
	} {
		a, err := r.assert(t, r.sign(t, goodHeader, replace(t, goodClaims, `"jti"`, claim+`,"jti"`)))
		if err != nil || a.Admin() != want {
			t.Errorf("%s: %v, %v", claim, a.Admin(), err)
		}
	}
	asserted, err := r.Actor(r.caller(t, gatewayBearer), http.Header{"Broker-Actor": {"service:nightly"}})
	if err != nil || asserted.Admin() || (identity.Actor{}).Admin() {
		t.Errorf("who was asserted by name, or is nobody: %v", err)
	}
}

// Every row changes one text in the good header or the good claims, and signs
// the result with the right key.
func TestAssertionClaims(t *testing.T) {
	r := newRig(t)
	type row struct {
		old, new string
		reason   fault.Reason
		detail   string
	}
	accepted := func(old, new string) row { return row{old, new, fault.None, ""} }
	refused := func(old, new, detail string) row { return row{old, new, fault.AssertionInvalid, detail} }
	const (
		exp, iat = `"exp":1800000120`, `"iat":1800000000`
		aud, iss = `"aud":"broker"`, `"iss":"https://gateway.example.org"`
		sub, jti = `"sub":"user:7"`, `"jti":"j-1"`
		typ, kid = `"typ":"JWT"`, `"kid":"k1"`
		alg      = `"alg":"ES256"`

		missing   = "exp, iss or aud is missing"
		wrongType = "exp, nbf, iat, iss or aud has the wrong type"
		lifetime  = "valid for more than 5 minutes"
		notStrict = "not one strict JSON object"
	)

	for _, row := range []row{
		accepted(aud, `"aud":["broker"]`),
		accepted(sub, `"sub":"service:weekly"`),
		accepted(sub, `"sub":"user:7","name":"Ann","groups":["a"],"act":{"sub":"x"}`), // what we do not know is not looked at
		accepted(jti, `"jti":"`+strings.Repeat("j", 128)+`"`),
		accepted(iat+",", ``),
		accepted(iat, iat+`,"nbf":1800000000`),
		accepted(typ+",", ``),

		// exp: required, and no shorter way to say "for ever"
		refused(exp+",", ``, missing),
		refused(exp, `"exp":0`, missing),
		refused(exp, `"exp":null`, wrongType),
		refused(exp, `"exp":"1800000120"`, wrongType),
		refused(exp, `"exp":1e300`, ""), // overflows; whatever it is taken for, it is refused
		refused(exp, `"exp":9e15`, lifetime),
		refused(exp, `"exp":-1`, "expired"),
		refused(exp, `"exp":9223372036854775807`, ""),
		// the time, and 60 s for two clocks: the first second inside, the first outside
		accepted(exp, `"exp":1799999941`),
		refused(exp, `"exp":1799999940`, "expired"),
		accepted(iat, `"iat":1800000060`),
		refused(iat, `"iat":1800000061`, "iat lies ahead"),
		refused(iat, `"iat":1800003600`, "iat lies ahead"),
		accepted(iat, iat+`,"nbf":1800000060`),
		refused(iat, iat+`,"nbf":1800000061`, "not valid yet"),
		refused(iat, iat+`,"nbf":1800003600`, "not valid yet"),
		refused(iat, `"iat":"1800000000"`, wrongType),
		refused(iat, `"iat":null`, wrongType),
		// 5 minutes after iat, or after now where there is none
		accepted(exp, `"exp":1800000300`),
		refused(exp, `"exp":1800000301`, lifetime),
		refused(exp, `"exp":1900000000`, lifetime),
		refused(iat, `"iat":1799990000`, lifetime),
		accepted(iat+`,`+exp, `"exp":1800000360`),
		refused(iat+`,`+exp, `"exp":1800000361`, lifetime),
		accepted(iat+`,`+exp, `"iat":1800000060,"exp":1800000360`),

		refused(aud+",", ``, missing),
		refused(aud, `"aud":""`, missing),
		refused(aud, `"aud":[]`, missing),
		refused(aud, `"aud":null`, missing),
		refused(aud, `"aud":"other"`, "aud is not this broker"),
		refused(aud, `"aud":"Broker"`, "aud is not this broker"),
		refused(aud, `"aud":["broker","other"]`, "aud must be this broker alone"),
		refused(aud, `"aud":["broker",7]`, wrongType),
		refused(iss+",", ``, missing),
		refused(iss, `"iss":"https://other.example.org"`, "iss is not this caller's issuer"),
		refused(iss, `"iss":"https://gateway.example.org/"`, "iss is not this caller's issuer"),
		refused(iss, `"iss":["https://gateway.example.org"]`, wrongType),

		refused(","+jti, ``, "jti must be 1 to 128 printable ASCII characters"),
		refused(jti, `"jti":""`, "jti must be 1 to 128 printable ASCII characters"),
		refused(jti, `"jti":7`, "jti must be 1 to 128 printable ASCII characters"),
		refused(jti, `"jti":"a\n"`, "jti must be 1 to 128 printable ASCII characters"),
		refused(jti, `"jti":"é"`, "jti must be 1 to 128 printable ASCII characters"),
		refused(jti, `"jti":"`+strings.Repeat("j", 129)+`"`, "jti must be 1 to 128 printable ASCII characters"),

		{sub + ",", ``, fault.ActorInvalid, "sub is not an actor id"},
		{sub, `"sub":"7"`, fault.ActorInvalid, "sub is not an actor id"},
		{sub, `"sub":"user:"`, fault.ActorInvalid, "sub is not an actor id"},
		{sub, `"sub":["user:7"]`, fault.ActorInvalid, "sub is not an actor id"},
		{sub, `"sub":"user:7\u0000"`, fault.ActorInvalid, "sub is not an actor id"},
		{sub, `"sub":"service:nightly"`, fault.ActorNotAllowed, "this caller may not bring assertions for this actor"}, // asserted is not signed
		{sub, `"sub":"service:weekly2"`, fault.ActorNotAllowed, "this caller may not bring assertions for this actor"}, // an exact id is no prefix

		refused(sub, sub+`,"sub":"user:8"`, notStrict),
		refused(sub, sub+`,"SUB":"user:8"`, "another spelling of sub"),
		refused(sub, `"Sub":"user:8"`, "another spelling of sub"),
		refused(sub, sub+`,"\u017fub":"user:8"`, "another spelling of sub"),
		refused(exp, exp+`,"EXP":1900000000`, "another spelling of exp"),
		refused(jti, jti+`,"x":{"a":1,"a":2}`, notStrict),

		refused(typ, `"typ":"at+jwt"`, "typ"),
		refused(typ, `"typ":"dpop+jwt"`, "typ"),
		refused(typ, `"typ":"jwt"`, "typ"),
		refused(typ, `"typ":null`, "typ"),
		refused(kid, kid+`,"crit":["exp"],"exp":1`, "crit"),
		refused(kid, kid+`,"crit":[]`, "crit"),
		refused(kid, kid+`,"jku":"https://evil.example.org"`, "jku"),
		refused(kid, kid+`,"jwk":{}`, "jwk"),
		refused(kid, kid+`,"x5u":"https://evil.example.org"`, "x5u"),
		refused(kid, kid+`,"x5c":[]`, "x5c"),
		refused(kid, kid+`,"kid":"k2"`, notStrict),
		refused(kid, `"kid":"../../dev/null"`, "kid must be"),
		refused(kid, `"kid":"`+strings.Repeat("k", 65)+`"`, "kid must be"),
		refused(kid, `"kid":["k1"]`, "kid must be"),
		refused(kid, `"kid":1`, "kid must be"),
		refused(kid, `"kid":""`, "kid must be"),
		refused(kid, `"kid":"k9"`, "no key for this kid and alg"),
		refused(kid, `"kid":"k2"`, "no key for this kid and alg"), // a key of another type
		refused(","+kid, ``, "no key for this kid and alg"),
		refused(alg, `"alg":"none"`, "alg is not accepted"),
		refused(alg, `"alg":"None"`, "alg is not accepted"),
		refused(alg, `"alg":"NONE"`, "alg is not accepted"),
		refused(alg, `"alg":"HS256"`, "alg is not accepted"),
		refused(alg, `"alg":"ES512"`, "alg is not accepted"),
		refused(alg, `"alg":"es256"`, "alg is not accepted"),
		refused(alg, `"alg":["ES256"]`, "alg is not accepted"),
		refused(alg+",", ``, "alg is not accepted"),
	} {
		header, claims := goodHeader, goodClaims
		if strings.Contains(header, row.old) {
			header = replace(t, header, row.old, row.new)
		} else {
			claims = replace(t, claims, row.old, row.new)
		}
		a, err := r.assert(t, r.sign(t, header, claims))
		if reason(err) != row.reason || a.IsZero() != (err != nil) {
			t.Errorf("%s for %s: Actor = %q, %v, want %q", row.new, row.old, a, err, row.reason)
		}
		if err != nil && !strings.Contains(err.Error(), row.detail) {
			t.Errorf("%s for %s: %v, want %q", row.new, row.old, err, row.detail)
		}
	}
}

// Every row is a whole assertion.
func TestAssertionForm(t *testing.T) {
	r := newRig(t)
	good := r.sign(t, goodHeader, goodClaims)
	other := r.sign(t, goodHeader, replace(t, goodClaims, "user:7", "user:8"))
	parts, otherParts := strings.Split(good, "."), strings.Split(other, ".")
	publicKey, err := x509.MarshalPKIXPublicKey(r.rsa.Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicKey})

	for name, assertion := range map[string]string{
		"by a key that is not ours":           sign(t, jwt.SigningMethodES256, r.foreign, goodHeader, goodClaims),
		"signature of another payload":        parts[0] + "." + otherParts[1] + "." + parts[2],
		"no signature":                        parts[0] + "." + parts[1] + ".",
		"two parts":                           parts[0] + "." + parts[1],
		"four parts":                          good + ".x",
		"dots":                                "..",
		"15 KB of dots":                       strings.Repeat(".", 15<<10),
		"newline after":                       good + "\n",
		"newline inside":                      parts[0] + ".\n" + parts[1] + "." + parts[2],
		"padding":                             good + "=",
		"space before":                        " " + good,
		"two, comma-joined":                   good + "," + good,
		"last character of the header":        flipLast(parts[0]) + "." + parts[1] + "." + parts[2],
		"last character of the signature":     flipLast(good),
		"standard base64":                     strings.NewReplacer("-", "+", "_", "/").Replace(good) + "+",
		"a header that is not JSON":           r.sign(t, `alg`, goodClaims),
		"a header that is null":               r.sign(t, `null`, goodClaims),
		"claims that are a list":              r.sign(t, goodHeader, `[]`),
		"claims and more":                     r.sign(t, goodHeader, goodClaims+`{}`),
		"unsigned":                            sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, `{"alg":"none"}`, goodClaims) + "AA",
		"HMAC with the public key, in PEM":    sign(t, jwt.SigningMethodHS256, publicPEM, `{"alg":"HS256","kid":"k3"}`, goodClaims),
		"HMAC with the public key, in DER":    sign(t, jwt.SigningMethodHS384, publicKey, `{"alg":"HS384","kid":"k3"}`, goodClaims),
		"P-256 key under ES384":               sign(t, jwt.SigningMethodES256, r.p256, `{"alg":"ES384","kid":"k1"}`, goodClaims),
		"RSA with SHA-512":                    sign(t, jwt.SigningMethodRS512, r.rsa, `{"alg":"RS512","kid":"k3"}`, goodClaims),
		"PSS under the name of PKCS #1 v1.5":  sign(t, jwt.SigningMethodPS256, r.rsa, `{"alg":"RS256","kid":"k3"}`, goodClaims),
		"longer than 8 KiB":                   r.sign(t, goodHeader, replace(t, goodClaims, `"jti"`, `"pad":"`+strings.Repeat("p", 8<<10)+`","jti"`)),
		"a kid of 10 KB":                      r.sign(t, replace(t, goodHeader, "k1", strings.Repeat("k", 10<<10)), goodClaims),
		"an assertion of the caller's bearer": gatewayBearer,
	} {
		if a, err := r.assert(t, assertion); reason(err) != fault.AssertionInvalid || !a.IsZero() {
			t.Errorf("%s: Actor = %q, %v", name, a, err)
		}
	}
}

// An assertion just below 8 KiB is taken: it is the length that the row above fails for.
func TestAssertionLength(t *testing.T) {
	r := newRig(t)
	long := r.sign(t, goodHeader, replace(t, goodClaims, `"jti"`, `"pad":"`+strings.Repeat("p", 5800)+`","jti"`))
	if len(long) < 7900 || len(long) > 8<<10 {
		t.Fatalf("%d bytes", len(long))
	}
	if _, err := r.assert(t, long); err != nil {
		t.Error(err)
	}
}

// The same assertion, while the clock goes on.
func TestAssertionAges(t *testing.T) {
	r := newRig(t)
	assertion := r.sign(t, goodHeader, goodClaims) // iat noon, exp 120 s later
	for _, row := range []struct {
		at   time.Duration
		want fault.Reason
	}{
		{-61 * time.Second, fault.AssertionInvalid},
		{-60 * time.Second, fault.None},
		{0, fault.None},
		{150 * time.Second, fault.None}, // expired for 30 s
		{180*time.Second - 1, fault.None},
		{180 * time.Second, fault.AssertionInvalid},
		{time.Hour, fault.AssertionInvalid},
	} {
		r.now = noon.Add(row.at)
		if _, err := r.assert(t, assertion); reason(err) != row.want {
			t.Errorf("%v after iat: %v, want %q", row.at, err, row.want)
		}
	}
}

// FuzzAssertion looks for a text that is taken for a signed assertion and is
// not, byte for byte, one that was signed.
func FuzzAssertion(f *testing.F) {
	r := newRig(f)
	good := r.sign(f, goodHeader, goodClaims)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add("e30.e30.AAAA")
	f.Fuzz(func(t *testing.T, assertion string) {
		if a, err := r.assert(t, assertion); err == nil && (assertion != good || a.String() != "user:7") {
			t.Errorf("%q is an assertion for %q", assertion, a)
		}
	})
}

// FuzzClaims signs whatever claims. What is accepted says the same to a plain
// reader, who takes the last of two members and knows no other checks.
func FuzzClaims(f *testing.F) {
	r := newRig(f)
	f.Add(goodClaims)
	f.Add(strings.Replace(goodClaims, `"user:7"`, `"service:weekly","x":{"sub":"user:8"}`, 1))
	f.Add(strings.Replace(goodClaims, `"exp"`, `"EXP"`, 1))
	f.Fuzz(func(t *testing.T, claims string) {
		a, err := r.assert(t, r.sign(t, goodHeader, claims))
		if err != nil {
			return
		}
		var plain struct {
			Iss, Sub, Jti string
			Exp           float64
		}
		if err := json.Unmarshal([]byte(claims), &plain); err != nil {
			t.Fatalf("%s: %v", claims, err)
		}
		if plain.Sub != a.String() || plain.Jti != a.JTI() || plain.Iss != "https://gateway.example.org" || plain.Exp > 1800000360 {
			t.Errorf("%s was accepted for %q, jti %q", claims, a, a.JTI())
		}
	})
}

// flipLast changes the bits of the last character that base64 does not use.
func flipLast(segment string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(segment) - 1
	flipped := segment[:last] + string(alphabet[strings.IndexByte(alphabet, segment[last])^1])
	if _, err := base64.RawURLEncoding.DecodeString(flipped[strings.LastIndexByte(flipped, '.')+1:]); err != nil {
		panic("not what a lax reader accepts")
	}
	return flipped
}
