package clientip

import (
	"net/http"
	"net/netip"
	"strconv"
)

// Lengths of the IPv6 network that shares a key.
const (
	// defaultIPv6Bits is the network that a provider usually assigns to one subscriber.
	defaultIPv6Bits = 64
	minIPv6Bits     = 48
	// maxIPv6Bits gives each address its own key.
	maxIPv6Bits = 128
)

// Key returns the key of a client for limits: an IPv4 address, also one that is mapped or
// translated (64:ff9b::/96), or the /64 of an IPv6 address, because clients choose the rest of
// the address themselves. The key of an invalid address is "".
func Key(addr netip.Addr) string { return key(addr, defaultIPv6Bits) }

// WithIPv6Bits returns the strategy with another length of the IPv6 networks that
// share a key, 48 … 128 bits. The error is a [*weir.InvalidError].
func (s Strategy) WithIPv6Bits(bits int) (Strategy, error) {
	if bits < minIPv6Bits || bits > maxIPv6Bits {
		return s, invalid("bits", strconv.Itoa(bits), "48 … 128")
	}
	s.bits = bits
	return s, nil
}

// Key returns the key of the client's address. The error is [ErrNoAddress].
func (s Strategy) Key(r *http.Request) (string, error) {
	addr, err := s.Addr(r)
	if err != nil {
		return "", err
	}
	bits := s.bits
	if bits == 0 {
		bits = defaultIPv6Bits
	}
	return key(addr, bits), nil
}

func key(addr netip.Addr, bits int) string {
	addr = untranslated(addr.Unmap().WithZone(""))
	if addr.Is4() || !addr.IsValid() || bits == maxIPv6Bits {
		return text(addr)
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return network.String()
}

// translated are the addresses that NAT64 makes of IPv4 addresses. All of them are in one /64.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// untranslated returns the IPv4 address that an address stands for, or else the address.
func untranslated(addr netip.Addr) netip.Addr {
	if !translated.Contains(addr) {
		return addr
	}
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func text(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
