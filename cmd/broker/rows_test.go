package main

import (
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"

	"onbehalf.internal/broker/grants"
	"onbehalf.internal/broker/policy"
)

// TestCSVCells: what a spreadsheet would take for a formula is text, and what a reader
// of RFC 4180 finds in a cell is what was there.
func TestCSVCells(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"user:7":                 "user:7",
		"=1+1":                   "'=1+1",
		"+1":                     "'+1",
		"-1":                     "'-1",
		"@SUM(A1)":               "'@SUM(A1)",
		"\t=1":                   `'\t=1`,
		"\r=1":                   `'\r=1`,
		"-":                      "'-",
		"a=1":                    "a=1",
		" =1":                    " =1",
		"'=1":                    "'=1",
		`=HYPERLINK("x","y")`:    `'=HYPERLINK("x","y")`,
		"a, \"b\"":               "a, \"b\"",
		"a\nb":                   `a\nb`,
		"\x1b[2J":                `\x1b[2J`,
		"\u009b2J":               `\u009b2J`,
		"user\u202e7":            `user\u202e7`,
		"Zoë, 安全":                "Zoë, 安全",
		"\xff":                   `\xff`,
		"=cmd|' /C calc'!A0, =1": "'=cmd|' /C calc'!A0, =1",
	} {
		var out strings.Builder
		row := policy.Row{Actor: text, Reason: text}
		if err := printRows(&out, "csv", []string{"actor", "reason"}, slices.Values([]line{ofFile(row)})); err != nil {
			t.Fatal(err)
		}
		got, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
		if err != nil || len(got) != 2 || got[1][0] != want || got[1][1] != want {
			t.Errorf("%q: %q, %v", text, out.String(), err)
		}
	}
}

// TestNothingMovesTheCursor: whatever a row holds, no format prints what a terminal
// would act on, and JSON stays JSON.
func TestNothingMovesTheCursor(t *testing.T) {
	const hostile = "a\x1b]0;x\x07\u009b31m\u202e\t\r\nb\x7f\xff"
	row := policy.Row{Actor: hostile, Callers: []string{hostile, "b"}, Reason: hostile, Status: hostile}
	for _, format := range []string{"table", "csv", "json"} {
		var out strings.Builder
		if err := printRows(&out, format, []string{"actor", "callers", "reason", "status", "enabled"}, slices.Values([]line{ofFile(row)})); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || !strings.Contains(out.String(), "]0;x") {
			t.Errorf("%s: %q", format, out.String())
		}
		if format == "json" && !json.Valid([]byte(out.String())) {
			t.Errorf("no JSON: %s", out.String())
		}
	}
	if line := changeLine(policy.Change{Kind: policy.Added, Actor: hostile, Gained: []string{hostile}}); strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("diff: %q", line)
	}
}

// TestRowsAreNotHeld: each row is printed before the next one but one is asked for,
// once what stands between here and the file is full.
func TestRowsAreNotHeld(t *testing.T) {
	for format, passes := range map[string]int{"table": 2, "csv": 1, "json": 1} {
		var out strings.Builder
		pass, early := 0, 0
		rows := func(yield func(line) bool) {
			pass++
			for i := range 1000 {
				if i == 900 && pass == passes {
					early = out.Len()
				}
				if !yield(ofFile(policy.Row{Reason: strings.Repeat("x", 100)})) {
					return
				}
			}
		}
		if err := printRows(&out, format, []string{"reason"}, rows); err != nil || pass != passes {
			t.Fatalf("%s: %v, %d passes", format, err, pass)
		}
		if early < out.Len()/2 {
			t.Errorf("%s: %d of %d bytes were out before the last rows", format, early, out.Len())
		}
	}
}

// Every column is of a kind that each format prints.
func TestEveryColumn(t *testing.T) {
	for name, cell := range cells {
		switch cell(line{Row: grants.Row{Uses: new(int)}}).(type) {
		case string, bool, int, []string:
		default:
			t.Errorf("%s is of a kind that no format prints", name)
		}
	}
}
