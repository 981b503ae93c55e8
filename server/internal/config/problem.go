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
	What         string // the mistake
	Want         string // the expected text or value, or empty
	Suggestion   string // the likely correction, or empty
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

// Problems are all the mistakes of a load, by file and position. It is never empty if it
// is returned as an error.
type Problems []Problem

// Error lists the problems, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// Sort sorts the problems of one file by position.
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

// Nearest returns the candidate that the word was probably meant to be, or "".
func Nearest(word string, candidates []string) string {
	const longest = 40
	if len(word) > longest {
		return ""
	}
	best, least := "", min(3, (len(word)+3)/4)+1
	for _, candidate := range candidates {
		if d := distance(strings.ToLower(word), candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is how many bytes must be inserted, deleted or replaced, or swapped
// with their neighbours, to turn a into b.
func distance(a, b string) int {
	width := len(b) + 1
	table := make([]int, (len(a)+1)*width)
	for j := range width {
		table[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := table[i*width:]
		above := table[(i-1)*width:]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := above[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(above[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], table[(i-2)*width+j-2]+1)
			}
		}
	}
	return table[len(table)-1]
}
