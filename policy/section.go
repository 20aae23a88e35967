package policy

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/secret"
)

// A section reads one mapping. Each key is asked for by name, and end reports
// the ones that nobody asked for: the readers are the list of known keys.
//
// What is absent, and what was broken and so reported, reads as zero.
type section struct {
	l     *loader
	file  string
	line  int
	path  string
	shape string // path without the operator's own names, see keys.go
	node  *node
	asked []string
}

// section returns the reader of n, or nil when n is not a mapping with
// something in it.
func (l *loader) section(file string, line int, path string, n *node) *section {
	switch {
	case n == nil || n.kind == broken:
		return nil
	case n.kind != mapping:
		l.problem(file, n.line, path, "is "+string(n.kind)+"; write a mapping of keys and values")
		return nil
	case len(n.members) == 0:
		l.problem(file, n.line, path, "is empty; fill it in or remove it")
		return nil
	}
	return &section{l: l, file: file, line: line, path: path, node: n}
}

func (s *section) member(key string) (member, bool) {
	i := slices.IndexFunc(s.node.members, func(m member) bool { return m.key == key })
	if i < 0 {
		return member{}, false
	}
	return s.node.members[i], true
}

func (s *section) has(key string) bool { _, ok := s.member(key); return ok }

// find returns the value of key, unless it is broken, and remembers that it was
// asked for.
func (s *section) find(key string) (*node, bool) {
	s.asked = append(s.asked, key)
	m, ok := s.member(key)
	return m.value, ok && m.value.kind != broken
}

// scalar returns the value of key if it is of one of the kinds wanted.
func (s *section) scalar(key string, wanted ...kind) (*node, bool) {
	s.learn(key, string(wanted[0]))
	n, ok := s.find(key)
	return n, ok && s.isOf(n, key, wanted...)
}

// isOf reports whether n, the value of key or an entry of it, is of one of the
// kinds wanted. The problem names the first of them.
func (s *section) isOf(n *node, key string, wanted ...kind) bool {
	switch {
	case n.kind == broken:
		return false
	case slices.Contains(wanted, n.kind):
		return true
	case wanted[0] == text && n.kind != list && n.kind != mapping:
		s.reportAt(n.line, key, "is "+string(n.kind)+" where text is wanted; put it in quotes")
	default:
		s.reportAt(n.line, key, "is "+string(n.kind)+"; write "+string(wanted[0]))
	}
	return false
}

// A rule says what is wrong with a value, as the rest of a sentence that begins
// with the value; nothing when it is right.
type rule func(string) string

// fits reports whether n keeps the rule.
func (s *section) fits(n *node, key string, r rule) bool {
	what := r(n.value)
	if what != "" {
		s.reportAt(n.line, key, quote(n.value)+" "+what)
	}
	return what == ""
}

// text returns the text at key.
func (s *section) text(key string, r rule) string {
	s.learnRule(key, r)
	if n, ok := s.scalar(key, text); ok && s.fits(n, key, r) {
		return n.value
	}
	return ""
}

// textOr returns the text at key, or absent where there is none.
func (s *section) textOr(key, absent string, r rule) string {
	s.learnDefault(key, absent)
	return cmp.Or(s.text(key, r), absent)
}

// items returns the entries of the list at key, which has 1 to most of them.
func (s *section) items(key string, most int) []*node {
	n, ok := s.scalar(key, list)
	switch {
	case !ok:
		return nil
	case len(n.items) == 0:
		s.report(key, "is an empty list; name what is meant or remove the key")
	case len(n.items) > most:
		s.report(key, fmt.Sprintf("has %d entries; at most %d are allowed", len(n.items), most))
		return nil
	}
	return n.items
}

// texts returns the list of texts at key, sorted. A wildcard or an entry given
// twice is a problem.
func (s *section) texts(key string, most int, r rule) []string {
	s.learnRule(key, r)
	r = both(noWildcard, r)
	var all []string
	for i, n := range s.items(key, most) {
		entry := key + "[" + strconv.Itoa(i) + "]"
		switch {
		case !s.isOf(n, entry, text) || !s.fits(n, entry, r):
		case slices.Contains(all, n.value):
			s.reportAt(n.line, entry, quote(n.value)+" is listed twice; remove one")
		default:
			all = append(all, n.value)
		}
	}
	slices.Sort(all)
	return all
}

// flag returns the true or false at key, or absent where there is none. Only
// the two words are accepted, in lower case.
func (s *section) flag(key string, absent bool) bool {
	s.learnDefault(key, strconv.FormatBool(absent))
	n, ok := s.scalar(key, flag)
	if !ok {
		return absent
	}
	if n.value != "true" && n.value != "false" {
		s.reportAt(n.line, key, quote(n.value)+" must be written true or false")
		return absent
	}
	return n.value == "true"
}

// duration returns the duration at key, such as 20s or 1m30s.
func (s *section) duration(key string, least, most time.Duration) time.Duration {
	s.learn(key, fmt.Sprintf("a duration from %v to %v", least, most))
	n, ok := s.scalar(key, text, number)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(n.value)
	if err != nil || d < least || d > most {
		s.reportAt(n.line, key, fmt.Sprintf("%s must be a duration from %v to %v, such as 20s", quote(n.value), least, most))
		return 0
	}
	return d
}

