// Package uplot is the library that draws charts in a browser, uPlot 1.6.32
// (https://github.com/leeoniya/uPlot), as it was published.
package uplot

import _ "embed"

var (
	// JS defines uPlot.
	//go:embed uPlot.iife.min.js
	JS string
	// CSS is what its charts look like.
	//go:embed uPlot.min.css
	CSS string
	// Licence asks to be where the two above are.
	//go:embed LICENSE
	Licence string
)
