package httpapi

import (
	"net/http"
	"strconv"

	"github.com/weirlimit/weir/clientip"
)

// clientIP returns the trusted address of whoever sent the request: the other
// end of the connection. IPv4 stands as it is, mapped or not; IPv6 as its /64.
func clientIP(r *http.Request) (string, error) {
	key, err := clientip.RemoteAddr().Key(r)
	if err != nil {
		return "", invalid("from", strconv.Quote(r.RemoteAddr), "a connection from an IP address")
	}
	return key, nil
}
