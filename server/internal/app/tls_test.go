package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/server/internal/store"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// An issuer signs certificates for tests.
type issuer struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{T: t, file: filepath.Join(t.TempDir(), "ca.pem")}
	i.cert, i.key = i.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
	i.write(i.file, "CERTIFICATE", i.cert.Raw)
	return i
}

// sign completes a template and signs it, by itself if there is no parent.
func (i *issuer) sign(template, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	i.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		i.Fatal(err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := i.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		i.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		i.Fatal(err)
	}
	return cert, key
}

func (i *issuer) write(file, kind string, der []byte) {
	i.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		i.Fatal(err)
	}
}

// issue writes a certificate for a name, and its key, into files.
func (i *issuer) issue(name, certFile, keyFile string) *x509.Certificate {
	i.Helper()
	names, addresses := []string{name}, []net.IP(nil)
	if ip := net.ParseIP(name); ip != nil {
		names, addresses = nil, []net.IP{ip}
	}
	cert, key := i.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: names, IPAddresses: addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, i.cert)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		i.Fatal(err)
	}
	i.write(certFile, "CERTIFICATE", cert.Raw)
	i.write(keyFile, "EC PRIVATE KEY", der)
	return cert
}

// pair issues into new files.
func (i *issuer) pair(name string) (certFile, keyFile string) {
	dir := i.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	i.issue(name, certFile, keyFile)
	return certFile, keyFile
}

