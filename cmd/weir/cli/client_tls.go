package cli

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strconv"

	"github.com/weirlimit/weir"
)

// clientTLS is whom a command trusts, and what it shows, as files in PEM.
type clientTLS struct{ ca, cert, key string }

// config reads the files. The prefix begins the names of the flags.
func (t *clientTLS) config(prefix string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		const want = "a file with certificates in PEM"
		text, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, wrongFile(prefix+"ca", t.ca, want+": "+err.Error())
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, wrongFile(prefix+"ca", t.ca, want)
		}
	}
	if t.cert != "" || t.key != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, wrongFile(prefix+"cert", t.cert, "a certificate in PEM, with the key to it in "+strconv.Quote(t.key)+": "+err.Error())
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func wrongFile(field, file, want string) error {
	return &weir.InvalidError{Field: field, Value: strconv.Quote(file), Want: want}
}
