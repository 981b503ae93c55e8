package resp

import (
	"strconv"
	"strings"
)

// A writer collects replies in the protocol that the client speaks.
type writer struct {
	out   []byte
	proto int // 2 or 3
}

func (w *writer) line(kind byte, text string) {
	w.out = append(w.out, kind)
	w.out = append(w.out, text...)
	w.out = append(w.out, '\r', '\n')
}

func (w *writer) count(kind byte, n int64) {
	w.out = append(w.out, kind)
	w.out = strconv.AppendInt(w.out, n, 10)
	w.out = append(w.out, '\r', '\n')
}

func (w *writer) simple(text string) { w.line('+', text) }

// fail writes an error; its first word is its class.
func (w *writer) fail(text string) { w.line('-', strings.Map(printable, text)) }

func (w *writer) integer(n int64) { w.count(':', n) }

func (w *writer) array(n int) { w.count('*', int64(n)) }

func (w *writer) bulk(text string) {
	w.count('$', int64(len(text)))
	w.out = append(w.out, text...)
	w.out = append(w.out, '\r', '\n')
}

// pairs begins a map of n pairs.
func (w *writer) pairs(n int) {
	if w.proto == 3 {
		w.count('%', int64(n))
		return
	}
	w.array(2 * n)
}

func (w *writer) null() {
	if w.proto == 3 {
		w.line('_', "")
		return
	}
	w.line('$', "-1")
}

// printable keeps a text on its line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

// shownBytes bounds what an error repeats of the request.
const shownBytes = 40

// shown is a part of the request as an error repeats it.
func shown(text []byte) string {
	if len(text) > shownBytes {
		return strconv.QuoteToASCII(string(text[:shownBytes])) + "…"
	}
	return strconv.QuoteToASCII(string(text))
}
