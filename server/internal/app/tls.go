package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
)

// TLS is how a listener proves who it is, and whom it lets in. The zero value is
// no TLS. The files are PEM; they are looked at with each handshake, so that new
// ones need no restart, and while they are wrong the last good ones hold.
type TLS struct {
	// Cert and Key are files with the listener's certificate, and those between
	// it and its authority, and the key to it. Both, or neither for no TLS.
	Cert, Key string
	// ClientCA is a file with the authorities one of which must have signed a
	// client's certificate; those that the host trusts do not count. Empty:
	// clients need no certificate.
	ClientCA string
	// ClientSAN is the DNS name that a client's certificate must be for. Empty:
	// any. It needs ClientCA.
	ClientSAN string
}

// identity is the files of a TLS, read.
type identity struct {
	cert, key, clientCA string
	config              *tls.Config
}

// certificates has what a listener needs for handshakes, as new as its files.
type certificates struct {
	TLS
	field      string
	protocols  []string
	logger     *slog.Logger
	current    atomic.Pointer[identity]
	lastLogged atomic.Int64 // unix seconds
}

// serverTLS returns the configuration of a listener that speaks some protocols;
// nil where there is no TLS. The field begins the names in errors.
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

// latest is the configuration for one handshake.
func (c *certificates) latest(*tls.ClientHelloInfo) (*tls.Config, error) {
	if err := c.refresh(); err != nil {
		now := time.Now().Unix()
		if last := c.lastLogged.Load(); last != now && c.lastLogged.CompareAndSwap(last, now) {
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
		return tlsError(c.field+" cert", c.Cert, "a certificate in PEM, with the key to it in "+strconv.Quote(c.Key)+": "+err.Error())
	}
	next.config = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: c.protocols, Certificates: []tls.Certificate{pair}}
	if c.ClientCA != "" {
		next.config.ClientCAs = x509.NewCertPool()
		if !next.config.ClientCAs.AppendCertsFromPEM([]byte(next.clientCA)) {
			return tlsError(c.field+" client ca", c.ClientCA, "a file with certificates in PEM")
		}
		next.config.ClientAuth = tls.RequireAndVerifyClientCert
		next.config.VerifyConnection = c.admit
	}
	c.current.Store(next)
	return nil
}

// read reads the files that there should be.
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
		text, err := os.ReadFile(f.name)
		if err != nil {
			return nil, tlsError(c.field+f.field, f.name, f.want+": "+why(err))
		}
		*f.to = string(text)
	}
	return next, nil
}

// admit checks for whom a client's certificate is, once it was found genuine.
func (c *certificates) admit(state tls.ConnectionState) error {
	if c.ClientSAN == "" {
		return nil
	}
	return state.PeerCertificates[0].VerifyHostname(c.ClientSAN)
}

func tlsError(field, file, want string) error {
	return &weir.InvalidError{Field: field, Value: strconv.Quote(file), Want: want}
}

// why is an error without the path, which its message names already.
func why(err error) string {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// StoreTLS is what connections to a store by TLS need besides the URL. The zero
// value trusts whom the host trusts and shows no certificate.
type StoreTLS struct {
	// CA is a file with authorities to trust besides the host's. Empty: none.
	CA string
	// Cert and Key are files with the certificate to show, and the key to it;
	// read with each connection. Both or neither.
	Cert, Key string
	// AnyHost takes a certificate that is genuine but for another host.
	AnyHost bool
}

// apply puts the settings into the configuration of a client; nil where the URL
// does not ask for TLS.
func (t *StoreTLS) apply(to *tls.Config) error {
	if *t == (StoreTLS{}) {
		return nil
	}
	if to == nil {
		return storeError("reached without TLS", "rediss://…, for there are files for TLS")
	}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return tlsError("store tls ca", t.CA, "a file with certificates in PEM: "+why(err))
		}
		if to.RootCAs, err = x509.SystemCertPool(); err != nil {
			to.RootCAs = x509.NewCertPool()
		}
		if !to.RootCAs.AppendCertsFromPEM(text) {
			return tlsError("store tls ca", t.CA, "a file with certificates in PEM")
		}
	}
	if t.Cert != "" || t.Key != "" {
		load := func() (tls.Certificate, error) { return tls.LoadX509KeyPair(t.Cert, t.Key) }
		if _, err := load(); err != nil {
			return tlsError("store tls cert", t.Cert, "a certificate in PEM, with the key to it in "+strconv.Quote(t.Key)+": "+err.Error())
		}
		to.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := load()
			return &pair, err
		}
	}
	if t.AnyHost {
		// Everything else about the certificate is checked here instead.
		to.InsecureSkipVerify = true
		to.VerifyConnection = func(state tls.ConnectionState) error { return genuine(state.PeerCertificates, to.RootCAs) }
	}
	return nil
}

// genuine checks a server's certificate for everything but its name.
func genuine(chain []*x509.Certificate, roots *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, between := range chain[1:] {
		options.Intermediates.AddCert(between)
	}
	_, err := chain[0].Verify(options)
	return err
}
