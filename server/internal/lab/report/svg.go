package report

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// The canvas of a picture: panels in two columns.
const (
	panelWidth, panelHeight = 400, 190
	panelLeft, panelTop     = 48, 40
	panelRight, panelBottom = 14, 26
	plotWidth               = panelWidth - panelLeft - panelRight
	plotHeight              = panelHeight - panelTop - panelBottom
	pictureTop              = 34
)

var palette = []string{"#2563eb", "#ea580c", "#16a34a", "#9333ea", "#0891b2", "#ca8a04", "#db2777", "#64748b"}

const pictureStyle = `<style>
  text{fill:#57606a} .head{fill:#24292f;font-weight:600} .grid{stroke:#8883;fill:none} .axis{stroke:#8889;fill:none}
  .limit{stroke:#dc2626;stroke-dasharray:5 4;fill:none} .over{fill:#dc2626;font-weight:600}
  @media (prefers-color-scheme:dark){text{fill:#9da7b3} .head{fill:#e6edf3} .limit{stroke:#f87171} .over{fill:#f87171}}
</style>
`

// WriteSVG writes the chart as a picture: a panel for each series, all on one
// scale. It suits light and dark surroundings.
func (c *Chart) WriteSVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	columns := min(2, max(1, len(c.Series)))
	rows := (len(c.Series) + columns - 1) / columns
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui,sans-serif" font-size="11">`+"\n",
		columns*panelWidth, pictureTop+rows*panelHeight)
	fmt.Fprintf(b, "<title>%s</title>\n%s", html.EscapeString(c.Title), pictureStyle)
	fmt.Fprintf(b, `<text class="head" x="%d" y="20" font-size="14">%s`, 12, html.EscapeString(c.Title))
	if c.Limit > 0 {
		fmt.Fprintf(b, `<tspan font-size="11" font-weight="400" class="over"> – – limit %s</tspan>`, Number(c.Limit))
	}
	fmt.Fprint(b, "</text>\n")
	if c.drawable() {
		for i := range c.Series {
			x, y := i%columns*panelWidth, pictureTop+i/columns*panelHeight
			fmt.Fprintf(b, `<g transform="translate(%d %d)">`+"\n", x, y)
			c.panel(b, i)
			fmt.Fprint(b, "</g>\n")
		}
	}
	fmt.Fprint(b, "</svg>\n")
	return b.Flush()
}

// colour gives a series the same colour in all charts that have the same others.
func (c *Chart) colour(i int) string {
	if c.Series[i].Background {
		return "#8b949e"
	}
	n := 0
	for _, s := range c.Series[:i] {
		if !s.Background {
			n++
		}
	}
	return palette[n%len(palette)]
}

// panel draws one series.
func (c *Chart) panel(w io.Writer, i int) {
	s, colour := &c.Series[i], c.colour(i)
	step := niceStep(c.top())
	top := max(1, math.Ceil(c.top()/step)) * step
	y := func(v float64) float64 { return panelTop + plotHeight*(1-v/top) }
	fmt.Fprintf(w, `<text class="head" x="%d" y="22">%s</text>`, panelLeft, html.EscapeString(s.Name))
	class := ""
	if c.Limit > 0 && s.most() > c.Limit {
		class = ` class="over"`
	}
	fmt.Fprintf(w, `<text%s x="%d" y="22" text-anchor="end">at most %s</text>`+"\n", class, panelWidth-panelRight, Number(s.most()))
	for v := 0.0; v <= top; v += step {
		fmt.Fprintf(w, `<path class="grid" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			panelLeft, y(v), plotWidth, panelLeft-6, y(v)+4, Number(v))
	}
	for n := range 5 {
		at := c.X[0] + (c.end()-c.X[0])*float64(n)/4
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, panelLeft+plotWidth*n/4, panelHeight-8, c.instant(at))
	}
	line := c.line(s, y)
	fmt.Fprintf(w, "\n"+`<path fill="%s" fill-opacity=".16" d="M%d %.1fL%sV%.1fZ"/><path stroke="%s" stroke-width="1.8" stroke-linejoin="round" fill="none" d="M%s"/>`,
		colour, panelLeft, y(0), line, y(0), colour, line)
	if c.Limit > 0 {
		fmt.Fprintf(w, `<path class="limit" d="M%d %.1fh%d"/>`, panelLeft, y(c.Limit), plotWidth)
	}
	fmt.Fprintf(w, `<path class="axis" d="M%d %.1fh%d"/>`+"\n", panelLeft, y(0), plotWidth)
}

// line is the way through the points of a series that are not on a straight line
// with their neighbours.
func (c *Chart) line(s *Series, y func(float64) float64) string {
	var b strings.Builder
	first, length := c.X[0], c.end()-c.X[0]
	for i, v := range s.Values {
		if i > 0 && i < len(s.Values)-1 && v == s.Values[i-1] && v == s.Values[i+1] {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.1f,%.1f", panelLeft+plotWidth*(c.X[i]-first)/length, y(v))
	}
	return b.String()
}

// niceStep is a round distance of lines, so that up to four reach the top.
func niceStep(top float64) float64 {
	if top <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(top/4)))
	for _, factor := range []float64{1, 2, 2.5, 5} {
		if factor*unit*4 >= top {
			return max(1, factor*unit)
		}
	}
	return max(1, 10*unit)
}
