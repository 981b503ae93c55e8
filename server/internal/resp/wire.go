package resp

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Bounds of a request.
const (
	maxArgs   = 64
	maxLine   = 4 << 10 // bytes of a command on a line, its end included
	maxLength = 32      // bytes of a line that announces a length, its end included
	// maxRequest is the size of the largest request: what a connection can occupy before AUTH.
	maxRequest = 66 << 10
)

// A protocolError is a request without a known end. It ends the connection.
type protocolError string

const errTooBig protocolError = "too big request"

// Error returns the text in the words of Redis.
func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// parse parses the request at the beginning of input, appends its arguments, which are
// parts of the input, and returns its size; 0 if it is incomplete. It does not allocate
// if args has room for maxArgs.
func parse(input []byte, args [][]byte) ([][]byte, int, error) {
	if len(input) == 0 {
		return args, 0, nil
	}
	if input[0] != '*' {
		return parseLine(input, args)
	}
	count, size, err := parseLength(input, maxArgs, "invalid multibulk length")
	if size == 0 || err != nil {
		return args, 0, err
	}
	for range count {
		bulk, n, err := parseBulk(input[size:], maxRequest-size)
		if n == 0 || err != nil {
			return args, 0, err
		}
		args = append(args, bulk)
		size += n
	}
	return args, size, nil
}

// parseBulk parses an argument that has room for so many bytes.
func parseBulk(input []byte, room int) (bulk []byte, size int, err error) {
	switch {
	case len(input) == 0 && room > 0:
		return nil, 0, nil
	case len(input) == 0:
		return nil, 0, errTooBig
	}
	if input[0] != '$' {
		return nil, 0, protocolError(fmt.Sprintf("expected '$', got %q", input[0]))
	}
	length, start, err := parseLength(input, maxRequest, "invalid bulk length")
	end := start + length
	if err == nil && (start > 0 && end+2 > room || start == 0 && len(input) >= room) {
		return nil, 0, errTooBig
	}
	if start == 0 || err != nil || len(input) < end+2 {
		return nil, 0, err
	}
	if input[end] != '\r' || input[end+1] != '\n' {
		return nil, 0, protocolError("a bulk string goes on behind its length")
	}
	return input[start:end:end], end + 2, nil
}

// parseLength parses a line of a sign and a length.
func parseLength(input []byte, most int, wrong protocolError) (length, size int, err error) {
	end := bytes.IndexByte(input[:min(len(input), maxLength)], '\n')
	if end < 0 && len(input) < maxLength {
		return 0, 0, nil
	}
	if end < 2 || input[end-1] != '\r' {
		return 0, 0, wrong
	}
	digits := input[1 : end-1]
	n, ok := integer(digits)
	if !ok || digits[0] == '+' || digits[0] == '-' || n > int64(most) {
		return 0, 0, wrong
	}
	return int(n), end + 1, nil
}

// parseLine parses a command as people type it. It refuses quotes: as a part of a key
// they would make another key than other clients do.
func parseLine(input []byte, args [][]byte) ([][]byte, int, error) {
	end := bytes.IndexByte(input[:min(len(input), maxLine)], '\n')
	if end < 0 {
		if len(input) >= maxLine {
			return args, 0, protocolError("too big inline request")
		}
		return args, 0, nil
	}
	line := bytes.TrimSuffix(input[:end], []byte("\r"))
	if bytes.ContainsAny(line, `"'`) {
		return args, 0, protocolError("quotes in an inline request")
	}
	for {
		line = bytes.TrimLeft(line, " \t")
		if len(line) == 0 {
			return args, end + 1, nil
		}
		if len(args) == maxArgs {
			return args, 0, protocolError("too many arguments in an inline request")
		}
		n := bytes.IndexAny(line, " \t")
		if n < 0 {
			n = len(line)
		}
		args = append(args, line[:n:n])
		line = line[n:]
	}
}

// maxDigits is the length of the longest number that is parsed.
const maxDigits = 20

// integer parses a decimal number.
func integer(text []byte) (int64, bool) {
	if len(text) > maxDigits {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// A writer collects replies in the protocol version of the client.
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

// fail writes an error, whose first word is its class.
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

// printable replaces control characters, which would end the line.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

// shownBytes bounds what an error repeats of the request.
const shownBytes = 40

// shown returns a part of the request for an error.
func shown(text []byte) string {
	if len(text) > shownBytes {
		return strconv.QuoteToASCII(string(text[:shownBytes])) + "…"
	}
	return strconv.QuoteToASCII(string(text))
}
