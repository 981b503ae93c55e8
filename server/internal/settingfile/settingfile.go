// Package settingfile reads the files that settings name. Its errors name the setting,
// and never repeat the content of a file.
package settingfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
)

// Invalid returns the error of a setting whose file is not what it should be.
func Invalid(setting, file, want string) error {
	return &weir.InvalidError{Field: setting, Value: strconv.Quote(file), Want: want}
}

// Reason returns the text of an error of reading a file, without the path, which the
// message around it names.
func Reason(err error) string {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// Read returns the content of a file, of a longer one the first byte more than most.
func Read(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

// maxBytes is the size of the largest file of secrets or certificates.
const maxBytes = 1 << 20

// ReadSmall returns the content of a file of secrets or certificates. A file of more than 1 MiB is
// an error, also a device that never ends.
func ReadSmall(file string) ([]byte, error) {
	text, err := Read(file, maxBytes)
	if err == nil && len(text) > maxBytes {
		return nil, &fs.PathError{Op: "read", Path: file, Err: errTooLarge}
	}
	return text, err
}

var errTooLarge = errors.New("larger than 1 MiB")

// Line returns the only line of a file, which is a secret; empty if no file is named.
func Line(setting, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := ReadSmall(file)
	if err != nil {
		return "", fmt.Errorf("server: %s: %w", setting, err)
	}
	line := strings.TrimRight(string(text), "\r\n")
	if line == "" || strings.ContainsAny(line, "\r\n") {
		return "", Invalid(setting, file, "a file with one line, the secret")
	}
	return line, nil
}

// Authorities adds the certificates in a file to a pool.
func Authorities(setting, file string, pool *x509.CertPool) error {
	const want = "a file with certificates in PEM"
	text, err := ReadSmall(file)
	if err != nil {
		return Invalid(setting, file, want+": "+Reason(err))
	}
	if !pool.AppendCertsFromPEM(text) {
		return Invalid(setting, file, want)
	}
	return nil
}

// Client reads the files of a TLS client into its configuration: the authorities to trust in
// place of the host's, and the certificate to present. A file without a name is left out. The
// prefix begins the names of the settings.
func Client(to *tls.Config, prefix, ca, cert, key string) error {
	if ca != "" {
		to.RootCAs = x509.NewCertPool()
		if err := Authorities(prefix+"ca", ca, to.RootCAs); err != nil {
			return err
		}
	}
	if cert != "" || key != "" {
		pair, err := KeyPair(prefix+"cert", cert, key)
		if err != nil {
			return err
		}
		to.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// KeyPair reads a certificate and its key. The setting is that of the certificate.
func KeyPair(setting, cert, key string) (tls.Certificate, error) {
	certificate, err := ReadSmall(cert)
	if err != nil {
		return tls.Certificate{}, NoPair(setting, cert, key, err)
	}
	private, err := ReadSmall(key)
	if err != nil {
		return tls.Certificate{}, NoPair(setting, cert, key, err)
	}
	pair, err := tls.X509KeyPair(certificate, private)
	if err != nil {
		err = NoPair(setting, cert, key, err)
	}
	return pair, err
}

// NoPair returns the error of a certificate and a key that do not belong together.
func NoPair(setting, cert, key string, err error) error {
	return Invalid(setting, cert, "a certificate in PEM, with the key to it in "+strconv.Quote(key)+": "+err.Error())
}
