package schema

import (
	"net/url"
	"strings"

	"onbehalf.internal/broker/strictjson"
)

// maxFollowed bounds the bytes of all that references refer to, counted anew
// each time. A schema that is small enough to be stored needs less; one that
// multiplies itself is stopped before it is large.
const maxFollowed = 4 * maxStored

// follow returns what ref refers to, as it is stored.
func (w *walk) follow(ref *node) (strictjson.Raw, error) {
	target, err := w.find(ref)
	if err != nil {
		return nil, err
	}
	if target.busy {
		return nil, ref.refuse("the reference leads back to itself")
	}
	if w.followed += len(target.raw); w.followed > maxFollowed {
		return nil, ref.refuse("what the references refer to exceeds %d bytes", maxFollowed)
	}
	return w.schema(target)
}

// find resolves a reference: "#" and a JSON pointer into this document.
func (w *walk) find(ref *node) (*node, error) {
	if ref.kind() != '"' {
		return nil, ref.refuse("the reference is not a string")
	}
	fragment, local := strings.CutPrefix(ref.text(), "#")
	if !local {
		return nil, ref.refuse("the reference leads out of the schema")
	}
	path, err := url.PathUnescape(fragment) // RFC 6901, section 6
	if err != nil {
		return nil, ref.refuse("the reference is not a JSON pointer")
	}
	start, path, _ := strings.Cut(path, "/")
	if start != "" {
		return nil, ref.refuse("the reference is to an anchor")
	}
	if fragment == "" {
		return w.root, nil
	}
	return w.descend(ref, strings.Split(path, "/"))
}

// descend follows the names of a pointer from schema to schema.
func (w *walk) descend(ref *node, names []string) (*node, error) {
	at, is := w.root, one
	for _, escaped := range names {
		if strings.Count(escaped, "~") != strings.Count(escaped, "~0")+strings.Count(escaped, "~1") {
			return nil, ref.refuse("the reference is not a JSON pointer")
		}
		name := unescape.Replace(escaped) // RFC 6901, section 4
		next := at.get(name)
		switch {
		case next == nil:
			return nil, ref.refuse("the reference leads nowhere")
		case is == one && at != w.root && at.get("$id") != nil:
			return nil, ref.refuse("the reference leads into a schema with its own $id")
		case is == one:
			is = w.position(at, name)
		case is == many, is == named:
			is = one
		}
		if is == data {
			return nil, ref.refuse("the reference leads to what is not a schema")
		}
		at = next
	}
	if is != one {
		return nil, ref.refuse("the reference leads to what is not a schema")
	}
	return at, nil
}

// merge puts target where n has its reference, among the members kept of n. Both
// count, so target becomes one more schema of allOf; where n only adds
// annotations, target takes them instead, in the place of its own.
func merge(n *node, kept []strictjson.Member, target strictjson.Raw) (strictjson.Raw, error) {
	if target.Kind() == '{' && annotating(kept) {
		return annotate(kept, target), nil
	}
	of := []strictjson.Member{{Value: target}}
	for i, m := range kept {
		if m.Name != "allOf" {
			continue
		}
		others := strictjson.Elements(m.Value)
		if len(others) == 0 {
			return nil, n.get("allOf").refuse("allOf is not a list of schemas")
		}
		for _, other := range others {
			of = append(of, strictjson.Member{Value: other})
		}
		kept[i].Value = encode('[', of)
		return encode('{', kept), nil
	}
	return encode('{', append(kept, strictjson.Member{Spelled: strictjson.Raw(`"allOf"`), Value: encode('[', of)})), nil
}

func annotating(kept []strictjson.Member) bool {
	for _, m := range kept {
		if !annotations[m.Name] {
			return false
		}
	}
	return true
}

// annotate writes target with the annotations of the place that refers to it.
func annotate(kept []strictjson.Member, target strictjson.Raw) strictjson.Raw {
	if len(kept) == 0 {
		return target
	}
	taken := map[string]bool{}
	for _, m := range kept {
		taken[m.Name] = true
	}
	for _, m := range strictjson.Ordered(target) {
		if !taken[m.Name] {
			kept = append(kept, m)
		}
	}
	return encode('{', kept)
}
