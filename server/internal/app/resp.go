package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/resp"
)

// RESPOff is the address of a server that Redis clients cannot speak to.
const RESPOff = "off"

// validateRESP names what keeps Redis clients from being served.
func (o *Options) validateRESP() error {
	if o.RESP == RESPOff {
		return nil
	}
	host, port, err := net.SplitHostPort(o.RESP)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &weir.InvalidError{Field: "resp", Value: strconv.Quote(o.RESP), Want: "off or host:port, such as 127.0.0.1:6380"}
	}
	if o.RESPPasswordFile == "" && o.RESPTLS.ClientCA == "" && o.Callers == "" && !loopback(host) {
		return &weir.InvalidError{Field: "resp", Value: strconv.Quote(o.RESP), Want: "a loopback address, or a password file or client certificates: others can reach this one"}
	}
	return nil
}

// loopback reports whether only this machine can reach a host. Names other than
// localhost can mean anything.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// newRESP returns the server of Redis clients, or nil where there is none.
func (a *App) newRESP() (*resp.Server, error) {
	o := &a.options
	if o.RESP == RESPOff {
		return nil, nil
	}
	by, err := a.authenticator("resp")
	if err != nil {
		return nil, err
	}
	if a.respTLS, err = o.serverTLS("resp tls", o.RESPTLS); err != nil {
		return nil, err
	}
	return resp.New(resp.Options{
		Taker: a.frontEnd("resp"), Callers: by, Timeout: o.Timeout, MaxConnections: o.RESPMaxConnections,
		Panics: a.panics("resp"), Logger: a.seldom,
	})
}

// listenRESP begins to listen for Redis clients; the listener is nil where there
// are none.
func (a *App) listenRESP(ctx context.Context) (net.Listener, error) {
	if a.resp == nil {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", a.options.RESP)
	if err != nil {
		return nil, fmt.Errorf("server: start: resp: %w", err)
	}
	if a.respTLS != nil {
		listener = tls.NewListener(listener, a.respTLS)
	}
	return listener, nil
}

// serveRESP answers Redis clients in the background.
func (a *App) serveRESP(listener net.Listener) {
	a.serving.Go(func() {
		if err := a.resp.Serve(listener); err != nil {
			a.fail(fmt.Errorf("server: serve resp: %w", err))
		}
	})
}

// stopRESP hangs up on Redis clients once they are answered; the function that
// it returns waits for that.
func (a *App) stopRESP(ctx context.Context) (wait func() error) {
	if a.resp == nil {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- a.resp.Shutdown(ctx) }()
	return func() error {
		if err := <-done; err != nil {
			return fmt.Errorf("server: stop: %w", err)
		}
		return nil
	}
}
