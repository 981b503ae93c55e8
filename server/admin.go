package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/notice"
	"github.com/weirlimit/weir/override/shared"
	"github.com/weirlimit/weir/server/admin"
	"github.com/weirlimit/weir/server/resp"
)

const (
	// DefaultAdmin is where administrators expect to find a server.
	DefaultAdmin = "127.0.0.1:6070"
	// AdminOff is the address of a server that has no such listener.
	AdminOff = "off"
)

// AdminOptions are about the listener for administrators. The zero value is valid:
// there is none.
type AdminOptions struct {
	// Address is host:port, or [AdminOff]; one that others can reach needs a
	// token or client certificates. Empty: [AdminOff].
	Address string
	// TokenFile holds, on its only line, what callers have to say. Empty: nothing.
	TokenFile string
	// CertFile and KeyFile are the certificate of the server, PEM; both or none.
	// They are read for each connection, so that they can be renewed.
	CertFile, KeyFile string
	// ClientCAFile has those who sign the certificates of callers, PEM, who then
	// need one. Empty: callers need none.
	ClientCAFile string
}

// validate names what keeps administrators from being served.
func (o *AdminOptions) validate() error {
	if o.Address == AdminOff {
		return nil
	}
	if err := checkAddress("admin", o.Address, DefaultAdmin+", or off"); err != nil {
		return err
	}
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return &weir.InvalidError{Field: "admin tls cert", Value: strconv.Quote(o.CertFile), Want: "a certificate and its key, or neither"}
	case o.ClientCAFile != "" && o.CertFile == "":
		return &weir.InvalidError{Field: "admin tls client ca", Value: strconv.Quote(o.ClientCAFile), Want: "a certificate of the server beside it"}
	case !o.loopback() && o.TokenFile == "" && o.ClientCAFile == "":
		return &weir.InvalidError{
			Field: "admin", Value: strconv.Quote(o.Address),
			Want: "a loopback address, or a token file or client certificates: others can reach this one",
		}
	}
	return nil
}

func (o *AdminOptions) loopback() bool {
	host, _, _ := net.SplitHostPort(o.Address)
	return loopback(host)
}

// tls returns how callers are spoken to; nil for in the clear.
func (o *AdminOptions) tls() (*tls.Config, error) {
	if o.CertFile == "" {
		return nil, nil
	}
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, fmt.Errorf("server: admin tls cert: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: load}
	if o.ClientCAFile == "" {
		return config, nil
	}
	text, err := os.ReadFile(o.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("server: admin tls client ca: %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, &weir.InvalidError{Field: "admin tls client ca", Value: strconv.Quote(o.ClientCAFile), Want: "certificates, PEM"}
	}
	return config, nil
}

// newAdmin returns the server of administrators, or nil where there is none. The
// handler of everybody's listener answers for its health.
func (a *App) newAdmin(health http.Handler) (*http.Server, error) {
	o := &a.options.Admin
	if o.Address == AdminOff {
		return nil, nil
	}
	token, err := readSecret("admin token file", o.TokenFile)
	if err != nil {
		return nil, err
	}
	secured, err := o.tls()
	if err != nil {
		return nil, err
	}
	options := admin.Options{
		Rules:       a.rules.Load,
		Loaded:      func() admin.Loaded { return a.loaded.tell(a.reload) },
		Taker:       a.overrides,
		Overrides:   a.overrides,
		ThrottleKey: resp.Key,
		Mounts:      map[string]http.Handler{"GET /healthz": health, "GET /readyz": health},
		Token:       token,
		Loopback:    o.loopback(),
		Timeout:     a.options.Timeout,
		Logger:      a.logger,
	}
	if a.sharer != nil {
		options.Announcer = a.sharer
	}
	handler, err := admin.New(options)
	if err != nil {
		return nil, err
	}
	server := newHTTPServer(handler, a.logger)
	server.TLSConfig = secured
	// A profile that is being made ends when the server stops.
	base, cut := context.WithCancel(context.Background())
	server.BaseContext = func(net.Listener) context.Context { return base }
	server.RegisterOnShutdown(cut)
	return server, nil
}

// newSharer returns what keeps the overrides of all instances alike, with the bus
// that it uses; nil where the store is this process's own.
func (a *App) newSharer() error {
	if a.store.client == nil {
		return nil
	}
	bus, err := notice.NewRedis(a.store.client, notice.RedisOptions{Logger: a.logger})
	if err != nil {
		return err
	}
	a.bus = bus
	a.sharer, err = shared.New(shared.Options{
		Taker: a.overrides, Client: a.store.client, Bus: bus, Timeout: a.options.Timeout, Logger: a.logger,
	})
	return err
}

// share begins to follow the overrides of other instances.
func (a *App) share() {
	if a.sharer != nil {
		a.bus.Start()
		a.sharer.Start()
	}
}

// unshare ends it.
func (a *App) unshare(ctx context.Context) error {
	if a.sharer == nil {
		return nil
	}
	return errors.Join(a.bus.Stop(ctx), a.sharer.Stop(ctx))
}

// listenAdmin begins to listen for administrators; the listener is nil where there
// are none.
func (a *App) listenAdmin(ctx context.Context) (net.Listener, error) {
	if a.admin == nil {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", a.options.Admin.Address)
	if err != nil {
		return nil, fmt.Errorf("server: start: admin: %w", err)
	}
	return listener, nil
}

// serveAdmin answers administrators in the background.
func (a *App) serveAdmin(listener net.Listener) {
	a.serving.Go(func() {
		err := error(nil)
		if a.admin.TLSConfig != nil {
			err = a.admin.ServeTLS(listener, "", "")
		} else {
			err = a.admin.Serve(listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			a.fail(fmt.Errorf("server: serve admin: %w", err))
		}
	})
}

// stopAdmin is for when everything else has stopped, which administrators may want
// to watch.
func (a *App) stopAdmin(ctx context.Context) error {
	if a.admin == nil {
		return nil
	}
	if err := a.admin.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("server: stop: admin: %w", err), a.admin.Close())
	}
	return nil
}

// loaded is since when which set of rules is in force.
type loaded struct {
	path string
	last atomic.Pointer[revision]
}

type revision struct {
	digest string
	at     time.Time
}

// note says that rules came into force whose files had that fingerprint.
func (l *loaded) note(fingerprint []byte) {
	r := &revision{at: time.Now()}
	if l.path != "" {
		r.digest = hex.EncodeToString(fingerprint[:8])
	}
	l.last.Store(r)
}

// tell says it to administrators.
func (l *loaded) tell(r *reloader) admin.Loaded {
	last := l.last.Load()
	told := admin.Loaded{Path: l.path, Revision: last.digest, At: last.at}
	if r != nil {
		told.Err = r.err()
	}
	return told
}
