package clientip

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// forwardedFor lists the entries of all X-Forwarded-For headers.
func forwardedFor(h http.Header) func(yield func(netip.Addr) bool) {
	return backwards(h["X-Forwarded-For"], func(string) int { return -1 }, parseAddr)
}

// forwarded lists the "for" addresses of all Forwarded headers.
func forwarded(h http.Header) func(yield func(netip.Addr) bool) {
	return backwards(h["Forwarded"], openingQuote, parseElement)
}

// backwards lists comma-separated entries from the right, so that nothing further left,
// such as a quote that is never closed, affects the entries that proxies appended.
// opening returns the index where the string that ends at a closing quote begins.
func backwards(values []string, opening func(string) int, parse func(string) (netip.Addr, bool)) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		for i := len(values) - 1; i >= 0; i-- {
			for rest, more := values[i], true; more; {
				var entry string
				rest, entry, more = cutLast(rest, ',', opening)
				if addr, _ := parse(entry); !yield(addr) {
					return
				}
			}
		}
	}
}

// cutLast cuts s at its last separator outside of quotes.
func cutLast(s string, separator byte, opening func(string) int) (before, after string, found bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == separator {
			return s[:i], s[i+1:], true
		}
		if s[i] != '"' {
			continue
		}
		if open := opening(s[:i]); open >= 0 {
			i = open
		}
	}
	return "", s, false
}

// openingQuote returns the index of the last quote in s that no backslash
// escapes, -1 if there is none.
func openingQuote(s string) int {
	for {
		i := strings.LastIndexByte(s, '"')
		if i < 0 {
			return -1
		}
		slashes := i - len(strings.TrimRight(s[:i], `\`))
		if slashes%2 == 0 {
			return i
		}
		s = s[:i]
	}
}

// parseElement returns the address of an element of Forwarded.
func parseElement(element string) (addr netip.Addr, ok bool) {
	for rest, more := element, true; more; {
		var pair string
		rest, pair, more = cutLast(rest, ';', openingQuote)
		name, value, _ := strings.Cut(strings.Trim(pair, " \t"), "=")
		if !strings.EqualFold(name, "for") {
			continue
		}
		if addr.IsValid() {
			return netip.Addr{}, false
		}
		if quoted, isOpen := strings.CutPrefix(value, `"`); isOpen {
			value, isOpen = strings.CutSuffix(quoted, `"`)
			if !isOpen {
				return netip.Addr{}, false
			}
		}
		if addr, ok = parseAddr(value); !ok {
			return netip.Addr{}, false
		}
	}
	return addr, ok
}

// parseAddr parses an address with or without port, brackets and zone. It rejects
// unspecified addresses.
func parseAddr(s string) (netip.Addr, bool) {
	host := strings.Trim(s, " \t")
	if bracketed, ok := strings.CutPrefix(host, "["); ok {
		inside, port, closed := strings.Cut(bracketed, "]")
		if !closed || !strings.Contains(inside, ":") || port != "" && !isPort(port) {
			return netip.Addr{}, false
		}
		host = inside
	} else if i := strings.IndexByte(host, ':'); i >= 0 && strings.Contains(host[:i], ".") {
		if !isPort(host[i:]) {
			return netip.Addr{}, false
		}
		host = host[:i]
	}
	addr, err := netip.ParseAddr(host)
	addr = addr.Unmap().WithZone("")
	if err != nil || addr.IsUnspecified() {
		return netip.Addr{}, false
	}
	return addr, true
}

func isPort(s string) bool {
	digits, ok := strings.CutPrefix(s, ":")
	_, err := strconv.ParseUint(digits, 10, 16)
	return ok && err == nil
}
