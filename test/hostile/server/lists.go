package server

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// page is one page of tools, with whatever stands behind them.
func page(tools, more string) step {
	return result(`{"resultType":"complete","tools":[` + tools + `]` + more + `}`)
}

func next(cursor string) string { return `,"nextCursor":` + cursor }

func tools(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object"}}`, i))
	}
	return strings.Join(all, ",")
}

// lists break tools/list.
var lists = []Behaviour{
	at(list, Both, "list-two-pages", succeeded, "Lists its tools on two pages.", page(`{"name":"a","inputSchema":{"type":"object"}}`, next(`"x"`)), page(`{"name":"b","inputSchema":{"type":"object"}}`, "")),
	at(list, Both, "list-empty-cursor", succeeded, "Uses the empty text as a cursor.", page(tool, next(`""`)), page("", "")),
	at(list, Both, "list-stream", succeeded, "Lists its tools on a stream, behind notes.", events(note, `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","tools":[`+tool+`]}}`)),
	at(list, Both, "list-empty-cursor-for-ever", notSent+"reply malformed", "Uses the empty text as every cursor.", page("", next(`""`))),
	at(list, Both, "list-cursor-repeats", notSent+"reply malformed", "Repeats its cursor for ever.", page("", next(`"8"`))),
	at(list, Both, "list-cursors-in-a-circle", notSent+"reply malformed", "Leads in a circle of three.", page("", next(`"a"`)), page("", next(`"b"`)), page("", next(`"c"`)), page("", next(`"a"`))),
	at(list, Both, "list-endless", notSent+"reply too large", "Lists pages without an end.", page("", next(`"c$NUMBER"`))),
	at(list, Both, "list-500-tools", succeeded, "Lists 500 tools.", page(tools(500), "")),
	at(list, Both, "list-501-tools", notSent+"reply too large", "Lists 501 tools.", page(tools(501), "")),
	at(list, Both, "list-large-page", notSent+"reply too large", "Lists a tool of 3 MiB.", repeated(200, kindJSON, `{"jsonrpc":"2.0","id":$ID,"result":{"tools":[{"name":"a","description":"`, "x", 3<<20, `"}]}}`)),
	at(list, Both, "list-cursor-of-5000", notSent+"reply too large", "Uses a cursor of 5,000 bytes.", page("", next(strconv.Quote(strings.Repeat("x", 5000))))),
	at(list, Both, "list-cursor-null", notSent+"reply malformed", "Uses null as a cursor.", page("", next("null"))),
	at(list, Both, "list-cursor-number", notSent+"reply malformed", "Uses a number as a cursor.", page("", next("8"))),
	at(list, Both, "list-cursor-token", notSent+"secret echoed", "Uses the token as a cursor.", page("", next(`"$TOKEN"`))),
	at(list, Both, "list-token", notSent+"secret echoed", "Names a tool like the token.", page(`{"name":"$TOKEN","inputSchema":{"type":"object"}}`, "")),
	at(list, Both, "list-absent", notSent+"reply malformed", "Sends no list.", result(`{"resultType":"complete"}`)),
	at(list, Both, "list-null", notSent+"reply malformed", "Sends null for the list.", result(`{"resultType":"complete","tools":null}`)),
	at(list, Both, "list-object", notSent+"reply malformed", "Sends an object for the list.", result(`{"resultType":"complete","tools":{"a":{}}}`)),
	at(list, Both, "list-tool-null", succeeded, "Lists null: what is no tool, or no good one, is for who imports to skip.", page("null", "")),
	at(list, Both, "list-tool-text", succeeded, "Lists a string.", page(tool+`,"a"`, "")),
	at(list, Both, "list-type-zzz", notSent+"reply malformed", "Says a resultType that nobody knows.", result(`{"resultType":"zzz","tools":[]}`)),
	at(list, Both, "list-deep-schema", notSent+"reply malformed", "Nests a schema 200 deep.", page(`{"name":"a","inputSchema":`+strings.Repeat(`{"items":`, 200)+`{}`+strings.Repeat(`}`, 200)+`}`, "")),
	at(list, Both, "list-remote-schema", succeeded, "Points to schemas and icons on another host.", page(`{"name":"a","icons":[{"src":"$ELSEWHERE/icon"}],"inputSchema":{"$schema":"$ELSEWHERE/meta","type":"object","properties":{"q":{"$ref":"$ELSEWHERE/ref"}},"$defs":{"a":{"$id":"$ELSEWHERE/id","$dynamicRef":"$ELSEWHERE/dyn"}}}}`, "")),
	at(list, Both, "list-odd-names", succeeded, "Lists tools with names to be misread; to judge them is not the transport's.", page(oddNames(), "")),
	at(list, Both, "list-name-empty", succeeded, "Lists a tool whose name is empty.", page(tool+`,{"name":"","inputSchema":{"type":"object"}}`, "")),
	at(list, Both, "list-name-absent", succeeded, "Lists a tool without a name.", page(tool+`,{"inputSchema":{"type":"object"}}`, "")),
	at(list, Both, "list-names-twice-apart", succeeded, "Lists two tools under one name, on two pages.", page(tool, next(`"x"`)), page(tool, "")),
	at(list, Both, "list-names-twice", succeeded, "Lists two tools under one name.", page(tool+","+tool, "")),
	at(list, Both, "list-odd-lifetime", succeeded, "Says a lifetime that is no number, and a scope that nobody knows.", page(tool, `,"ttlMs":"for ever","cacheScope":"PUBLIC"`)),
	at(list, Both, "list-lifetime-huge", succeeded, "Says a lifetime of 1e300 ms.", page(tool, `,"ttlMs":1e300,"cacheScope":"public"`)),
	at(list, Modern, "list-poison-headers", succeeded, "Annotates tools with headers that may not be; one of eleven tools is sound.", page(poison(), "")),
	at(list, Both, "list-second-page-fails", notSent+"server error", "Answers the second page with an error.", page(tool, next(`"x"`)), errorInBody(`{"code":-32602,"message":"`+Foreign+`"}`)),
	at(list, Both, "list-second-page-redirects", notSent+"redirected", "Redirects the second page to another host.", page(tool, next(`"x"`)), say(307, "", "", "Location", "$ELSEWHERE")),
	at(list, Both, "list-second-page-hangs", notSent+"wall clock", "Does not answer the second page.", page(tool, next(`"x"`)), silent),
	at(list, Both, "list-pages-ever-slower", notSent+"wall clock", "Takes longer for each page than for the one before.", after(pace, page("", next(`"a"`))), after(2*pace, page("", next(`"b"`))), after(time.Minute, page("", ""))),
	at(list, Both, "list-401", notSent+"unauthorized", "Says 401.", say(401, "", "", "WWW-Authenticate", `Bearer realm="x"`+metadata)),
	at(list, Both, "list-500", notSent+"intermediary", "Says 500.", say(500, "", "")),
}

