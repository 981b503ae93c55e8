package clientip_test

import (
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

var (
	inside   = prefixes("10.0.0.0/8", "fd00::/8")
	ranges   = clientip.Must(clientip.TrustedRanges(inside...))
	mapped   = clientip.Must(clientip.TrustedRanges(prefixes("::ffff:10.0.0.0/104")...))
	oneHop   = clientip.Must(clientip.TrustedHops(1))
	twoHops  = clientip.Must(clientip.TrustedHops(2))
	single   = clientip.Must(clientip.SingleHeader("x-real-ip"))
	guarded  = clientip.Must(clientip.SingleHeader("X-Real-IP", inside...))
	fwRanges = clientip.Must(clientip.ForwardedRanges(inside...))
	fwHops   = clientip.Must(clientip.ForwardedHops(2))
)

func request(peer, header string, values ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, value := range values {
		r.Header.Add(header, value)
	}
	return r
}

func TestAddr(t *testing.T) {
	t.Parallel()
	const proxy, stranger, xff = "10.0.0.1:443", "203.0.113.9:55", "X-Forwarded-For"
	values := func(values ...string) []string { return values }
	for name, test := range map[string]struct {
		strategy clientip.Strategy
		peer     string
		header   string
		values   []string
		want     string
	}{
		"nothing trusted":             {clientip.RemoteAddr(), stranger, xff, values("1.1.1.1"), "203.0.113.9"},
		"zero value":                  {clientip.Strategy{}, stranger, xff, values("1.1.1.1"), "203.0.113.9"},
		"peer, mapped":                {clientip.RemoteAddr(), "[::ffff:203.0.113.9]:55", "", nil, "203.0.113.9"},
		"peer, zone":                  {clientip.RemoteAddr(), "[fe80::1%eth0]:55", "", nil, "fe80::1"},
		"peer without port":           {clientip.RemoteAddr(), "203.0.113.9", "", nil, "203.0.113.9"},
		"ranges":                      {ranges, proxy, xff, values("1.1.1.1, 2.2.2.2, 10.0.0.7"), "2.2.2.2"},
		"ranges, instances joined":    {ranges, proxy, xff, values("1.1.1.1", "2.2.2.2", "10.0.0.7, 10.0.0.8"), "2.2.2.2"},
		"ranges, going around":        {ranges, stranger, xff, values("1.1.1.1"), "203.0.113.9"},
		"ranges, all trusted":         {ranges, proxy, xff, values("10.0.0.9, 10.0.0.7"), "10.0.0.1"},
		"ranges, no header":           {ranges, proxy, "", nil, "10.0.0.1"},
		"ranges, empty header":        {ranges, proxy, xff, values(""), "10.0.0.1"},
		"ranges, unparsable":          {ranges, proxy, xff, values("1.1.1.1, unknown, 10.0.0.7"), "10.0.0.1"},
		"ranges, unparsable further":  {ranges, proxy, xff, values("unknown, 2.2.2.2, 10.0.0.7"), "2.2.2.2"},
		"ranges, mapped entry":        {ranges, proxy, xff, values("2.2.2.2, ::ffff:10.0.0.7"), "2.2.2.2"},
		"ranges, mapped peer":         {ranges, "[::ffff:10.0.0.1]:443", xff, values("2.2.2.2"), "2.2.2.2"},
		"ranges, mapped range":        {mapped, proxy, xff, values("2.2.2.2"), "2.2.2.2"},
		"ranges, IPv6 proxies":        {ranges, "[fd00::1]:443", xff, values("2001:db8::1, fd00::2"), "2001:db8::1"},
		"ranges, port":                {ranges, proxy, xff, values("2.2.2.2:8080"), "2.2.2.2"},
		"ranges, brackets":            {ranges, proxy, xff, values("[2001:db8::1]"), "2001:db8::1"},
		"ranges, brackets and port":   {ranges, proxy, xff, values("[2001:db8::1%3]:8080"), "2001:db8::1"},
		"ranges, tabs":                {ranges, proxy, xff, values("1.1.1.1,\t2.2.2.2 "), "2.2.2.2"},
		"ranges, port too large":      {ranges, proxy, xff, values("2.2.2.2:65536"), "10.0.0.1"},
		"ranges, leading zero":        {ranges, proxy, xff, values("2.2.2.02"), "10.0.0.1"},
		"ranges, nobody":              {ranges, proxy, xff, values("0.0.0.0"), "10.0.0.1"},
		"ranges, open bracket":        {ranges, proxy, xff, values("[2001:db8::1"), "10.0.0.1"},
		"ranges, IPv4 in brackets":    {ranges, proxy, xff, values("[2.2.2.2]"), "10.0.0.1"},
		"ranges, after brackets":      {ranges, proxy, xff, values("[2001:db8::1]80"), "10.0.0.1"},
		"one hop":                     {oneHop, stranger, xff, values("1.1.1.1, 2.2.2.2"), "2.2.2.2"},
		"two hops":                    {twoHops, stranger, xff, values("1.1.1.1, 2.2.2.2", "3.3.3.3"), "2.2.2.2"},
		"two hops, one entry":         {twoHops, stranger, xff, values("1.1.1.1"), "203.0.113.9"},
		"two hops, unparsable":        {twoHops, stranger, xff, values("1.1.1.1, 2.2.2.2, x"), "203.0.113.9"},
		"hops, Unix socket":           {oneHop, "@", xff, values("2.2.2.2"), "2.2.2.2"},
		"single":                      {single, stranger, "X-Real-Ip", values("2.2.2.2"), "2.2.2.2"},
		"single, twice":               {single, stranger, "X-Real-Ip", values("2.2.2.2", "3.3.3.3"), "203.0.113.9"},
		"single, list":                {single, stranger, "X-Real-Ip", values("2.2.2.2, 3.3.3.3"), "203.0.113.9"},
		"single, absent":              {single, stranger, "", nil, "203.0.113.9"},
		"single, guarded":             {guarded, proxy, "X-Real-Ip", values("2.2.2.2"), "2.2.2.2"},
		"single, guarded, around":     {guarded, stranger, "X-Real-Ip", values("2.2.2.2"), "203.0.113.9"},
		"forwarded":                   {fwRanges, proxy, "Forwarded", values("for=1.1.1.1, For=2.2.2.2;proto=http", "by=x;for=10.0.0.7"), "2.2.2.2"},
		"forwarded, quoted":           {fwRanges, proxy, "Forwarded", values(`for="[2001:db8::1]:4711";host="a,b;for=9.9.9.9"`), "2001:db8::1"},
		"forwarded, escaped":          {fwRanges, proxy, "Forwarded", values(`for=2.2.2.2;host="a\", for=9.9.9.9"`), "2.2.2.2"},
		"forwarded, quote left open":  {fwRanges, proxy, "Forwarded", values(`for="1.1.1.1, for=2.2.2.2`), "2.2.2.2"},
		"forwarded, open by itself":   {fwRanges, proxy, "Forwarded", values(`for="2.2.2.2`), "10.0.0.1"},
		"forwarded, two fors":         {fwRanges, proxy, "Forwarded", values(`for=2.2.2.2;for=3.3.3.3`), "10.0.0.1"},
		"forwarded, no for":           {fwRanges, proxy, "Forwarded", values(`for=1.1.1.1, proto=http`), "10.0.0.1"},
		"forwarded, obfuscated":       {fwRanges, proxy, "Forwarded", values(`for=1.1.1.1, for=_hidden`), "10.0.0.1"},
		"forwarded, hops":             {fwHops, proxy, "Forwarded", values(`for=1.1.1.1, for=2.2.2.2, for="10.0.0.7:80"`), "2.2.2.2"},
		"forwarded is another header": {fwRanges, proxy, xff, values("2.2.2.2"), "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := test.strategy.Addr(request(test.peer, test.header, test.values...))
			if err != nil || got.String() != test.want {
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestNoAddress(t *testing.T) {
	t.Parallel()
	for _, strategy := range []clientip.Strategy{{}, ranges, twoHops, single} {
		r := request("@", "X-Forwarded-For", "1.1.1.1")
		if addr, err := strategy.Addr(r); !errors.Is(err, clientip.ErrNoAddress) || addr.IsValid() {
			t.Errorf("got %v, %v", addr, err)
		}
		if key, err := strategy.Key(r); !errors.Is(err, clientip.ErrNoAddress) || key != "" {
			t.Errorf("got %q, %v", key, err)
		}
	}
}

func TestConstructorsRefuse(t *testing.T) {
	t.Parallel()
	for field, build := range map[string]func() (clientip.Strategy, error){
		"prefixes":    func() (clientip.Strategy, error) { return clientip.TrustedRanges() },
		"prefixes[1]": func() (clientip.Strategy, error) { return clientip.ForwardedRanges(inside[0], netip.Prefix{}) },
		"prefixes[0]": func() (clientip.Strategy, error) { return clientip.SingleHeader("X-Real-IP", netip.Prefix{}) },
		"hops":        func() (clientip.Strategy, error) { return clientip.TrustedHops(0) },
		"header":      func() (clientip.Strategy, error) { return clientip.SingleHeader("x-forwarded-for") },
		"bits":        func() (clientip.Strategy, error) { return clientip.RemoteAddr().WithIPv6Bits(47) },
	} {
		_, err := build()
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Must accepts it", field)
				}
			}()
			clientip.Must(build())
		}()
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		addr string
		bits int
		want string
	}{
		{"192.0.2.1", 0, "192.0.2.1"},
		{"::ffff:192.0.2.1", 0, "192.0.2.1"},
		{"::ffff:192.0.2.1", 48, "192.0.2.1"},
		{"64:ff9b::192.0.2.1", 0, "192.0.2.1"},
		{"64:ff9b::c000:202", 128, "192.0.2.2"},
		{"64:ff9b::1:0:0", 0, "64:ff9b::/64"},
		{"64:ff9b:1::192.0.2.1", 0, "64:ff9b:1::/64"},
		{"2001:db8:1:2:3::4", 0, "2001:db8:1:2::/64"},
		{"fe80::1%eth0", 0, "fe80::/64"},
		{"2001:db8:1:2:3::4", 48, "2001:db8:1::/48"},
		{"2001:db8:1:2:3::4", 56, "2001:db8:1::/56"},
		{"2001:db8:1:2:3::4", 128, "2001:db8:1:2:3::4"},
	} {
		strategy := clientip.RemoteAddr()
		if test.bits > 0 {
			strategy = clientip.Must(strategy.WithIPv6Bits(test.bits))
		} else if got := clientip.Key(netip.MustParseAddr(test.addr)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.addr, got, test.want)
		}
		got, err := strategy.Key(request("["+test.addr+"]:1", ""))
		if addr := netip.MustParseAddr(test.addr); addr.Is4() {
			got, err = strategy.Key(request(test.addr+":1", ""))
		}
		if err != nil || got != test.want {
			t.Errorf("%s of %d bits: got %s, %v, want %s", test.addr, test.bits, got, err, test.want)
		}
	}
	if got := clientip.Key(netip.Addr{}); got != "" {
		t.Errorf("no address: got %q", got)
	}
}
