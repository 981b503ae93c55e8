package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

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
