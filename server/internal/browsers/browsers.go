// Package browsers refuses requests that a web page of another site makes a browser send.
// A browser on the host reaches listeners that nobody else does, and a page can make it
// call them in two ways: as another site, which the headers Sec-Fetch-Site and Origin
// show, or under the page's own name, if its DNS resolves to a loopback address, which
// the Host header shows.
package browsers

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir/internal/problem"
)

// Local reports whether a Host header names this machine as seen from itself: localhost,
// a name below it, a loopback address, or one of names. Requests of HTTP/1.0 may have no
// Host; browsers always send one.
func Local(host string, names []string) bool {
	name := hostname(host)
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if address, ok := address(name); ok {
		return address.Unmap().IsLoopback()
	}
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// Short reports whether a Host header is a name without a dot, as proxies give to a group
// of servers. No public name is that short, so no page has one.
func Short(host string) bool {
	name := hostname(host)
	_, is := address(name)
	return !is && !strings.ContainsRune(name, '.')
}

// address parses a name that is an address. It rejects most others without parsing,
// because every request is checked.
func address(name string) (netip.Addr, bool) {
	if !strings.ContainsRune(name, ':') && (name == "" || name[0] < '0' || name[0] > '9') {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(name)
	return addr, err == nil
}

// hostname returns the name in a Host header in lower case, without port and brackets.
func hostname(host string) string {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	return strings.ToLower(name)
}

// Misdirected returns the problem of a Host header that names another machine.
func Misdirected(host string) *problem.Document {
	return &problem.Document{
		Status: http.StatusMisdirectedRequest, Field: "host",
		Detail: "host is " + strconv.Quote(problem.Shorten(host)) + ": want localhost, a loopback address or a name of --allow-host",
	}
}

// CrossSite returns the problem of a request from another site's page.
func CrossSite() *problem.Document {
	return &problem.Document{Status: http.StatusForbidden, Detail: "the call comes from the web page of another site"}
}

// Protect passes requests to next, except cross-site requests with an effect (any method
// but GET, HEAD and OPTIONS), which get CrossSite.
func Protect(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		CrossSite().Write(w, r)
	}))
	return protection.Handler(next)
}

// Embedded reports whether a page of another site embeds or fetches the resource: any use
// but a link that a user follows.
func Embedded(r *http.Request) bool {
	return Foreign(r) && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

// Foreign reports whether a page of another site made the browser send the request, even
// by a link.
func Foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}
