// Package testhttp is how tests ask a server: with a client of their own, which no
// proxy of the environment and no redirect leads elsewhere.
package testhttp

import (
	"net/http"
	"time"
)

// Client keeps connections for as many as ask at once.
var Client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128, IdleConnTimeout: 10 * time.Second},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}
