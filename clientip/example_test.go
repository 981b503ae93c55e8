package clientip_test

import (
	"fmt"
	"log"
	"net/http"
	"net/netip"

	"github.com/weirlimit/weir/clientip"
)

// Behind proxies in 10.0.0.0/8, each of which appends to X-Forwarded-For.
func ExampleTrustedRanges() {
	strategy, err := clientip.TrustedRanges(netip.MustParsePrefix("10.0.0.0/8"))
	if err != nil {
		log.Fatal(err)
	}
	for _, came := range []struct{ from, header string }{
		{"10.0.0.1:4711", "198.51.100.7, 2001:db8:0:1::5, 10.0.0.2"}, // the first is the client's invention
		{"10.0.0.1:4711", "::ffff:198.51.100.7"},
		{"192.0.2.9:4711", "198.51.100.7"}, // around the proxies
	} {
		r := &http.Request{RemoteAddr: came.from, Header: http.Header{"X-Forwarded-For": {came.header}}}
		key, err := strategy.Key(r)
		fmt.Println(key, err)
	}
	// Output:
	// 2001:db8:0:1::/64 <nil>
	// 198.51.100.7 <nil>
	// 192.0.2.9 <nil>
}
