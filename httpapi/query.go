package httpapi

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"onbehalf.internal/broker/fault"
)

// A param is one name that a query may have, and how its value is read.
type param struct {
	name string
	read func(value string) error // the error says what it should be
}

// readQuery reads a query strictly: names that are known, each once, none without a value.
func readQuery(raw string, known ...param) error {
	bad := func(detail string) error { return fault.New("httpapi.readQuery", fault.MalformedRequest, detail) }
	query, err := url.ParseQuery(raw)
	if err != nil {
		return bad("the query cannot be read")
	}
	var names []string
	for _, p := range known {
		names = append(names, p.name)
	}
	for name := range query {
		if !slices.Contains(names, name) {
			return bad("known in the query: " + strings.Join(names, ", "))
		}
	}
	for _, p := range known {
		switch values := query[p.name]; {
		case len(values) == 0:
		case len(values) > 1 || values[0] == "" || len(values[0]) > mostWord:
			return bad(fmt.Sprintf("%s: once, 1 to %d bytes", p.name, mostWord))
		default:
			if err := p.read(values[0]); err != nil {
				return bad(p.name + ": " + err.Error())
			}
		}
	}
	return nil
}

const mostWord = 4096 // bytes of a value; a place where a page ends has five names in it

func word(name string, into *string) param {
	return param{name, func(value string) error {
		if len(value) > 256 {
			return errors.New("at most 256 bytes")
		}
		*into = value
		return nil
	}}
}

func number(name string, into *uint64) param {
	return param{name, func(value string) (err error) {
		if *into, err = strconv.ParseUint(value, 10, 63); err != nil {
			return errors.New("a number")
		}
		return nil
	}}
}

func upTo(name string, into *int, most int) param { return between(name, into, 1, most) }

func between(name string, into *int, least, most int) param {
	return param{name, func(value string) (err error) {
		if *into, err = strconv.Atoi(value); err != nil || *into < least || *into > most {
			return fmt.Errorf("from %d to %d", least, most)
		}
		return nil
	}}
}

func moment(name string, into *time.Time) param {
	return param{name, func(value string) error {
		at, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return errors.New("a time such as 2026-11-30T12:00:00Z")
		}
		*into = at.UTC()
		return nil
	}}
}

// choice is one of the words, or what it was before.
func choice(name string, into *bool, no, yes string) param {
	return param{name, func(value string) error {
		if value != no && value != yes {
			return fmt.Errorf("%s or %s", yes, no)
		}
		*into = value == yes
		return nil
	}}
}

// needs says which words are missing.
func needs(words map[string]string) error {
	var missing []string
	for name, value := range words {
		if value == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fault.New("httpapi.readQuery", fault.MalformedRequest, "needed in the query: "+strings.Join(missing, ", "))
}
