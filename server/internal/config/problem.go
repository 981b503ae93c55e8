package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is one mistake in a rules file.
type Problem struct {
	File string
	// Line and Column count from 1; 0 where the file itself is the mistake.
	Line, Column int
	What         string // what is wrong
	Want         string // what was expected, or empty
	Suggestion   string // what was probably meant, or empty
}

// String returns the problem on one line:
// file:line:column: what; want …; did you mean "…"?
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": " + p.What)
	if p.Want != "" {
		b.WriteString("; want " + p.Want)
	}
	if p.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", p.Suggestion)
	}
	return b.String()
}

// Problems are all the mistakes of a load, by file and place. It is never empty
// where it is returned as an error.
type Problems []Problem

// Error lists the problems, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// Sort puts the problems of one file in the order of their places.
func (p Problems) Sort() {
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// quote shows a text of the file in a message: printable, and not too long.
func quote(text string) string {
	const most = 60
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return fmt.Sprintf("%q", text)
}
