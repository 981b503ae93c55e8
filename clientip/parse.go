package clientip

import (
	"net/netip"
	"strconv"
	"strings"
)

// strategies are the names that [Parse] accepts, each with the form of its argument.
var strategies = []struct {
	name, argument string
	parse          func(argument string) (Strategy, error)
}{
	{"remote_addr", "", func(string) (Strategy, error) { return RemoteAddr(), nil }},
	{"single_header", "NAME[,CIDR…]", parseHeader},
	{"trusted_ranges", "CIDR,…", ofRanges(TrustedRanges)},
	{"trusted_hops", "N", ofHops(TrustedHops)},
	{"forwarded_ranges", "CIDR,…", ofRanges(ForwardedRanges)},
	{"forwarded_hops", "N", ofHops(ForwardedHops)},
}

// Parse returns the strategy for a setting: remote_addr,
// single_header:NAME[,CIDR…], trusted_ranges:CIDR,…, trusted_hops:N,
// forwarded_ranges:CIDR,… or forwarded_hops:N. An address in place of a CIDR is a
// range of one address. The error is a [*weir.InvalidError].
func Parse(text string) (Strategy, error) {
	name, argument, given := strings.Cut(text, ":")
	for _, s := range strategies {
		if s.name == name && given == (s.argument != "") {
			return s.parse(argument)
		}
	}
	return Strategy{}, invalid("strategy", strconv.Quote(text), "one of "+Spellings())
}

// Spellings lists the settings that [Parse] accepts, for messages.
func Spellings() string {
	names := make([]string, len(strategies))
	for i, s := range strategies {
		names[i] = s.name
		if s.argument != "" {
			names[i] += ":" + s.argument
		}
	}
	return strings.Join(names, ", ")
}

func parseHeader(argument string) (Strategy, error) {
	name, list, several := strings.Cut(argument, ",")
	if !several {
		return SingleHeader(name)
	}
	prefixes, err := parsePrefixes(list)
	if err != nil {
		return Strategy{}, err
	}
	return SingleHeader(name, prefixes...)
}

func ofRanges(build func(...netip.Prefix) (Strategy, error)) func(string) (Strategy, error) {
	return func(argument string) (Strategy, error) {
		prefixes, err := parsePrefixes(argument)
		if err != nil {
			return Strategy{}, err
		}
		return build(prefixes...)
	}
}

func ofHops(build func(int) (Strategy, error)) func(string) (Strategy, error) {
	return func(argument string) (Strategy, error) {
		n, err := strconv.Atoi(argument)
		if err != nil {
			return Strategy{}, invalid("hops", strconv.Quote(argument), "the number of proxies that append to the header, at least 1")
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
			return nil, invalid("prefix", strconv.Quote(part), "a prefix such as 10.0.0.0/8, or an address")
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}
