package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/policy"
)

// A line is one row of a review, and what its columns say besides.
type line struct {
	grants.Row
	counted time.Time // since when uses are; zero: the file knows of none
}

// ofFile is a line of what the configuration alone says.
func ofFile(r policy.Row) line { return line{Row: grants.Row{Row: r}} }

// cells are the columns that a review can have: a text, a number, a list of texts or a bool.
var cells = map[string]func(line) any{
	"actor":         func(r line) any { return r.Actor },
	"callers":       func(r line) any { return r.Callers },
	"profile":       func(r line) any { return r.Profile },
	"credential":    func(r line) any { return r.Credential },
	"server":        func(r line) any { return r.Server },
	"audience":      func(r line) any { return r.Audiences },
	"scopes":        func(r line) any { return r.Scopes },
	"tool":          func(r line) any { return r.Tool },
	"effect":        func(r line) any { return r.Effect },
	"data_class":    func(r line) any { return r.DataClass },
	"approval":      func(r line) any { return r.Approval },
	"administrator": func(r line) any { return r.Admin },
	"since":         func(r line) any { return r.Since },
	"approved_by":   func(r line) any { return r.ApprovedBy },
	"reason":        func(r line) any { return r.Reason },
	"expires":       func(r line) any { return r.Expires },
	"enabled":       func(r line) any { return r.Enabled },
	"status":        func(r line) any { return string(r.Status) },
	"why":           func(r line) any { return r.Why },
	"where":         func(r line) any { return r.Where },
	"stored":        func(r line) any { return r.Stored },
	"last_used":     func(r line) any { return timeCell(r.LastUsed) },
	"counted_since": func(r line) any { return timeCell(r.counted) },
	"uses":          usesCell,
}

func timeCell(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// usesCell is empty where nothing is counted.
func usesCell(r line) any {
	if r.Uses == nil {
		return ""
	}
	return *r.Uses
}

// printRows writes the rows in one format, each as it comes.
func printRows(out io.Writer, format string, columns []string, rows iter.Seq[line]) error {
	buffered := bufio.NewWriter(out)
	switch format {
	case "table":
		printTable(buffered, columns, rows)
	case "csv":
		printCSV(buffered, columns, rows)
	case "json":
		printJSON(buffered, columns, rows)
	default:
		return fmt.Errorf("--format %q: table, csv or json", format)
	}
	return buffered.Flush()
}

// printTable reads the rows twice, first for the widths of the columns, so that it
// need not hold them.
func printTable(out *bufio.Writer, columns []string, rows iter.Seq[line]) {
	header := strings.Split(strings.ToUpper(strings.ReplaceAll(strings.Join(columns, "\t"), "_", " ")), "\t")
	widths := make([]int, len(columns))
	measure := func(texts []string) {
		for i, text := range texts {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	measure(header)
	some := false
	for r := range rows {
		measure(tableLine(columns, r))
		some = true
	}
	if !some {
		fmt.Fprintln(out, "none")
		return
	}
	printLine(out, widths, header)
	for r := range rows {
		printLine(out, widths, tableLine(columns, r))
	}
}

func printLine(out *bufio.Writer, widths []int, texts []string) {
	var b strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&b, "%-*s  ", widths[i], text)
	}
	fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
}

func tableLine(columns []string, r line) []string {
	texts := make([]string, len(columns))
	for i, name := range columns {
		texts[i] = orDash(shown(textOf(cells[name](r))))
	}
	return texts
}

// printCSV writes RFC 4180, lines ended as everywhere else here.
func printCSV(out *bufio.Writer, columns []string, rows iter.Seq[line]) {
	table := csv.NewWriter(out)
	table.Write(columns)
	texts := make([]string, len(columns))
	for r := range rows {
		for i, name := range columns {
			texts[i] = csvCell(textOf(cells[name](r)))
		}
		table.Write(texts)
	}
	table.Flush()
}

// csvCell keeps a spreadsheet from taking the text for a formula (OWASP, CSV
// injection).
func csvCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + shown(s)
	}
	return shown(s)
}

// printJSON writes one array, a row a line.
func printJSON(out *bufio.Writer, columns []string, rows iter.Seq[line]) {
	before, after := "[\n", "[]\n"
	for r := range rows {
		fields := make([]string, len(columns))
		for i, name := range columns {
			fields[i] = fmt.Sprintf("%q:%s", name, jsonOf(cells[name](r)))
		}
		fmt.Fprintf(out, "%s{%s}", before, strings.Join(fields, ","))
		before, after = ",\n", "\n]\n"
	}
	fmt.Fprint(out, after)
}

func jsonOf(cell any) []byte {
	switch v := cell.(type) {
	case string:
		cell = shown(v)
	case []string:
		list := []string{}
		for _, text := range v {
			list = append(list, shown(text))
		}
		cell = list
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.Encode(cell)
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

func textOf(cell any) string {
	switch v := cell.(type) {
	case []string:
		return strings.Join(v, " ")
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case int:
		return strconv.Itoa(v)
	}
	return cell.(string)
}

// shown escapes a text of the configuration that holds what a terminal would act
// on. Loading refuses such a text already.
func shown(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		quoted := strconv.Quote(s)
		return quoted[1 : len(quoted)-1]
	}
	return s
}
