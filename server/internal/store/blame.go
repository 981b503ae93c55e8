package store

import (
	"fmt"
	"strings"
)

// A cause is a setting that an error of the servers is due to: the error has all of the
// texts.
type cause struct {
	texts       []string
	field, want string
}

// ofSentinels is part of the client's error when no sentinel answered.
const ofSentinels = "all sentinels specified in configuration are unreachable"

// causes are the known causes; the first one that fits counts. The texts are those of
// Redis and of crypto/tls.
var causes = []cause{
	{[]string{"x509: certificate signed by unknown authority"}, "store tls ca", "a file with the authority that signed the servers' certificates"},
	{[]string{"x509: cannot validate certificate for"}, "store", "the host that the servers' certificates are for, or store tls any host"},
	{[]string{"x509: certificate is valid for"}, "store", "the host that the servers' certificates are for, or store tls any host"},
	{[]string{"x509: certificate has expired"}, "store", "servers whose certificates are valid now"},
	{[]string{"remote error: tls: "}, "store tls cert", "a certificate that the servers take, with store tls key"},
	{[]string{"first record does not look like a TLS handshake"}, "store", "redis://…, for the servers speak no TLS"},
	{[]string{ofSentinels, "WRONGPASS"}, "store sentinel password", "the password of sentinel_username, in the URL or in store sentinel password file"},
	{[]string{ofSentinels, "NOAUTH"}, "store sentinel password", "one, for the sentinels ask for it, in the URL or in store sentinel password file"},
	{[]string{"WRONGPASS"}, "store password", "the password of the URL's user, in the URL, in store password file or from store password command"},
	{[]string{"NOAUTH"}, "store password", "one, for the servers ask for it, in the URL, in store password file or from store password command"},
	{[]string{"cluster support disabled"}, "store", "redis://…, for the server is no cluster's"},
	{[]string{"unknown command 'sentinel'"}, "store", "redis://…, for the servers are no sentinels"},
	{[]string{ofSentinels + ": redis: nil"}, "store", "another name before its hosts, for the sentinels know no master of this one"},
}

// Blame adds to an error of the store the option that it is due to, if that can be told.
func (s *Store) Blame(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range causes {
		if c.fits(err.Error()) {
			return fmt.Errorf("%s: want %s: %w", c.field, c.want, err)
		}
	}
	if strings.HasPrefix(s.url, "redis:") && err.Error() == "EOF" {
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