// client is the configuration of a client, with a certificate for a name or none.
func (i *issuer) client(name string) *tls.Config {
	i.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(i.cert)
	config := &tls.Config{RootCAs: roots, ServerName: "weir.test"}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(i.pair(name))
		if err != nil {
			i.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// callTLS asks for the rule of a path over gRPC.
func callTLS(t *testing.T, app *App, config *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(addrOf(app, "grpc"), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = login(t, conn)
	return err
}

func TestServesEnvoyByTLS(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cert, key := i.pair("weir.test")
	app := start(t, Options{GRPCTLS: TLS{Cert: cert, Key: key}})
	if err := callTLS(t, app, i.client("")); err != nil {
		t.Error(err)
	}
	old := i.client("")
	old.MaxVersion = tls.VersionTLS11
	if _, err := tls.Dial("tcp", addrOf(app, "grpc"), old); err == nil {
		t.Error("TLS 1.1 was spoken")
	}
	if _, err := login(t, dialGRPC(t, app)); err == nil {
		t.Error("a call without TLS was answered")
	}
}

func TestClientsNeedCertificates(t *testing.T) {
	t.Parallel()
	i, other := newIssuer(t), newIssuer(t)
	cert, key := i.pair("weir.test")
	app := start(t, Options{GRPCTLS: TLS{Cert: cert, Key: key, ClientCA: i.file, ClientSAN: "envoy.test"}})
	stranger := other.client("envoy.test")
	stranger.RootCAs = i.client("").RootCAs
	for name, test := range map[string]struct {
		config *tls.Config
		served bool
	}{
		"its own": {i.client("envoy.test"), true}, "none": {i.client(""), false},
		"for another name": {i.client("else.test"), false}, "by another authority": {stranger, false},
	} {
		if err := callTLS(t, app, test.config); (err == nil) != test.served {
			t.Errorf("%s: %v, want served: %t", name, err, test.served)
		}
	}
}

// TestCertificatesAreReadAnew: new files hold from the next connection on, and
// wrong ones do not.
func TestCertificatesAreReadAnew(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cert, key := i.pair("weir.test")
	app := start(t, Options{HTTPTLS: TLS{Cert: cert, Key: key}})
	shown := func() *x509.Certificate {
		conn, err := tls.Dial("tcp", app.Addrs()[0].Address, i.client(""))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	first := shown()
	second := i.issue("weir.test", cert, key)
	if got := shown(); !got.Equal(second) || got.Equal(first) {
		t.Error("the old certificate is shown")
	}
	if err := os.WriteFile(cert, []byte("half a cer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !shown().Equal(second) {
		t.Error("a wrong file took the place of a good one")
	}
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	if !shown().Equal(second) {
		t.Error("a missing file took the place of a good one")
	}
	third := i.issue("weir.test", cert, key)
	if !shown().Equal(third) {
		t.Error("good files are not seen after wrong ones")
	}
}

func TestServesHTTPS(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cert, key := i.pair("weir.test")
	app := start(t, Options{HTTPTLS: TLS{Cert: cert, Key: key}})
	for _, two := range []bool{false, true} {
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			TLSClientConfig: i.client(""), ForceAttemptHTTP2: two, DisableKeepAlives: true,
		}}
		response, err := client.Get("https://" + app.Addrs()[0].Address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK || (response.ProtoMajor == 2) != two {
			t.Errorf("%s %s", response.Proto, response.Status)
		}
	}
}

func TestRefusesWrongTLS(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cert, key := i.pair("weir.test")
	_, otherKey := i.pair("weir.test")
	garbage := passwordFile(t, "garbage")
	for name, test := range map[string]struct {
		options     Options
		field, want string
	}{
		"no key":           {Options{GRPCTLS: TLS{Cert: cert}}, "grpc tls key", "no such file"},
		"no certificate":   {Options{GRPCTLS: TLS{Key: key}}, "grpc tls cert", "no such file"},
		"absent":           {Options{GRPCTLS: TLS{Cert: "absent", Key: key}}, "grpc tls cert", "no such file"},
		"another's key":    {Options{GRPCTLS: TLS{Cert: cert, Key: otherKey}}, "grpc tls cert", "private key does not match"},
		"no PEM":           {Options{HTTPTLS: TLS{Cert: garbage, Key: key}}, "http tls cert", "PEM"},
		"no authorities":   {Options{HTTPTLS: TLS{Cert: cert, Key: key, ClientCA: garbage}}, "http tls client ca", "PEM"},
		"a name alone":     {Options{HTTPTLS: TLS{Cert: cert, Key: key, ClientSAN: "x"}}, "http tls client ca", "no such file"},
		"store's no PEM":   {Options{Store: "rediss://h", StoreTLS: store.TLS{CA: garbage}}, "store tls ca", "PEM"},
		"store's absent":   {Options{Store: "rediss://h", StoreTLS: store.TLS{CA: "absent"}}, "store tls ca", "no such file"},
		"store's key":      {Options{Store: "rediss://h", StoreTLS: store.TLS{Cert: cert, Key: otherKey}}, "store tls cert", "does not match"},
		"store by no TLS":  {Options{Store: "redis://h", StoreTLS: store.TLS{AnyHost: true}}, "store", "rediss://"},
		"store in memory":  {Options{StoreTLS: store.TLS{CA: cert}}, "store", "rediss://"},
		"braces in prefix": {Options{StorePrefix: "{a}"}, "store prefix", "no braces"},
	} {
		wantInvalid(t, name, test.options, test.field, test.want)
	}
}

func TestStoreByTLS(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	cert, key := i.pair("weir.test")
	files := testserver.TLS{CA: i.file}
	files.Cert, files.Key = i.pair("redis.test")
	url := testserver.Spec{TLS: files}.Redis(t).TLSURL()
	for name, test := range map[string]struct {
		tls    store.TLS
		served bool
	}{
		"all it takes":  {store.TLS{CA: i.file, Cert: cert, Key: key, AnyHost: true}, true},
		"another host":  {store.TLS{CA: i.file, Cert: cert, Key: key}, false},
		"unknown to us": {store.TLS{Cert: cert, Key: key, AnyHost: true}, false},
		"unknown to it": {store.TLS{CA: i.file, AnyHost: true}, false},
	} {
		app := start(t, Options{Store: url, StoreTLS: test.tls, StorePrefix: "p_"})
		if status, body := get(t, app, "/readyz"); (status == http.StatusOK) != test.served {
			t.Errorf("%s: %d %s, want served: %t", name, status, body, test.served)
		}
	}
}
