package policy

import (
	"slices"
	"strings"
)

// The readers are the list of known keys. For docs/reference.md, and there alone, they
// say what they know of a key while they ask for it: a loader whose keys are not nil
// keeps that by shape, which is a path with <name> where the operator's own names stand.
type known struct {
	values   []string // what may be written, in words
	absent   []string // what is taken without the key
	needed   int      // how often it had to be there
	sections int      // how often its mapping was opened
}

const notAvailable = "not available yet"

// shaped gives s its place among the shapes.
func (s *section) shaped(parent, key string) *section {
	if s != nil && s.l.keys != nil {
		s.shape = strings.TrimPrefix(parent+"."+key, ".")
		s.known("").sections++
	}
	return s
}

// known is what is known of key; of s itself without one.
func (s *section) known(key string) *known {
	shape := strings.Trim(s.shape+"."+key, ".")
	if s.l.keys[shape] == nil {
		s.l.keys[shape] = &known{}
	}
	return s.l.keys[shape]
}

func (s *section) learn(key, value string) {
	if s.l.keys != nil {
		k := s.known(key)
		k.values = with(k.values, value)
	}
}

// learnRule learns the sentence with which a rule refuses what nobody would write.
func (s *section) learnRule(key string, r rule) {
	if s.l.keys != nil {
		s.learn(key, r("\x00"))
	}
}

func (s *section) learnDefault(key, absent string) {
	if s.l.keys != nil && !strings.HasPrefix(absent, "-") {
		k := s.known(key)
		k.absent = with(k.absent, absent)
	}
}

func (s *section) learnNeed(key string) {
	if s.l.keys != nil {
		s.known(key).needed++
	}
}

// learnAll keeps that the keys are known, whatever is known of them.
func (s *section) learnAll(keys []string) {
	for _, key := range keys {
		if s.l.keys != nil {
			s.known(key)
		}
	}
}

// with is all and one more, if that is new and something.
func with(all []string, one string) []string {
	if one == "" || slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
