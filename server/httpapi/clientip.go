package httpapi

import (
	"net/http"
	"net/netip"
	"strconv"
)

// ipv6Bits is how much of an IPv6 address names a client: networks hand out
// whole /64s, so the rest is the client's to choose.
const ipv6Bits = 64

// clientIP returns the trusted address of whoever sent the request: the other
// end of the connection. IPv4 stands as it is, mapped or not; IPv6 as its /64.
func clientIP(r *http.Request) (string, error) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", invalid("from", strconv.Quote(r.RemoteAddr), "a connection from an IP address")
	}
	addr := peer.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String(), nil
	}
	network, err := addr.Prefix(ipv6Bits)
	if err != nil {
		return "", invalid("from", addr.String(), "an IP address")
	}
	return network.String(), nil
}
