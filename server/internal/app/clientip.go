package app

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
)

// strategies are the names that parseClientIP accepts, each with the form of its argument.
var strategies = []struct {
	name, argument string
	parse          func(argument string) (clientip.Strategy, error)
}{
	{"remote_addr", "", func(string) (clientip.Strategy, error) { return clientip.RemoteAddr(), nil }},
	{"single_header", "NAME[,CIDR…]", parseHeader},
	{"trusted_ranges", "CIDR,…", ofRanges(clientip.TrustedRanges)},
	{"trusted_hops", "N", ofHops(clientip.TrustedHops)},
	{"forwarded_ranges", "CIDR,…", ofRanges(clientip.ForwardedRanges)},
	{"forwarded_hops", "N", ofHops(clientip.ForwardedHops)},
}

// parseClientIP returns the strategy for a setting: remote_addr,
// single_header:NAME[,CIDR…], trusted_ranges:CIDR,…, trusted_hops:N,
// forwarded_ranges:CIDR,… or forwarded_hops:N. An address in place of a CIDR is a
// range of one address. The error is a [*weir.InvalidError].
func parseClientIP(text string) (clientip.Strategy, error) {
	name, argument, given := strings.Cut(text, ":")
	for _, s := range strategies {
		if s.name == name && given == (s.argument != "") {
			return s.parse(argument)
		}
	}
	return clientip.Strategy{}, &weir.InvalidError{Field: "strategy", Value: strconv.Quote(text), Want: "one of " + clientIPSpellings()}
}

// clientIPSpellings lists the settings that parseClientIP accepts, for messages.
func clientIPSpellings() string {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		names[i] = s.name
		if s.argument != "" {
			names[i] += ":" + s.argument
		}
	}
	return strings.Join(names, ", ")
}

func parseHeader(argument string) (clientip.Strategy, error) {
	name, list, several := strings.Cut(argument, ",")
	if !several {
		return clientip.SingleHeader(name)
	}
	prefixes, err := parsePrefixes(list)
	if err != nil {
		return clientip.Strategy{}, err
	}
	return clientip.SingleHeader(name, prefixes...)
}

func ofRanges(build func(...netip.Prefix) (clientip.Strategy, error)) func(string) (clientip.Strategy, error) {
	return func(argument string) (clientip.Strategy, error) {
		prefixes, err := parsePrefixes(argument)
		if err != nil {
			return clientip.Strategy{}, err
		}
		return build(prefixes...)
	}
}

func ofHops(build func(int) (clientip.Strategy, error)) func(string) (clientip.Strategy, error) {
	return func(argument string) (clientip.Strategy, error) {
		n, err := strconv.Atoi(argument)
		if err != nil {
			return clientip.Strategy{}, &weir.InvalidError{Field: "hops", Value: strconv.Quote(argument), Want: "the number of proxies that append to the header, at least 1"}
		}
		return build(n)
	}
}

func parsePrefixes(list string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for part := range strings.SplitSeq(list, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if addr, alone := netip.ParseAddr(strings.TrimSpace(part)); alone == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, &weir.InvalidError{Field: "prefix", Value: strconv.Quote(part), Want: "a prefix such as 10.0.0.0/8, or an address"}
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
