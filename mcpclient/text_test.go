package mcpclient_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"onbehalf.internal/broker/mcpclient"
	"onbehalf.internal/broker/strictjson"
)

func TestText(t *testing.T) {
	const none = "The tool returned no textual content."
	for _, r := range []struct{ result, want string }{
		{`{"content":[{"type":"text","text":"a"}]}`, "a"},
		{`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b\n"},{"type":"text","text":""}]}`, "a\nb\n"},
		{`{"content":[]}`, none},
		{`{"content":[{"type":"text","text":""}]}`, none},
		{`{"content":[{"type":"image","data":"eA=="}]}`, "[1 without text left out: 1 image]\n" + none},
		{`{"content":[{"type":"video"},{"type":"text","text":"a"},{"type":"resource","resource":{"text":"r"}},{"type":"audio"},{"type":"image"},{"type":"image"},{"type":"resource_link"}]}`,
			"[6 without text left out: 1 audio, 2 image, 1 other, 1 resource, 1 resource_link]\na"},
		{`{"content":[{"type":"text","text":7},{"text":"a"},"a",null]}`, "[4 without text left out: 4 other]\n" + none},
		{`{"content":[{"type":"\u001b[31m","text":"a"}]}`, "[1 without text left out: 1 other]\n" + none},
		{`{"content":[{"type":"text","text":"no"}],"isError":true}`, "The tool reported an error: no"},
		{`{"content":[],"isError":true}`, "The tool reported an error: no detail given."},
		{`{"content":[{"type":"image"}],"isError":true}`, "[1 without text left out: 1 image]\nThe tool reported an error: no detail given."},
		{`{"content":[{"type":"text","text":"a"}],"isError":"true"}`, "a"},
		{`{"content":[{"type":"text","text":"a"}],"structuredContent":{"b":1},"_meta":{"c":2}}`, "a"},
		{`{"content":{}}`, ""},
		{`{"code":-32602,"message":"a"}`, ""},
		{``, ""},
	} {
		if got := mcpclient.Text(strictjson.Raw(r.result)); got != r.want {
			t.Errorf("%s: %q, want %q", r.result, got, r.want)
		}
	}
}

// TestTextIsCut: at 50,000 bytes, the mark included, and between characters.
func TestTextIsCut(t *testing.T) {
	of := func(s string) string {
		return mcpclient.Text(strictjson.Raw(`{"content":[{"type":"image"},{"type":"text","text":"` + s + `"}]}`))
	}
	note := "[1 without text left out: 1 image]\n"
	fits := strings.Repeat("x", 50_000-len(note))
	if got := of(fits); got != note+fits {
		t.Errorf("at the limit: %d bytes", len(got))
	}
	for _, s := range []string{fits + "x", strings.Repeat("ä", 40_000), "x" + strings.Repeat("ä", 40_000)} {
		got := of(s)
		if len(got) > 50_000 || len(got) < 49_990 || !utf8.ValidString(got) || !strings.HasPrefix(got, note) || !strings.HasSuffix(got, "\n[cut: the result is longer]") {
			t.Errorf("%d bytes, %q … %q", len(got), got[:60], got[len(got)-60:])
		}
	}
}
