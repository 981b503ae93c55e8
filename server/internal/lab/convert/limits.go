package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir"
)

// maxNameBytes is the length of the longest name of a zone, or of a key's variables.
const maxNameBytes = 128

// A zone is a limit_req_zone: a rate for each value of a key.
type zone struct {
	at   position
	name string
	key  key
	text string // as it was written
	rate int64
	unit string
}

// A key is the text whose values a zone counts.
type key struct {
	text      string
	variables []string // in order, without "$"
}

// A use is a limit_req: a zone where it applies.
type use struct {
	at    position
	zone  *zone
	text  string
	from  *directive
	burst int64
	delay string // "", "nodelay", or the number of requests that are not delayed
}

// newKey finds the variables of a zone's key. A binary address counts as its text.
func newKey(text string) key {
	k := key{text: text}
	replaceVariables(text, func(name string) string {
		if name == "binary_remote_addr" {
			name = "remote_addr"
		}
		if !slices.Contains(k.variables, name) {
			k.variables = append(k.variables, name)
		}
		return name
	})
	return k
}

// replaceVariables calls rename for each variable in a text and writes the name that it
// returns in its place.
func replaceVariables(text string, rename func(name string) string) string {
	parts := strings.Split(text, "$")
	var b strings.Builder
	b.WriteString(parts[0])
	for _, part := range parts[1:] {
		name, rest := part, ""
		inner, braced := strings.CutPrefix(part, "{")
		if braced {
			name, rest, _ = strings.Cut(inner, "}")
		} else if end := strings.IndexFunc(part, func(r rune) bool { return !named(r) }); end >= 0 {
			name, rest = part[:end], part[end:]
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !named(r) }) {
			b.WriteString("$" + part) // not a variable
			continue
		}
		name = rename(name)
		if braced {
			name = "{" + name + "}"
		}
		b.WriteString("$" + name + rest)
	}
	return b.String()
}

// named reports whether a name can have the character.
func named(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// newZone reads a limit_req_zone.
func newZone(d *directive) (*zone, error) {
	z := &zone{at: d.at, text: strings.Join(d.words, " "), rate: 1, unit: "second"}
	if len(d.words) < 3 {
		return nil, fmt.Errorf("%s: want a key, zone= and rate=", z.text)
	}
	z.key = newKey(d.words[1])
	for _, word := range d.words[2:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case "rate":
			if err := z.setRate(value); err != nil {
				return nil, err
			}
		case "sync":
		default:
			return nil, fmt.Errorf("%s: %s is not known", z.text, word)
		}
	}
	return z, z.check()
}

// check finds what no rule can carry.
func (z *zone) check() error {
	printable := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	switch {
	case z.name == "":
		return fmt.Errorf("%s: zone= is missing", z.text)
	case len(z.name) > maxNameBytes || strings.ContainsFunc(z.name, func(r rune) bool { return !printable(r) }):
		return fmt.Errorf("zone=%q: want at most %d bytes of printable text", z.name, maxNameBytes)
	case len(z.key.entry()) > maxNameBytes:
		return fmt.Errorf("a key with variables of %d bytes: want at most %d", len(z.key.entry()), maxNameBytes)
	}
	return nil
}

func (z *zone) setRate(text string) error {
	number, perSecond := strings.CutSuffix(text, "r/s")
	number, perMinute := strings.CutSuffix(number, "r/m")
	if perMinute {
		z.unit = "minute"
	}
	rate, err := strconv.ParseInt(number, 10, 64)
	if err != nil || perSecond == perMinute || rate < 1 || rate > weir.MaxCost {
		return fmt.Errorf("rate=%s: want 1r/s … %dr/s, or r/m", text, weir.MaxCost)
	}
	z.rate = rate
	return nil
}

// newUse reads a limit_req.
func newUse(d *directive, zones map[string]*zone) (use, error) {
	u := use{at: d.at, text: strings.Join(d.words, " "), from: d}
	for _, word := range d.words[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "zone":
			if u.zone = zones[value]; u.zone == nil {
				return u, fmt.Errorf("%s: no limit_req_zone is called %s", u.text, value)
			}
		case "burst":
			burst, err := strconv.ParseInt(value, 10, 64)
			if err != nil || burst < 0 || burst >= weir.MaxCost {
				return u, fmt.Errorf("%s: want 0 … %d", word, weir.MaxCost-1)
			}
			u.burst = burst
		case "nodelay":
			u.delay = "nodelay"
		case "delay":
			u.delay = value
		default:
			return u, fmt.Errorf("%s: %s is not known", u.text, word)
		}
	}
	if u.zone == nil {
		return u, fmt.Errorf("%s: zone= is missing", u.text)
	}
	return u, nil
}
