package resp

import (
	"bytes"
	"fmt"
	"strconv"
)

// The bounds of a request, arrays and lines alike.
const (
	maxArgs   = 16
	maxBulk   = 4 << 10 // bytes of an argument
	maxLine   = 4 << 10 // bytes of a command on a line, its end included
	maxLength = 32      // bytes of a line that announces a length, its end included
	// maxRequest is what the longest request needs.
	maxRequest = maxLength + maxArgs*(maxLength+maxBulk+2)
)

// A protocolError is a request that has no end to wait for. The connection ends
// with it.
type protocolError string

// Error says it as Redis does.
func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// parse reads the request that input begins with, appends its arguments, which
// are parts of the input, and returns its size; 0 if it has not arrived yet. It
// allocates nothing if args has room for maxArgs.
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
		bulk, n, err := parseBulk(input[size:])
		if n == 0 || err != nil {
			return args, 0, err
		}
		args = append(args, bulk)
		size += n
	}
	return args, size, nil
}

func parseBulk(input []byte) (bulk []byte, size int, err error) {
	if len(input) == 0 {
		return nil, 0, nil
	}
	if input[0] != '$' {
		return nil, 0, protocolError(fmt.Sprintf("expected '$', got %q", input[0]))
	}
	length, start, err := parseLength(input, maxBulk, "invalid bulk length")
	end := start + length
	if start == 0 || err != nil || len(input) < end+2 {
		return nil, 0, err
	}
	if input[end] != '\r' || input[end+1] != '\n' {
		return nil, 0, protocolError("a bulk string goes on behind its length")
	}
	return input[start:end:end], end + 2, nil
}

// parseLength reads a line of a sign and a length.
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

// parseLine reads a command as people type it. Quotes are refused rather than
// taken for a part of a key, which other clients would spell without them.
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

// maxDigits is the length of the longest number that is looked at.
const maxDigits = 20

// integer reads a decimal number.
func integer(text []byte) (int64, bool) {
	if len(text) > maxDigits {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
