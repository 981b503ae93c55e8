package store

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/weirlimit/weir/server/internal/settingfile"
)

// TLS are the files for connections to a store by TLS. The zero value trusts the
// host's authorities and shows no certificate.
type TLS struct {
	// CA is a file with authorities to trust besides the host's. Empty: none.
	CA string
	// Cert and Key are files with the certificate to show, and the key to it;
	// read with each connection. Both or neither.
	Cert, Key string
	// AnyHost accepts a valid certificate that is for another host.
	AnyHost bool
}

// apply puts the settings into the configuration of a client, which is nil where the
// URL asks for no TLS.
func (t *TLS) apply(to *tls.Config) error {
	if *t == (TLS{}) {
		return nil
	}
	if to == nil {
		return invalidURL("reached without TLS", "rediss://…, for there are files for TLS")
	}
	if t.CA != "" {
		var err error
		if to.RootCAs, err = x509.SystemCertPool(); err != nil {
			to.RootCAs = x509.NewCertPool()
		}
		if err := settingfile.Authorities("store tls ca", t.CA, to.RootCAs); err != nil {
			return err
		}
	}
	if t.Cert != "" || t.Key != "" {
		if _, err := settingfile.KeyPair("store tls cert", t.Cert, t.Key); err != nil {
			return err
		}
		to.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			return &pair, err
		}
	}
	if t.AnyHost {
		// Everything else about the certificate is checked here instead.
		to.InsecureSkipVerify = true
		to.VerifyConnection = func(state tls.ConnectionState) error { return verify(state.PeerCertificates, to.RootCAs) }
	}
	return nil
}

// verify checks a server's certificate for everything but its name.
func verify(chain []*x509.Certificate, roots *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, between := range chain[1:] {
		options.Intermediates.AddCert(between)
	}
	_, err := chain[0].Verify(options)
	return err
}
