package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/guptarohit/asciigraph"
)

const (
	plotColumns = 64
	plotRows    = 4 // at least
)

// WriteText writes the page for a terminal. Tables are at most width columns wide, if
// their numbers leave room for the words; 0 means any width.
func (p *Page) WriteText(w io.Writer, width int) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s\n", p.Title)
	if p.Lead != "" {
		fmt.Fprintf(b, "%s\n", p.Lead)
	}
	for i := range p.Tables {
		fmt.Fprintln(b)
		p.Tables[i].write(b, width)
	}
	if len(p.Charts) > 0 {
		// The others need the resolution of a page.
		p.Charts[0].write(b)
	}
	for i, note := range p.Notes {
		if i == 0 {
			fmt.Fprintln(b)
		}
		fmt.Fprintf(b, "* %s\n", note)
	}
	return b.Flush()
}

// WriteTSV writes the tables with tabs between cells, as spreadsheets take them.
func (p *Page) WriteTSV(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i := range p.Tables {
		t := &p.Tables[i]
		if i > 0 {
			fmt.Fprintln(b)
		}
		fmt.Fprintf(b, "%s\n%s\n", t.Title, strings.Join(t.Head, "\t"))
		for _, row := range t.Rows {
			fmt.Fprintln(b, strings.Join(row, "\t"))
		}
	}
	return b.Flush()
}

// narrow shortens the columns of words until the table fits.
func (t *Table) narrow(widths []int, width int) {
	const least = 8
	total := 2 * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for ; width > 0 && total > width; total-- {
		widest := 0
		for i := range t.Left {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= least {
			return
		}
		widths[widest]--
	}
}

// shorten leaves out the middle of a text. Keys differ at their ends.
func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	head := (width - 1) / 3
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}

func (t *Table) write(w io.Writer, width int) {
	if t.Title != "" {
		fmt.Fprintf(w, "%s\n", t.Title)
	}
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.narrow(widths, width)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row {
			cell = shorten(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < t.Left {
				cell += pad
			} else {
				cell = pad + cell
			}
			if i > 0 {
				line.WriteString("  ")
			}
			line.WriteString(cell)
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// write plots the series one below the other, on one scale: without colours
// several lines in one plot cannot be told apart.
func (c *Chart) write(w io.Writer) {
	if !c.drawable() {
		return
	}
	fmt.Fprintf(w, "\n%s", c.Title)
	if c.Limit > 0 {
		fmt.Fprintf(w, " (limit %s)", Number(c.Limit))
	}
	fmt.Fprintln(w)
	step := niceStep(c.top())
	steps := max(1, math.Ceil(c.top()/step))
	label := len(Number(steps * step))
	rows := int(steps)
	for rows < plotRows {
		rows *= 2
	}
	for _, s := range c.Series {
		plot := asciigraph.Plot(stretch(s.thin(plotColumns)),
			asciigraph.Height(rows), asciigraph.LowerBound(0), asciigraph.UpperBound(steps*step),
			asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%*s", label, Number(v)) }),
			asciigraph.XAxisRange(c.X[0], c.end()), asciigraph.XAxisTickCount(5),
			asciigraph.XAxisValueFormatter(c.instant))
		fmt.Fprintf(w, "\n%s, at most %s\n%s\n", s.Name, Number(s.most()), trimRight(plot))
	}
}

// stretch repeats values where there are few of them.
func stretch(values []float64) []float64 {
	if len(values) == 0 || len(values) >= plotColumns/2 {
		return values
	}
	wide := make([]float64, plotColumns)
	for i := range wide {
		wide[i] = values[i*len(values)/plotColumns]
	}
	return wide
}

func trimRight(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
