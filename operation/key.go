package operation

import (
	"encoding/binary"
	"errors"
	"regexp"
	"time"

	"github.com/google/uuid"
)

var key = regexp.MustCompile(`^[!-~]{1,255}$`)

// ValidKey reports whether a request key, or the id of a run, can be one: 1 to 255 visible
// characters of ASCII.
func ValidKey(s string) bool { return key.MatchString(s) }

// maxAhead is how far a caller's clock may be ahead of ours.
const maxAhead = time.Hour

// FirstSent is when the key was first sent: as the caller says, else the time
// that a UUIDv7 carries (RFC 9562, 5.7), else not known.
func FirstSent(said, key string, now time.Time) (at time.Time, err error) {
	if u, err := uuid.Parse(key); err == nil && u.Version() == 7 && u.Variant() == uuid.RFC4122 {
		at = time.UnixMilli(int64(binary.BigEndian.Uint64(u[:8]) >> 16)).UTC()
	}
	if said != "" {
		if at, err = time.Parse(time.RFC3339Nano, said); err != nil || at.Unix() <= 0 { // the ledger's word for "not known" is 0
			return at, errors.New(`first_sent: a time since 1970, such as "2026-11-30T09:00:00Z"`)
		}
		at = at.UTC()
	}
	if at.After(now.Add(maxAhead)) {
		return at, errors.New("first_sent, or the time in request_key: it lies in the future")
	}
	return at, nil
}
