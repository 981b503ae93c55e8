package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirlimit/weir/server/bench/measure"
)

// plots draws the decisions a second of some scenarios, with 256 callers.
func (r *results) plots(folder string) error {
	for _, p := range []struct {
		file, scenario string
		rows           []measure.Row
	}{
		{"bench-hot.svg", hotGranted, r.Redis},
		{"bench-refused.svg", hotRefused, r.Redis},
		{"bench-uniform.svg", uniformKeys, r.Redis},
		{"bench-grpc.svg", "server over gRPC, " + hotGranted, r.Servers},
	} {
		picture := bars(p.rows, p.scenario, 256)
		if picture == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, p.file), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const (
	barHeight, barGap = 18, 8
	labelWidth        = 170
	plotWidth         = 420
)

// bars draws one scenario as bars on a logarithmic scale; empty if there is
// nothing to draw.
func bars(rows []measure.Row, name string, callers int) string {
	var b strings.Builder
	y, floor, span := 24, 2.0, 6.0 // 10² to 10⁸
	for _, who := range order(rows, contestant) {
		row := find(rows, name, who, callers)
		if row == nil {
			continue
		}
		v, _, _ := row.Median(perSecond)
		class, width := "peer", plotWidth*(math.Log10(v)-floor)/span
		if strings.HasPrefix(who, best) {
			class = "own"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/><text x="%.1f" y="%d">%s</text>`+"\n",
			labelWidth-6, y+13, html.EscapeString(who), class, labelWidth, y, width, barHeight, labelWidth+width+5, y+13, short(v))
		y += barHeight + barGap
	}
	if b.Len() == 0 {
		return ""
	}
	var grid strings.Builder
	for i := 0; i <= int(span); i++ {
		x := labelWidth + float64(plotWidth*i)/span
		fmt.Fprintf(&grid, `<path class="grid" d="M%.1f 20V%d"/>`, x, y)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<title>Decisions a second: %s, %d callers (logarithmic)</title>
<style>text{fill:#888} .grid{stroke:#8884;fill:none} .own{fill:#2563eb} .peer{fill:#9ca3af}</style>
%s
%s<text x="6" y="14">decisions a second, %s, %d callers; a line is ten times the one before</text>
</svg>
`, labelWidth+plotWidth+60, y+8, html.EscapeString(name), callers, grid.String(), b.String(), html.EscapeString(name), callers)
}
