package subject

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"time"

	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/strictjson"
)

// skew is how far our clock may be ahead of the issuer's before a token counts as
// ended.
const skew = 5 * time.Second

// claims is what a JWT says about itself.
type claims struct {
	subject string
	expires time.Time // zero: not said
}

// ended reports whether t is a JWT whose exp has passed. Of anything else nobody
// here knows.
func ended(t secret.Text, now time.Time) bool {
	c, ok := readClaims(t)
	return ok && !c.expires.IsZero() && !now.Before(c.expires.Add(skew))
}

// readClaims reads a JWT without looking at its signature. It fails for what is
// none: opaque tokens may have dots in them, too.
func readClaims(t secret.Text) (c claims, ok bool) {
	parts := strings.Split(t.Reveal(), ".")
	if len(parts) != 3 {
		return claims{}, false
	}
	if _, ok := object(parts[0]); !ok {
		return claims{}, false
	}
	said, ok := object(parts[1])
	if !ok {
		return claims{}, false
	}
	json.Unmarshal(said["sub"], &c.subject) // of another kind: as if it were not there
	var exp float64                         // RFC 7519 §2, NumericDate: may have a fraction
	if json.Unmarshal(said["exp"], &exp) == nil && exp > 0 && exp < math.MaxInt32*16 {
		c.expires = time.Unix(int64(math.Floor(exp)), 0)
	}
	return c, true
}

func object(part string) (map[string]strictjson.Raw, bool) {
	b, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return nil, false
	}
	members, err := strictjson.Members(b)
	return members, err == nil
}
