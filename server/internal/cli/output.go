package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/lab/report"
)

// reportFlags say where a report goes.
type reportFlags struct {
	svg, format string
}

func (f *reportFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.svg, "svg", "", "also write the first chart to this file, as SVG, and the others to numbered files beside it")
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
	for i := range page.Charts {
		if f.svg == "" {
			break
		}
		if err := toFile(numbered(f.svg, i+1), page.Charts[i].WriteSVG); err != nil {
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

// numbered returns the name of the n-th file: edge.svg, edge-2.svg, edge-3.svg.
func numbered(name string, n int) string {
	if n == 1 {
		return name
	}
	extension := filepath.Ext(name)
	return strings.TrimSuffix(name, extension) + "-" + strconv.Itoa(n) + extension
}

func toFile(name string, write func(io.Writer) error) error {
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
