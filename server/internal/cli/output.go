package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"

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
