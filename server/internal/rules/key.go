package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Keys look like
//
//	shop/user=42,path=/login;minute
//	shop/user=42;user;daily
//	shop/user=42;user#2
//	shop/user=42;user#budget;daily
//	shop/;#budget;daily
//	shop/user=42;#rule
//
// that is the domain, the entries as requested, and behind ";" the unit of a rule
// without algorithm, or the path of a rule with one and its limit's name or
// place. A budget has the entries and the path of the descriptor that declares it, and
// its name; one of the domain has none but the name. An owner has no path, so that it stays
// the same when other rules apply to the entries. Every text in them is escaped, so that
// different things have different keys whatever bytes they are made of.
//
// If the text before ";" is longer than maxPlainBytes, it is replaced by a digest,
// "sha256:…", which has no slash.

// maxPlainBytes is the length of the longest domain with entries that a key shows.
const maxPlainBytes = 2 << 10

// ownerSuffix is what owners end in.
const ownerSuffix = ";#rule"

const hexDigits = "0123456789ABCDEF"

// separators are the bytes that mean something in keys, paths and Redis.
const separators = "%/,=;#*{}"

// reserved marks the bytes that are escaped everywhere.
var reserved = func() (table [utf8.RuneSelf]bool) {
	for b := range table {
		table[b] = b <= ' ' || b == 0x7f || strings.IndexByte(separators, byte(b)) >= 0
	}
	return table
}()

// appendEscaped appends a text in which nothing but printable characters and
// none of the reserved bytes, the kept ones apart, remain: %XX stands for them.
func appendEscaped(to []byte, text, kept string) []byte {
	for i := 0; i < len(text); {
		plain := plainBytes(text[i:])
		to = append(to, text[i:i+plain]...)
		if i += plain; i == len(text) {
			break
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case size == 1 && strings.IndexByte(kept, text[i]) >= 0, size > 1 && unicode.IsPrint(r):
			to = append(to, text[i:i+size]...)
		default:
			for _, b := range []byte(text[i : i+size]) {
				to = append(to, '%', hexDigits[b>>4], hexDigits[b&15])
			}
		}
		i += size
	}
	return to
}

// plainBytes is how many bytes a text begins with that are never escaped.
func plainBytes(text string) int {
	for i := range len(text) {
		if b := text[i]; b >= utf8.RuneSelf || reserved[b] {
			return i
		}
	}
	return len(text)
}

// appendEntry appends an entry as requested. Slashes need no escape behind the
// one that ends the domain.
func appendEntry(to []byte, e Entry) []byte {
	to = append(appendEscaped(to, e.Key, "/"), '=')
	return appendEscaped(to, e.Value, "/")
}

// pattern is an entry as the rules file has it. Its stars stay, which a
// requested entry's do not, and there is no "=" where it has no value.
func pattern(e Entry) string {
	text := appendEscaped(nil, e.Key, "/*")
	if e.Value != "" {
		text = appendEscaped(append(text, '='), e.Value, "/*")
	}
	return string(text)
}

// bounded is the key or the id that two texts make, or a digest of one that no
// store would take. The digest has no slash, which every other one has.
func bounded(base, suffix string, most int) string {
	text := base + suffix
	if len(text) <= most {
		return text
	}
	return string(appendDigest(nil, []byte(text)))
}

// appendDigest appends the digest of a text, which may lie where it is appended.
func appendDigest(to, text []byte) []byte {
	sum := sha256.Sum256(text)
	return hex.AppendEncode(append(to, "sha256:"...), sum[:])
}

// ParseKey returns the domain and the entries of a key that a rule charges, and
// false for any other and for one that is only a digest.
func ParseKey(key string) (domain string, entries []Entry, ok bool) {
	asked, _, ended := strings.Cut(key, ";")
	domain, listed, ok := strings.Cut(asked, "/")
	if !ended || !ok {
		return "", nil, false
	}
	if domain, ok = unescaped(domain); !ok {
		return "", nil, false
	}
	if listed == "" {
		return domain, nil, true
	}
	for text := range strings.SplitSeq(listed, ",") {
		name, value, found := strings.Cut(text, "=")
		name, ofName := unescaped(name)
		value, ofValue := unescaped(value)
		if !found || !ofName || !ofValue {
			return "", nil, false
		}
		entries = append(entries, Entry{Key: name, Value: value})
	}
	return domain, entries, true
}

// BudgetOf returns the name of the budget that a key of [ParseKey] belongs to; empty for a
// key of a single rule.
func BudgetOf(key string) string {
	_, charged, _ := strings.Cut(key, ";")
	name := ""
	if path, shares := strings.CutSuffix(charged, "#shares"); shares {
		name = path[strings.LastIndexByte(path, ',')+1:]
	} else {
		_, name, _ = strings.Cut(charged, "#budget;")
	}
	name, _ = unescaped(name)
	return name
}

// unescaped undoes appendEscaped.
func unescaped(text string) (string, bool) {
	plain, err := url.PathUnescape(text)
	return plain, err == nil
}
