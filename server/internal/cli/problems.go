package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/lab/report"
	"github.com/weirlimit/weir/server/internal/settingfile"
)

// printError says what went wrong: mistakes in rules each with the line that
// they are in, anything else as it is.
func printError(w io.Writer, err error) {
	var problems config.Problems
	if !errors.As(err, &problems) {
		fmt.Fprintf(w, "weir: %s\n", strings.TrimPrefix(err.Error(), "weir: "))
		return
	}
	var read pointedFile
	for _, p := range problems {
		fmt.Fprintln(w, p)
		if line, ok := read.line(p.File, p.Line); ok {
			io.WriteString(w, pointAt(line, p.Column))
		}
	}
	fmt.Fprintf(w, "weir: %s\n", report.Counted(len(problems), "problem"))
}

// A pointedFile is the file that was read last. Most problems are in the one of the problem before.
type pointedFile struct {
	name  string
	lines []string
}

// line returns a line of a file, counted from 1; false if there is none to show.
func (f *pointedFile) line(file string, number int) (string, bool) {
	if number < 1 {
		return "", false
	}
	if f.lines == nil || f.name != file {
		// The error has named the reason if the file cannot be read, or is too large.
		text, _ := settingfile.Read(file, config.MaxFileBytes)
		f.name, f.lines = file, strings.Split(string(text), "\n")
		if len(text) == 0 || len(text) > config.MaxFileBytes {
			f.lines = []string{}
		}
	}
	if number > len(f.lines) {
		return "", false
	}
	return strings.TrimRight(f.lines[number-1], "\r"), true
}

// shownColumns is how much of a line is shown.
const shownColumns = 120

// pointAt returns the line and, below it, a caret at the column, counted in
// characters from 1.
func pointAt(line string, column int) string {
	shown := []rune(strings.Map(printable, line))
	if column < 1 || column > len(shown)+1 || column > shownColumns {
		return ""
	}
	if len(shown) > shownColumns {
		shown = append(shown[:shownColumns], '…')
	}
	return fmt.Sprintf("    %s\n    %s^\n", string(shown), strings.Repeat(" ", column-1))
}

// printable keeps a file from commanding the terminal, and every character as
// wide as its column.
func printable(r rune) rune {
	switch {
	case unicode.IsSpace(r):
		return ' '
	case !unicode.IsPrint(r):
		return '\ufffd'
	}
	return r
}
