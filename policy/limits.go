package policy

import "strconv"

// Limits is how much of a server's answers is taken: what is one more is
// refused. The zero value of a field means the default.
type Limits struct {
	Body      int // bytes of a JSON answer
	Event     int // bytes of one event of a stream
	Stream    int // bytes of a stream, with everything on it that is not the answer
	Events    int // on one stream
	ErrorBody int // bytes of the body of a bad status that are looked at
	Head      int // bytes of an answer's head
	Depth     int // objects and arrays in one another
	Pages     int // of one list
	Tools     int // of one list, counted while it is walked
	Cursor    int // bytes of a cursor
}

// A limit is one field of Limits: its key in the file, and what it may be.
type limit struct {
	key                   string
	field                 func(*Limits) *int
	byDefault, least, top int
}

// limits is the table of docs/operations.md, "Limits of a server's answers".
var limits = []limit{
	{"body", func(l *Limits) *int { return &l.Body }, 2 << 20, 1 << 10, 64 << 20},
	{"event", func(l *Limits) *int { return &l.Event }, 2 << 20, 1 << 10, 64 << 20},
	{"stream", func(l *Limits) *int { return &l.Stream }, 8 << 20, 1 << 10, 256 << 20},
	{"events", func(l *Limits) *int { return &l.Events }, 1000, 1, 1_000_000},
	{"error_body", func(l *Limits) *int { return &l.ErrorBody }, 64 << 10, 256, 1 << 20},
	{"head", func(l *Limits) *int { return &l.Head }, 64 << 10, 1 << 10, 1 << 20},
	{"depth", func(l *Limits) *int { return &l.Depth }, 64, 8, 256},
	{"pages", func(l *Limits) *int { return &l.Pages }, 50, 1, 1000},
	{"tools", func(l *Limits) *int { return &l.Tools }, 500, 1, 10_000},
	{"cursor", func(l *Limits) *int { return &l.Cursor }, 4 << 10, 16, 64 << 10},
}

// Filled returns l with the defaults where it says nothing.
func (l Limits) Filled() Limits {
	for _, v := range limits {
		if field := v.field(&l); *field == 0 {
			*field = v.byDefault
		}
	}
	return l
}

func readLimits(s *section) (l Limits) {
	if s == nil {
		return l
	}
	defer s.end()
	for _, v := range limits {
		s.learnDefault(v.key, strconv.Itoa(v.byDefault))
		*v.field(&l) = s.count(v.key, v.least, v.top)
	}
	return l
}
