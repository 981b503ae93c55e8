package ratelimitheader

import (
	"strings"

	"github.com/weirlimit/weir"
)

// nameOf is the limit's name, or else its text form.
func nameOf(l *weir.Limit) string {
	if l.Name != "" {
		return l.Name
	}
	return l.String()
}

// PolicyName is the limit's name in the characters that a header's string may
// hold.
func PolicyName(l *weir.Limit) string { return policyName(nameOf(l)) }

// policyName spells a name in the characters that a header's string may hold: all
// others, and the percent sign, become %XX, so that two names never become one.
func policyName(name string) string {
	const hex = "0123456789ABCDEF"
	if strings.IndexFunc(name, func(c rune) bool { return c < ' ' || c > '~' || c == '%' }) < 0 {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// appendQuoted appends policyName as a string of a structured field.
func appendQuoted(text []byte, name string) []byte {
	text = append(text, '"')
	for _, c := range []byte(policyName(name)) {
		if c == '"' || c == '\\' {
			text = append(text, '\\')
		}
		text = append(text, c)
	}
	return append(text, '"')
}
