package schema

import "regexp/syntax"

// maxSteps bounds the patterns of one schema: the places in which they can be
// at once, which is what a character of a string costs.
const maxSteps = 2000

// pattern refuses what is not in the syntax of the Go package regexp, which has
// no look-ahead and whose time grows with the string and the pattern alone.
func (w *walk) pattern(part *node) error {
	if len(part.raw) > maxStored {
		return nil // the schema will be refused for its size; the parser would take memory
	}
	re, err := syntax.Parse(part.text(), syntax.Perl)
	if err != nil {
		return part.refuse("pattern not usable")
	}
	if w.steps += steps(re); w.steps > maxSteps {
		return part.refuse("pattern not usable: the patterns of the schema take more than %d steps", maxSteps)
	}
	return nil
}

// steps is about the number of instructions that re takes, repetitions written
// out. The parser has refused what would overflow it.
func steps(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpConcat, syntax.OpRepeat:
		n = 0
	}
	for _, sub := range re.Sub {
		n += steps(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}
