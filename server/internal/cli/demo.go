package cli

import (
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/weirlimit/weir/server/internal/app"
)

// The calls behave as the comments say; a test runs them.
const demoText = `
# These are demonstration rules: in the domain demo each user may make 5 calls at
# once and 10 a minute, each path /login is open 3 times in 10 s. Bring your own
# with --config.

# Six calls of one user: 204 five times, then 429.
for i in 1 2 3 4 5 6; do curl -s -o /dev/null -w '%%{http_code}\n' 'http://%[1]s/v1/auth?domain=demo&user=alice'; done

# What the refusal says: headers, and a problem document.
curl -i 'http://%[1]s/v1/auth?domain=demo&user=alice'

# The same question from a program, for 3 units at once: 200, 2 remain.
curl -s -H 'Content-Type: application/json' -d '{"domain":"demo","descriptors":[{"entries":[{"key":"user","value":"bob"}]}],"cost":3}' http://%[1]s/v1/take
`

// printDemo prints calls to try against the demonstration rules.
func printDemo(w io.Writer, addrs []app.Addr) {
	for _, addr := range addrs {
		if addr.Protocol == "http" {
			fmt.Fprintf(w, demoText, reachable(addr.Address))
		}
	}
}

// printDashboard prints where a browser sees what all that does.
func printDashboard(w io.Writer, addrs []app.Addr, secure bool) {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	for _, addr := range addrs {
		if addr.Protocol == "admin" {
			fmt.Fprintf(w, "\n# Watch it in a browser: the dashboard.\n# %s://%s/\n", scheme, reachable(addr.Address))
		}
	}
}

// reachable is an address that this host's clients can call: one that listens
// everywhere listens here too.
func reachable(address string) string {
	listening, err := netip.ParseAddrPort(address)
	if err != nil || !listening.Addr().IsUnspecified() {
		return address
	}
	return net.JoinHostPort("localhost", fmt.Sprint(listening.Port()))
}
