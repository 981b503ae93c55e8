package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"strings"

	"github.com/weirlimit/weir/server/internal/uplot"
)

var (
	//go:embed chart.js
	chartJS string
	//go:embed page.css
	pageCSS string
	//go:embed page.html
	pageHTML string
)

var page = template.Must(template.New("page").Funcs(template.FuncMap{"group": group}).Parse(pageHTML))

// WriteHTML writes the page as one file with everything that it needs in it. Its
// content security policy forbids it to load anything and to run any script but
// its own.
func (p *Page) WriteHTML(w io.Writer) error {
	// Marshal escapes what could end a script element.
	data, err := json.Marshal(p.Charts)
	if err != nil {
		return err
	}
	return page.Execute(w, map[string]any{
		"Page":    p,
		"Policy":  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src " + source(uplot.JS) + " " + source(chartJS),
		"Styles":  template.HTML("<style>/* uPlot:\n" + uplot.Licence + "*/" + uplot.CSS + pageCSS + "</style>"),
		"Data":    template.HTML(`<script type="application/json" id="charts">` + string(data) + "</script>"),
		"Scripts": template.HTML("<script>" + uplot.JS + "</script><script>" + chartJS + "</script>"),
	})
}

// group separates the thousands of a whole number; other text stays as it is.
func group(text string) string {
	if len(text) < 4 || strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		return text
	}
	var b strings.Builder
	for i, digit := range text {
		if i > 0 && (len(text)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// source names a script in a content security policy by what it says.
func source(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