// durationOr returns the duration at key, or absent where there is none.
func (s *section) durationOr(key string, absent, least, most time.Duration) time.Duration {
	s.learnDefault(key, absent.String())
	d := s.duration(key, least, most)
	if !s.has(key) {
		return absent
	}
	return d
}

// count returns the whole number at key; 0 where there is none.
func (s *section) count(key string, least, most int) int {
	s.learn(key, fmt.Sprintf("a whole number from %d to %d", least, most))
	n, ok := s.scalar(key, number)
	if !ok {
		return 0
	}
	i, err := strconv.Atoi(n.value)
	if err != nil || strconv.Itoa(i) != n.value || i < least || i > most {
		s.reportAt(n.line, key, fmt.Sprintf("%s must be a whole number from %d to %d", quote(n.value), least, most))
		return 0
	}
	return i
}

// countOr returns the whole number at key, or absent where there is none.
func (s *section) countOr(key string, absent, least, most int) int {
	s.learnDefault(key, strconv.Itoa(absent))
	n := s.count(key, least, most)
	if !s.has(key) {
		return absent
	}
	return n
}

// date returns the day at key, as the moment it begins in UTC.
func (s *section) date(key string) time.Time {
	n, ok := s.scalar(key, date, text)
	if !ok {
		return time.Time{}
	}
	day, err := time.Parse(time.DateOnly, n.value)
	if err != nil {
		s.reportAt(n.line, key, quote(n.value)+" must be a day, such as 2027-03-31")
	}
	return day
}

// ref returns the credential reference at key. Its value is never shown.
func (s *section) ref(key string) secret.Ref {
	s.learn(key, "a reference, vault:<mount>/<path>#<field>")
	n, ok := s.scalar(key, text)
	if !ok {
		return secret.Ref{}
	}
	ref, err := secret.ParseRef(n.value)
	if err != nil {
		s.reportAt(n.line, key, hidden+` must name a field in Vault, written "vault:<mount>/<path>#<field>"; `+noSecrets)
	}
	return ref
}

// choice returns which of the words is at key, from 1; 0 where there is none.
func (s *section) choice(key string, words ...string) int {
	return slices.Index(words, s.text(key, oneOf(words...))) + 1
}

// child returns the section at key, or nil.
func (s *section) child(key string) *section {
	s.learn(key, string(mapping))
	n, ok := s.find(key)
	if !ok {
		return nil
	}
	m, _ := s.member(key)
	return s.l.section(s.file, m.line, under(s.path, key), n).shaped(s.shape, key)
}

// names returns the names in the mapping at key, whatever they name.
func (s *section) names(key string) []string {
	m, ok := s.member(key)
	if !ok {
		return nil
	}
	var all []string
	for _, m := range m.value.members {
		all = append(all, m.key)
	}
	return all
}

// children yields the sections at key by name, each name checked, in the order
// of the file. It ends each of them.
func (s *section) children(key string, names rule) iter.Seq2[string, *section] {
	return func(yield func(string, *section) bool) {
		group := s.child(key)
		if group == nil {
			return
		}
		for _, m := range group.node.members {
			if what := both(noWildcard, names)(m.key); what != "" {
				group.reportAt(m.line, m.key, "the name "+quote(m.key)+" "+what)
				continue
			}
			child := s.l.section(s.file, m.line, under(group.path, m.key), m.value).shaped(group.shape, "<name>")
			if child == nil {
				continue
			}
			if !yield(m.key, child) {
				return
			}
			child.end()
		}
	}
}

// need reports each of the keys that is not there.
func (s *section) need(keys ...string) {
	for _, key := range keys {
		s.learnNeed(key)
		if !s.has(key) {
			s.report(key, "is missing; it has no default")
		}
	}
}

// notYet reports each of the keys that is there: its feature is not.
func (s *section) notYet(keys ...string) {
	for _, key := range keys {
		s.learn(key, notAvailable)
		s.asked = append(s.asked, key)
		if s.has(key) {
			s.report(key, "is not available yet; remove it")
		}
	}
}

// without reports each of the keys that is there and says why it has no place.
func (s *section) without(why string, keys ...string) {
	for _, key := range keys {
		s.asked = append(s.asked, key)
		if s.has(key) {
			s.report(key, "has no effect "+why+"; remove it")
		}
	}
}

// report says something about key, on its line or, when it is not there, on the
// section's.
func (s *section) report(key, what string) {
	line := s.line
	if m, ok := s.member(key); ok {
		line = m.line
	}
	s.reportAt(line, key, what)
}

func (s *section) reportAt(line int, key, what string) {
	s.l.problem(s.file, line, under(s.path, key), what)
}

// skip takes every key for known.
func (s *section) skip() {
	for _, m := range s.node.members {
		s.asked = append(s.asked, m.key)
	}
}

// end reports the keys that nobody asked for.
func (s *section) end() {
	known := slices.Compact(slices.Sorted(slices.Values(s.asked)))
	s.learnAll(known)
	for _, m := range s.node.members {
		if _, ok := slices.BinarySearch(known, m.key); !ok {
			s.reportAt(m.line, m.key, "is not a known key; known here: "+strings.Join(known, ", "))
		}
	}
}

// where returns the place of the section, as file:line.
func (s *section) where() string { return s.file + ":" + strconv.Itoa(s.line) }
