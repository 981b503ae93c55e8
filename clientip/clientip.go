// Package clientip finds the address of the client that sent an HTTP request. The only
// safe default is the other end of the connection, because clients can write any header.
// A program therefore names the proxies in front of it, with exactly one [Strategy].
//
// Proxies append to the right of X-Forwarded-For and Forwarded. Entries to the left of
// the outermost trusted proxy's entry can be invented by the client and are never used.
package clientip

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// ErrNoAddress means that neither the trusted headers nor the connection have an IP
// address. Connections over a Unix socket have none.
var ErrNoAddress = errors.New("clientip: no client address")

// A Strategy decides which headers to trust for the client's address. The zero value is
// [RemoteAddr]. It is immutable and safe for concurrent use.
type Strategy struct {
	// claimed returns the address in the headers, or false for the peer's. Nil: always
	// the peer's.
	claimed func(h http.Header, peer netip.Addr) (netip.Addr, bool)
	bits    int // of an IPv6 address that make its key; 0: defaultIPv6Bits
}

// RemoteAddr trusts only the connection. It is for servers that clients reach directly.
func RemoteAddr() Strategy { return Strategy{} }

// TrustedRanges trusts proxies whose addresses are in the prefixes: the client is the
// rightmost entry of X-Forwarded-For that is outside of them. It is the peer if the peer
// is no such proxy, if no entry remains, or if an entry does not parse. Behind a Unix
// socket, use [TrustedHops]. The error is a [*weir.InvalidError].
func TrustedRanges(prefixes ...netip.Prefix) (Strategy, error) {
	return byRanges(forwardedFor, prefixes)
}

// TrustedHops trusts n proxies, each of which appends to X-Forwarded-For: the client is
// the n-th entry from the right. It is the peer if there are fewer entries or if one of
// these does not parse. Clients must not be able to bypass any of the proxies. The error
// is a [*weir.InvalidError].
func TrustedHops(n int) (Strategy, error) { return byHops(forwardedFor, n) }

// ForwardedRanges is like [TrustedRanges], but reads the header Forwarded of RFC 7239.
func ForwardedRanges(prefixes ...netip.Prefix) (Strategy, error) {
	return byRanges(forwarded, prefixes)
}

// ForwardedHops is like [TrustedHops], but reads the header Forwarded of RFC 7239.
func ForwardedHops(n int) (Strategy, error) { return byHops(forwarded, n) }

// SingleHeader trusts a header that the proxy overwrites, such as X-Real-IP or
// CF-Connecting-IP. The client is the peer if the header is absent, repeated or does not
// parse. If proxies are given, the client is also the peer if the peer is none of them.
// Without proxies, make sure that only the proxy can connect. The error is a
// [*weir.InvalidError].
func SingleHeader(name string, proxies ...netip.Prefix) (Strategy, error) {
	name = http.CanonicalHeaderKey(strings.TrimSpace(name))
	if name == "" || name == "X-Forwarded-For" || name == "Forwarded" {
		return Strategy{}, invalid("header", strconv.Quote(name), "a header with one address, which the proxy overwrites")
	}
	ranges, err := unmapped(proxies)
	if err != nil {
		return Strategy{}, err
	}
	return Strategy{claimed: func(h http.Header, peer netip.Addr) (netip.Addr, bool) {
		values := h[name]
		if len(values) != 1 || len(ranges) > 0 && !contain(ranges, peer) {
			return netip.Addr{}, false
		}
		return parseAddr(values[0])
	}}, nil
}

// Must returns the strategy of a constructor with constant arguments. It panics on an
// error.
func Must(s Strategy, err error) Strategy {
	if err != nil {
		panic(err)
	}
	return s
}

// Addr returns the client's address: IPv4 unmapped, IPv6 without zone. The error
// is [ErrNoAddress].
func (s Strategy) Addr(r *http.Request) (netip.Addr, error) {
	peer, _ := parseAddr(r.RemoteAddr)
	if s.claimed != nil {
		if addr, ok := s.claimed(r.Header, peer); ok {
			return addr, nil
		}
	}
	if !peer.IsValid() {
		return netip.Addr{}, fmt.Errorf("%w: the connection is from %q", ErrNoAddress, r.RemoteAddr)
	}
	return peer, nil
}

// A list returns the addresses in a request's header from right to left; an entry that
// does not parse is an invalid address.
type list func(http.Header) func(yield func(netip.Addr) bool)

func byRanges(entries list, prefixes []netip.Prefix) (Strategy, error) {
	ranges, err := unmapped(prefixes)
	if err != nil {
		return Strategy{}, err
	}
	if len(ranges) == 0 {
		return Strategy{}, invalid("prefixes", "none", "the addresses of the proxies")
	}
	return Strategy{claimed: func(h http.Header, peer netip.Addr) (netip.Addr, bool) {
		if !contain(ranges, peer) {
			return netip.Addr{}, false
		}
		for addr := range entries(h) {
			if !contain(ranges, addr) {
				return addr, addr.IsValid()
			}
		}
		return netip.Addr{}, false
	}}, nil
}

func byHops(entries list, n int) (Strategy, error) {
	if n < 1 {
		return Strategy{}, invalid("hops", strconv.Itoa(n), "at least 1; without proxies, RemoteAddr")
	}
	return Strategy{claimed: func(h http.Header, _ netip.Addr) (netip.Addr, bool) {
		hop := 0
		for addr := range entries(h) {
			if hop++; hop == n || !addr.IsValid() {
				return addr, addr.IsValid()
			}
		}
		return netip.Addr{}, false
	}}, nil
}

func contain(ranges []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range ranges {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// unmapped returns the prefixes with mapped IPv4 prefixes as IPv4, as addresses are
// compared.
func unmapped(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	ranges := make([]netip.Prefix, len(prefixes))
	for i, prefix := range prefixes {
		if !prefix.IsValid() {
			return nil, invalid(fmt.Sprintf("prefixes[%d]", i), prefix.String(), "a prefix such as 10.0.0.0/8")
		}
		if addr := prefix.Addr(); addr.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
		}
		ranges[i] = prefix
	}
	return ranges, nil
}

func invalid(field, value, want string) error {
	return &weir.InvalidError{Field: field, Value: value, Want: want}
}
