package accesslog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
)

// Format is how the lines of a log are written.
type Format uint8

const (
	// Auto finds out from the first lines. The zero value.
	Auto Format = iota
	// Combined is nginx's and Apache's combined format, and the common one.
	Combined
	// JSON is an object a line.
	JSON
	// Envoy is Envoy's default format.
	Envoy
)

var formatNames = []string{"auto", "combined", "json", "envoy"}

// String returns the format's name.
func (f Format) String() string { return formatNames[min(int(f), len(formatNames)-1)] }

// FormatNames lists the names of all formats, for messages.
func FormatNames() string { return strings.Join(formatNames, ", ") }

// ParseFormat returns the format of that name. The error is a
// [*weir.InvalidError].
func ParseFormat(name string) (Format, error) {
	if i := slices.Index(formatNames, name); i >= 0 {
		return Format(i), nil
	}
	return 0, &weir.InvalidError{Field: "input", Value: fmt.Sprintf("%q", name), Want: "one of " + FormatNames()}
}

// A parser reads the lines of one log.
type parser interface {
	// parse fills in the record, or describes the mistake in the line.
	parse(line string, r *Record) error
}

func newParser(f Format, timeField string) parser {
	switch f {
	case JSON:
		return &jsonParser{timeField: timeField}
	case Envoy:
		return &envoyParser{}
	default:
		return &combinedParser{}
	}
}

// detect names the format of a line, Auto for none. Whether the line is whole is
// for its parser to say.
func detect(line string) Format {
	switch {
	case strings.HasPrefix(line, "{"):
		return JSON
	case strings.HasPrefix(line, "["):
		return Envoy
	}
	var r Record
	if new(combinedParser).parse(line, &r) == nil {
		return Combined
	}
	return Auto
}

// A scanner takes a line apart from its left.
type scanner struct{ rest string }

// word returns the text before the next space.
func (s *scanner) word() string {
	s.rest = strings.TrimLeft(s.rest, " ")
	word, rest, _ := strings.Cut(s.rest, " ")
	s.rest = rest
	return word
}

// between returns the text between two marks, the first of which is next.
func (s *scanner) between(open, closing byte) (string, bool) {
	s.rest = strings.TrimLeft(s.rest, " ")
	if len(s.rest) == 0 || s.rest[0] != open {
		return "", false
	}
	end := 1
	for {
		i := strings.IndexByte(s.rest[end:], closing)
		if i < 0 {
			return "", false
		}
		end += i
		if !escaped(s.rest[1:end]) {
			break
		}
		end++
	}
	text := s.rest[1:end]
	s.rest = s.rest[end+1:]
	return unescape(text), true
}

func (s *scanner) quoted() (string, bool) { return s.between('"', '"') }

// escaped says whether what comes after the text is escaped: an odd number of
// backslashes stand at its end.
func escaped(text string) bool {
	n := len(text) - len(strings.TrimRight(text, `\`))
	return n%2 == 1
}

// unescape reverses the escapes of nginx and Apache for quotes, backslashes and bytes
// that cannot be printed.
func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		if text[i] == 'x' && i+2 < len(text) {
			if high, low := unhex(text[i+1]), unhex(text[i+2]); high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func unhex(c byte) int {
	if c >= 'A' && c <= 'F' {
		c += 'a' - 'A'
	}
	return strings.IndexByte("0123456789abcdef", c)
}
