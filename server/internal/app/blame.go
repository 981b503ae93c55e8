package app

import (
	"fmt"
	"strings"
)

// A cause is what an error of a store's servers is due to: it has all of the texts,
// and some field wants something else.
type cause struct {
	texts       []string
	field, want string
}

// ofSentinels stands in what a client says that no sentinel has answered.
const ofSentinels = "all sentinels specified in configuration are unreachable"

// causes are those that can be told, the first one that fits first. What the servers
// say are the words of Redis and of crypto/tls.
var causes = []cause{
	{[]string{"x509: certificate signed by unknown authority"}, "store tls ca", "a file with the authority that signed the servers' certificates"},
	{[]string{"x509: cannot validate certificate for"}, "store", "the host that the servers' certificates are for, or store tls any host"},
	{[]string{"x509: certificate is valid for"}, "store", "the host that the servers' certificates are for, or store tls any host"},
	{[]string{"x509: certificate has expired"}, "store", "servers whose certificates are valid now"},
	{[]string{"remote error: tls: "}, "store tls cert", "a certificate that the servers take, with store tls key"},
	{[]string{"first record does not look like a TLS handshake"}, "store", "redis://…, for the servers speak no TLS"},
	{[]string{ofSentinels, "WRONGPASS"}, "store sentinel password", "the password of sentinel_username, in the URL or in store sentinel password file"},
	{[]string{ofSentinels, "NOAUTH"}, "store sentinel password", "one, for the sentinels ask for it, in the URL or in store sentinel password file"},
	{[]string{"WRONGPASS"}, "store password", "the password of the URL's user, in the URL or in store password file"},
	{[]string{"NOAUTH"}, "store password", "one, for the servers ask for it, in the URL or in store password file"},
	{[]string{"cluster support disabled"}, "store", "redis://…, for the server is no cluster's"},
	{[]string{"unknown command 'sentinel'"}, "store", "redis://…, for the servers are no sentinels"},
	{[]string{ofSentinels + ": redis: nil"}, "store", "another name before its hosts, for the sentinels know no master of this one"},
}

// blame says which option an error of the store is due to, as far as that can be told.
func (o *Options) blame(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range causes {
		if c.fits(err.Error()) {
			return fmt.Errorf("%s: want %s: %w", c.field, c.want, err)
		}
	}
	if strings.HasPrefix(o.Store, "redis:") && err.Error() == "EOF" {
		return fmt.Errorf("store: want rediss://… where the server speaks TLS: it hung up: %w", err)
	}
	return err
}

func (c *cause) fits(said string) bool {
	for _, text := range c.texts {
		if !strings.Contains(said, text) {
			return false
		}
	}
	return true
}
