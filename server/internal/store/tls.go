package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"strconv"

	"github.com/weirlimit/weir"
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
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return invalidFile("store tls ca", t.CA, "a file with certificates in PEM: "+reason(err))
		}
		if to.RootCAs, err = x509.SystemCertPool(); err != nil {
			to.RootCAs = x509.NewCertPool()
		}
		if !to.RootCAs.AppendCertsFromPEM(text) {
			return invalidFile("store tls ca", t.CA, "a file with certificates in PEM")
		}
	}
	if t.Cert != "" || t.Key != "" {
		load := func() (tls.Certificate, error) { return tls.LoadX509KeyPair(t.Cert, t.Key) }
		if _, err := load(); err != nil {
			return invalidFile("store tls cert", t.Cert, "a certificate in PEM, with the key to it in "+strconv.Quote(t.Key)+": "+err.Error())
		}
		to.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := load()
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

func invalidFile(field, file, want string) error {
	return &weir.InvalidError{Field: field, Value: strconv.Quote(file), Want: want}
}

// reason returns an error of reading a file without the path, which the message names.
func reason(err error) string {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}
