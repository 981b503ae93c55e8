package app

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"sync/atomic"

	"github.com/weirlimit/weir/internal/logs"

	"github.com/weirlimit/weir/server/internal/settingfile"
)

// TLS are the files for a listener that speaks TLS, in PEM. The zero value is no TLS. They
// are read at each handshake, so that new ones need no restart; while they are wrong the
// last good ones hold.
type TLS struct {
	// Cert and Key are files with the listener's certificate, and those between
	// it and its authority, and the key to it. Both, or neither for no TLS.
	Cert, Key string
	// ClientCA is a file with authorities; one of them must have signed a client's
	// certificate. The host's authorities do not count. Empty: clients need no
	// certificate.
	ClientCA string
	// ClientSAN is the DNS name that a client's certificate must be for. Empty:
	// any. It needs ClientCA.
	ClientSAN string
}

// identity is the content of the files of a TLS.
type identity struct {
	cert, key, clientCA string
	config              *tls.Config
}

// certificates configures the handshakes of a listener by its files.
type certificates struct {
	TLS
	field     string
	protocols []string
	logger    *slog.Logger
	current   atomic.Pointer[identity]
	logged    logs.Seldom
}

// serverTLS returns the configuration of a listener for protocols; nil without TLS. The
// field begins the names in errors.
func (o *Options) serverTLS(field string, t TLS, protocols ...string) (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &certificates{TLS: t, field: field, protocols: protocols, logger: o.Logger}
	if err := c.refresh(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         protocols,
		GetConfigForClient: c.latest,
	}, nil
}

// latest returns the configuration for one handshake.
func (c *certificates) latest(*tls.ClientHelloInfo) (*tls.Config, error) {
	if err := c.refresh(); err != nil {
		if _, due := c.logged.Due(); due {
			c.logger.Error("the files for TLS are wrong; the last good ones hold", "error", err)
		}
	}
	return c.current.Load().config, nil
}

// refresh reads the files and puts them in force if they are new and good.
func (c *certificates) refresh() error {
	next, err := c.read()
	if err != nil {
		return err
	}
	if last := c.current.Load(); last != nil && last.cert == next.cert && last.key == next.key && last.clientCA == next.clientCA {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(next.cert), []byte(next.key))
	if err != nil {
		return settingfile.NoPair(c.field+" cert", c.Cert, c.Key, err)
	}
	next.config = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protocols, Certificates: []tls.Certificate{pair}}
	if c.ClientCA != "" {
		next.config.ClientCAs = x509.NewCertPool()
		if !next.config.ClientCAs.AppendCertsFromPEM([]byte(next.clientCA)) {
			return settingfile.Invalid(c.field+" client ca", c.ClientCA, "a file with certificates in PEM")
		}
		next.config.ClientAuth = tls.RequireAndVerifyClientCert
		next.config.VerifyConnection = c.admit
	}
	c.current.Store(next)
	return nil
}

// read reads the files.
func (c *certificates) read() (*identity, error) {
	next := new(identity)
	for _, f := range []struct {
		to                *string
		name, field, want string
	}{
		{&next.cert, c.Cert, " cert", "a file with a certificate in PEM"},
		{&next.key, c.Key, " key", "a file with the certificate's key in PEM"},
		{&next.clientCA, c.ClientCA, " client ca", "a file with certificates in PEM"},
	} {
		if f.name == "" && f.to == &next.clientCA && c.ClientSAN == "" {
			continue
		}
		text, err := settingfile.ReadSmall(f.name)
		if err != nil {
			return nil, settingfile.Invalid(c.field+f.field, f.name, f.want+": "+settingfile.Reason(err))
		}
		*f.to = string(text)
	}
	return next, nil
}

// admit checks the name of a client's certificate that was found valid.
func (c *certificates) admit(state tls.ConnectionState) error {
	if c.ClientSAN == "" {
		return nil
	}
	return state.PeerCertificates[0].VerifyHostname(c.ClientSAN)
}
