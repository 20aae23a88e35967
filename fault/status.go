package fault

import "net/http"

// Status maps a reason to the HTTP status (RFC 9110 §15) of a request that began
// nothing.
func Status(r Reason) int {
	switch r {
	case RequestTooLarge:
		return http.StatusRequestEntityTooLarge
	case UnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case HostNotAllowed:
		return http.StatusForbidden
	}
	switch r.Kind() {
	case Invalid:
		return http.StatusBadRequest
	case Unauthenticated:
		return http.StatusUnauthorized
	case Denied:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case Conflict:
		return http.StatusUnprocessableEntity
	case Busy:
		return http.StatusTooManyRequests
	case Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
