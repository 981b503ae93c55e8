package cli

import (
	"crypto/tls"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/settingfile"
)

// clientTLS names the PEM files with the authorities that a command trusts and the
// certificate that it presents.
type clientTLS struct{ ca, cert, key string }

// config reads the files. The prefix begins the names of the flags.
func (t *clientTLS) config(prefix string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	return config, settingfile.Client(config, prefix, t.ca, t.cert, t.key)
}

// insecureToken is the flag that lets a command send a token in plain text.
const insecureToken = "insecure-token"

func defineInsecureToken(flags *pflag.FlagSet, to *bool) {
	flags.BoolVar(to, insecureToken, false, "send the token without TLS to another machine, where a mesh or a tunnel encrypts it")
}

// checkClearText refuses to send a token in plain text to another machine. The field is
// the flag that names the token's file.
func checkClearText(field string, to *url.URL) error {
	host := to.Hostname()
	address, err := netip.ParseAddr(host)
	if strings.HasSuffix(to.Scheme, "s") || host == "localhost" || err == nil && address.Unmap().IsLoopback() {
		return nil
	}
	return &weir.InvalidError{
		Field: field, Value: "for " + to.Scheme + "://" + to.Host,
		Want: to.Scheme + "s://" + to.Host + ", or --" + insecureToken + " where a mesh or a tunnel encrypts the connection: the token would cross the network in plain text",
	}
}

// readToken returns the first line of a file. The file may be the server's own, which can
// hold several tokens.
func readToken(file string) (string, error) {
	text, err := settingfile.ReadSmall(file)
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(first), err
}
