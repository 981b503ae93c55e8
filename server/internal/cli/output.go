package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/report"
)

// reportFlags say where a report goes.
type reportFlags struct {
	html, svg, format string
}

func (f *reportFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.html, "report", "", "also write an HTML report to this file: one file that needs no network")
	flags.StringVar(&f.svg, "svg", "", "also write the first chart to this file, as SVG")
	flags.StringVar(&f.format, "format", "table", "what to print: table (with plots), tsv (for spreadsheets) or json")
}

func (f *reportFlags) check() error {
	if f.format != "table" && f.format != "tsv" && f.format != "json" {
		return fmt.Errorf("format is %q: want table, tsv or json", f.format)
	}
	return nil
}

// summarized is what can be printed as JSON.
type summarized interface{ JSON() any }

// write prints the page, or what it sums up as JSON, and writes the files.
func (f *reportFlags) write(out io.Writer, page *report.Page, result summarized) error {
	if err := toFile(f.html, page.WriteHTML); err != nil {
		return err
	}
	if f.svg != "" && len(page.Charts) > 0 {
		if err := toFile(f.svg, page.Charts[0].WriteSVG); err != nil {
			return err
		}
	}
	switch f.format {
	case "json":
		return marshal(out, result.JSON())
	case "tsv":
		return page.WriteTSV(out)
	}
	return page.WriteText(out, cmp.Or(terminalWidth(out), atoi(os.Getenv("COLUMNS"))))
}

func toFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// progressPause is how long a progress line stands before it changes.
const progressPause = 200 * time.Millisecond

// errInterrupted is why something was not done to its end.
var errInterrupted = errors.New("interrupted; nothing was written")

// A progress is a line on a terminal that says how far something is. Elsewhere it
// says nothing.
type progress struct {
	w     io.Writer
	shown time.Time
	width int
}

// newProgress writes to w if that is a terminal.
func newProgress(w io.Writer) *progress {
	if !isTerminal(w) {
		w = nil
	}
	return &progress{w: w, shown: time.Now()}
}

// show says how much is done, in words, unless it just did.
func (p *progress) show(text func() string) {
	if p.w == nil || time.Since(p.shown) < progressPause {
		return
	}
	p.shown = time.Now()
	p.write(text())
}

// end removes the line.
func (p *progress) end() {
	if p.w != nil && p.width > 0 {
		p.write("")
		fmt.Fprint(p.w, "\r")
	}
}

func (p *progress) write(line string) {
	fmt.Fprintf(p.w, "\r%s%s", line, strings.Repeat(" ", max(0, p.width-len(line))))
	p.width = len(line)
}
