package store

import "time"

// Nanoseconds is how a time stands in a column, since 1970. The zero time, which has
// none of its own, is 0.
func Nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// TimeOf is the time, in UTC, that [Nanoseconds] has put into a column.
func TimeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}
