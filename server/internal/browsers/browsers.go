// Package browsers refuses requests that a web page of somebody else makes a browser
// send. A browser on the host reaches listeners that nobody else does, and a page can
// have it call them in two ways: as another site, which the browser says in the headers
// Sec-Fetch-Site and Origin, or under the page's own name, which its owner lets resolve
// to a loopback address. The Host header tells the second.
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
// a name below it, a loopback address, or one of names. A request of HTTP/1.0 may have
// no Host; browsers send none such.
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

// Short reports whether a Host header is a name without a dot, as proxies give to a
// group of servers. No public name is that short, so no page has one.
func Short(host string) bool {
	name := hostname(host)
	_, is := address(name)
	return !is && !strings.ContainsRune(name, '.')
}

// address reads a name that is an address. Most that are none are told by a look: every
// request is asked.
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

// Misdirected is the problem of a Host header that names another machine.
func Misdirected(host string) *problem.Document {
	if len(host) > 80 {
		host = strings.ToValidUTF8(host[:80], "") + "…"
	}
	return &problem.Document{
		Status: http.StatusMisdirectedRequest, Field: "host",
		Detail: "host is " + strconv.Quote(host) + ": want localhost, a loopback address or a name of --allow-host",
	}
}

// CrossSite is the problem of a request that comes from a page of somebody else.
func CrossSite() *problem.Document {
	return &problem.Document{Status: http.StatusForbidden, Detail: "the call comes from a web page of somebody else"}
}

// Protect has next answer what is not a cross-site request with an effect: any method
// but GET, HEAD and OPTIONS. Others get CrossSite.
func Protect(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		CrossSite().Write(w, r)
	}))
	return protection.Handler(next)
}

// Embedded reports whether a page of another site embeds what is asked for, or fetches
// it: everything but a link that a user follows.
func Embedded(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Mode") != "navigate"
	}
	return false
}

// Foreign reports whether a page of another site made the browser send the request, be
// it by a link.
func Foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return true
	}
	return false
}
