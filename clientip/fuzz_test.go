package clientip_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// FuzzAddr holds that a strategy names the peer or somebody that a header names,
// and that nothing a client sends has a say in what proxies append to it.
func FuzzAddr(f *testing.F) {
	f.Add("10.0.0.1:1", "X-Forwarded-For", "1.1.1.1, 2.2.2.2", "10.0.0.7")
	f.Add("10.0.0.1:1", "Forwarded", `for="[2001:db8::1]:1`, `for=2.2.2.2;host="a\"`)
	f.Add("@", "X-Real-Ip", "::ffff:1.2.3.4", "")
	f.Fuzz(func(t *testing.T, peer, header, first, second string) {
		if len(peer)+len(first)+len(second) > 300 {
			return // looking for every cut takes long
		}
		r := request(peer, "", "")
		r.Header[header] = []string{first, second}
		for _, s := range []clientip.Strategy{{}, ranges, oneHop, twoHops, single, guarded, fwRanges, fwHops} {
			var addr netip.Addr
			var err error
			fuzztest.Within(t, fuzztest.MostBytes, len(first)+len(second), func() { addr, err = s.Addr(r) })
			if addr.IsValid() != (err == nil) || addr.Is4In6() || addr.Zone() != "" {
				t.Fatalf("%v, %v", addr, err)
			}
			if err == nil && !named(addr, peer) && !named(addr, first+","+second) {
				t.Fatalf("%v is named neither by %q nor by %q, %q", addr, peer, first, second)
			}
		}
		appended := map[string]string{"X-Forwarded-For": first + ", 2.2.2.2, 10.0.0.7", "Forwarded": first + ", for=2.2.2.2, for=10.0.0.7"}
		for header, value := range appended {
			r := request("10.0.0.1:1", header, second, value)
			for _, s := range map[string][]clientip.Strategy{"X-Forwarded-For": {ranges, twoHops}, "Forwarded": {fwRanges, fwHops}}[header] {
				if addr, err := s.Addr(r); err != nil || addr.String() != "2.2.2.2" {
					t.Fatalf("%s %q: got %v, %v", header, value, addr, err)
				}
			}
		}
	})
}

// named reports whether any cut of the text, however made, is the address.
func named(addr netip.Addr, text string) bool {
	for start := range len(text) {
		for end := len(text); end > start; end-- {
			if found, err := netip.ParseAddr(strings.Trim(text[start:end], "[]")); err == nil && found.Unmap().WithZone("") == addr {
				return true
			}
		}
	}
	return false
}

// FuzzKey holds that IPv4 is one by itself however it is written, and that an
// IPv6 network is one.
func FuzzKey(f *testing.F) {
	f.Add([]byte{192, 0, 2, 1}, []byte{192, 0, 2, 2})
	f.Add(make([]byte, 16), []byte("2001:db8::1 abcd"))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		a, ok := netip.AddrFromSlice(one)
		b, also := netip.AddrFromSlice(other)
		if !ok || !also {
			return
		}
		if a.Is4() && clientip.Key(a) != clientip.Key(netip.AddrFrom16(a.As16())) {
			t.Fatalf("%v is another one when it is mapped", a)
		}
		a, b = a.Unmap(), b.Unmap()
		same := a == b
		if a.Is6() && b.Is6() {
			same = [8]byte(a.AsSlice()[:8]) == [8]byte(b.AsSlice()[:8])
		}
		if same != (clientip.Key(a) == clientip.Key(b)) {
			t.Fatalf("%v and %v have the keys %s and %s", a, b, clientip.Key(a), clientip.Key(b))
		}
	})
}
