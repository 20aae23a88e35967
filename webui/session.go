package webui

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"onbehalf.internal/broker/auditlog"
	"onbehalf.internal/broker/identity"
	"onbehalf.internal/broker/secret"
	"onbehalf.internal/broker/signin"
)

const (
	sessionCookie = "broker-page"
	attemptCookie = "broker-sign-in"

	longest      = 8 * time.Hour    // a working day
	idle         = 30 * time.Minute // without a request
	mostSessions = 1000             // the oldest ends for one more
	mostAttempts = 1000             // of signing in, each for some minutes
)

// A visitor is who has signed in: a caller that has shown its bearer, or a person. The
// zero visitor is nobody.
type visitor struct {
	caller identity.Caller
	person identity.Person // nobody: a bearer was shown
	signed bool            // it is a person
	token  digest          // of the session
}

func (v visitor) nobody() bool { return v.caller.IsZero() }

// may reports whether the visitor has the role. What came with a bearer reads, and has
// nothing else here.
func (v visitor) may(r identity.Role) bool {
	return v.caller.Has(r) && (v.signed || r == identity.Audit)
}

func (v visitor) String() string {
	if v.signed {
		return v.person.String()
	}
	return v.caller.ID()
}

func (v visitor) auditor() auditlog.Auditor {
	a := auditlog.Auditor{Caller: v.caller.ID()}
	if v.signed {
		a.Person = v.person.String()
	}
	return a
}

type digest [sha256.Size]byte

// sessions are those who have signed in. A cookie's value is kept as its digest: who
// reads memory or a dump of it gets none to show.
type sessions struct {
	now func() time.Time

	mu       sync.Mutex
	open     map[digest]*session
	attempts map[digest]signin.Attempt
}

type session struct {
	bearer     secret.Text     // what was shown; it has to be good with each request
	person     identity.Person // the same of a person
	signed     bool
	began, was time.Time
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, open: map[digest]*session{}, attempts: map[digest]signin.Attempt{}}
}

// begin opens a session and returns the cookie's value.
func (s *sessions) begin(new session) string {
	token := rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	new.began, new.was = s.now(), s.now()
	s.sweepLocked()
	if len(s.open) >= mostSessions {
		oldest := digest{}
		for id, o := range s.open {
			if first := s.open[oldest]; first == nil || o.was.Before(first.was) {
				oldest = id
			}
		}
		delete(s.open, oldest)
	}
	s.open[sha256.Sum256([]byte(token))] = &new
	return token
}

func (s *sessions) sweepLocked() {
	for id, o := range s.open {
		if o.over(s.now()) {
			delete(s.open, id)
		}
	}
}

func (o *session) over(now time.Time) bool {
	return !now.Before(o.began.Add(longest)) || !now.Before(o.was.Add(idle))
}

func (s *sessions) end(token digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, token)
}

// visitor is who makes the request, as the newest configuration knows it: one who is not
// in it any more is nobody, and the session has ended.
func (s *sessions) visitor(r *http.Request, d *identity.Directory) visitor {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return visitor{}
	}
	token := digest(sha256.Sum256([]byte(cookie.Value)))
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[token]
	if o == nil {
		return visitor{}
	}
	v, err := o.visitor(d)
	if o.over(s.now()) || err != nil {
		delete(s.open, token)
		return visitor{}
	}
	o.was = s.now()
	v.token = token
	return v
}

func (o *session) visitor(d *identity.Directory) (visitor, error) {
	if o.signed {
		p, err := d.StillPerson(o.person)
		return visitor{caller: p.Caller(), person: p, signed: true}, err
	}
	caller, err := d.Caller(http.Header{"Authorization": {"Bearer " + o.bearer.Reveal()}})
	return visitor{caller: caller}, err
}

// attempt keeps what has to be shown at the end of a signing in, and returns the
// cookie's value.
func (s *sessions) attempt(a signin.Attempt) string {
	token := rand.Text() + rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.attempts {
		if !s.now().Before(o.Until) || len(s.attempts) >= mostAttempts {
			delete(s.attempts, id)
		}
	}
	s.attempts[sha256.Sum256([]byte(token))] = a
	return token
}

// take returns the attempt of the request, once.
func (s *sessions) take(r *http.Request) (signin.Attempt, bool) {
	cookie, err := r.Cookie(attemptCookie)
	if err != nil {
		return signin.Attempt{}, false
	}
	token := digest(sha256.Sum256([]byte(cookie.Value)))
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.attempts[token]
	delete(s.attempts, token)
	return a, ok && s.now().Before(a.Until)
}
