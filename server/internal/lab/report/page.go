// Package report shows measurements over time: as text for a terminal, as tables for a
// spreadsheet, and as charts in SVG.
package report

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Page is tables and charts. The zero value is empty.
type Page struct {
	Title  string
	Lead   string // one paragraph below the title
	Tables []Table
	Charts []Chart
	// Notes say what to know about the figures.
	Notes []string
}

// A Table has a head and rows of as many cells.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
	// Left is how many columns, from the first on, hold words; the others hold
	// numbers and are aligned to the right.
	Left int
}

// A Chart is values over time.
type Chart struct {
	Title string
	// X are the instants of the values: seconds from a start on, or since 1970
	// where Clock is set.
	X      []float64
	Clock  bool
	Series []Series
	// Limit is a line that should not be crossed; 0: none.
	Limit float64
}

// A Series has a value for each X of its chart.
type Series struct {
	Name   string
	Values []float64
	// Background is for what the others are to be compared with.
	Background bool
}

// top is the highest value that a chart has to show.
func (c *Chart) top() float64 {
	top := c.Limit
	for _, s := range c.Series {
		top = max(top, s.most())
	}
	return top
}

func (s *Series) most() float64 {
	most := 0.0
	for _, v := range s.Values {
		most = max(most, v)
	}
	return most
}

// end is where the last value's stretch of time ends.
func (c *Chart) end() float64 {
	last := c.X[len(c.X)-1]
	return last + (last-c.X[0])/float64(len(c.X)-1)
}

// drawable says whether there is anything to draw.
func (c *Chart) drawable() bool { return len(c.X) > 1 && len(c.Series) > 0 }

// thin makes a series of at most so many values, each the highest of those that
// it stands for: a peak must not get lost.
func (s *Series) thin(most int) []float64 {
	if len(s.Values) <= most {
		return s.Values
	}
	thinned := make([]float64, most)
	for i, v := range s.Values {
		at := i * most / len(s.Values)
		thinned[at] = max(thinned[at], v)
	}
	return thinned
}

// instant names a place on the axis of time.
func (c *Chart) instant(x float64) string {
	if c.Clock {
		t := time.Unix(int64(x), 0).UTC()
		if c.end()-c.X[0] > 2*24*3600 {
			return t.Format("01-02 15h")
		}
		return t.Format(time.TimeOnly)
	}
	s := int64(math.Round(x))
	switch length := c.end() - c.X[0]; {
	case length < 10:
		return fmt.Sprintf("%.3gs", x)
	case length > 2*3600:
		return fmt.Sprintf("%d:%02dh", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// Number writes a number with at most four digits that mean something, or whole.
func Number(v float64) string {
	switch {
	case v == math.Trunc(v) && math.Abs(v) < 1e15:
		return Count(int64(v))
	case math.Abs(v) >= 1000:
		return Count(int64(math.Round(v)))
	}
	return fmt.Sprintf("%.4g", v)
}

// Count writes a whole number, without separators: tools read what terminals print.
func Count(n int64) string { return strconv.FormatInt(n, 10) }

// Counted writes a number of things: "1 key", "2 keys".
func Counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Count(int64(n)) + " " + noun
}

// Percent writes a part of a whole. A part above none is never written as 0%.
func Percent(part, whole int64) string {
	switch {
	case whole == 0:
		return "–"
	case part == 0:
		return "0%"
	}
	percent := 100 * float64(part) / float64(whole)
	switch {
	case percent < 0.01:
		return "<0.01%"
	case part < whole && percent > 99.99:
		return ">99.99%"
	}
	return fmt.Sprintf("%.4g%%", math.Round(percent*100)/100)
}
