package mcpclient

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"onbehalf.internal/broker/strictjson"
)

// maxText is how many bytes the rendering of a result has at most, the mark of
// the cut included.
const (
	maxText = 50_000
	cutMark = "\n[cut: the result is longer]"
)

// Text renders a result of tools/call as plain text, for a model that reads
// nothing else: its text blocks, one after the other. What is left out is said
// first, in words of ours alone, since a long text loses its end. It is "" for
// what is no such result. The result itself is not changed by it.
func Text(result strictjson.Raw) string {
	m := strictjson.Parts(result)
	blocks, ok := elements(m["content"])
	if !ok {
		return ""
	}
	texts, dropped := textBlocks(blocks)
	said := strings.Join(texts, "\n")
	switch failed := string(m["isError"]) == "true"; {
	case failed && said == "":
		said = "The tool reported an error: no detail given."
	case failed:
		said = "The tool reported an error: " + said
	case said == "":
		said = "The tool returned no textual content."
	}
	return cutText(droppedNote(dropped) + said)
}

// textBlocks returns the text of each block that has some, and how many blocks
// of which kind have none.
func textBlocks(blocks []strictjson.Raw) (texts []string, dropped map[string]int) {
	dropped = map[string]int{}
	for _, block := range blocks {
		b := strictjson.Parts(block)
		kind, _ := text(b["type"])
		said, isText := text(b["text"])
		switch {
		case kind == "text" && isText && said != "":
			texts = append(texts, said)
		case kind == "text" && isText: // nothing is lost
		case slices.Contains([]string{"audio", "image", "resource", "resource_link"}, kind):
			dropped[kind]++
		default:
			dropped["other"]++
		}
	}
	return texts, dropped
}

func droppedNote(dropped map[string]int) string {
	if len(dropped) == 0 {
		return ""
	}
	var kinds []string
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(dropped)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", dropped[kind], kind))
		total += dropped[kind]
	}
	return fmt.Sprintf("[%d without text left out: %s]\n", total, strings.Join(kinds, ", "))
}

func cutText(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText - len(cutMark)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutMark
}
