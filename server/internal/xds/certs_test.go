package xds_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/xds"
)

// An identity is a certificate that signs itself, for servers and clients, as files.
type identity struct{ cert, key string }

// issue writes a new identity over the files of a folder.
func issue(t testing.TB, folder string) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "envoy-ratelimit"}, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"envoy-gateway"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, signed := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	keyDER, encoded := x509.MarshalECPrivateKey(key)
	i := identity{filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")}
	if err := errors.Join(signed, encoded,
		os.WriteFile(i.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(i.key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return i
}

func (i identity) tls() *xds.TLS { return &xds.TLS{CA: i.cert, Cert: i.cert, Key: i.key} }

// server returns the TLS of a server that demands TLS 1.3 and the same certificate.
func (i identity) server(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(i.cert, i.key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
}