// oddNames are names that look like others or do something where they are shown.
func oddNames() string {
	var all []string
	for _, name := range []string{
		`admin\u200btool`, `ad\u202emin`, `verify_\u057dser`, `\uff41dmin`, `tool\ntool`, `tool\u2028`, `tool\u0000`, `../x`, `a/b`, `a b`,
		strings.Repeat("a", 129), `\udb40\udc61`, `tool\u001b[31m`, `__proto__`,
	} {
		all = append(all, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	return strings.Join(all, ",")
}

// poison are tools whose x-mcp-header breaks the rules, and one that keeps them.
func poison() string {
	one := func(name, properties string) string {
		return `{"name":"` + name + `","inputSchema":{"type":"object","properties":{` + properties + `}}}`
	}
	property := func(header, kind string) string { return `"q":{"type":"` + kind + `","x-mcp-header":` + header + `}` }
	return strings.Join([]string{
		one("empty", property(`""`, "string")),
		one("null", property(`null`, "string")),
		one("number", property(`1`, "string")),
		one("space", property(`"A B"`, "string")),
		one("colon", property(`"A: B"`, "string")),
		one("line_break", property(`"A\r\nAuthorization: x"`, "string")),
		one("not_ascii", property(`"\u00e9"`, "string")),
		one("object", property(`"A"`, "object")),
		one("twice", property(`"A"`, "string")+`,"r":{"type":"string","x-mcp-header":"a"}`),
		one("in_items", `"q":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}`),
		one("sound", property(`"Authorization"`, "string")),
	}, ",")
}
