package httpapi

import (
	"net/http"
	"strconv"

	"github.com/weirlimit/weir/clientip"
)

// clientIP returns the trusted address of whoever sent the request, as the
// strategy finds it. IPv4 stands as it is, mapped or not; IPv6 as its network.
func clientIP(s clientip.Strategy, r *http.Request) (string, error) {
	key, err := s.Key(r)
	if err != nil {
		return "", invalid("from", strconv.Quote(r.RemoteAddr), "a connection from an IP address")
	}
	return key, nil
}
