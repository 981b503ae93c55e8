package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/weirlimit/weir/server/internal/resp"
)

// A listener serves one protocol at one address.
type listener struct {
	name    string // "http", "grpc", "resp", "metrics" or "admin"
	address string // host:port or unix:/path
	// wrap returns the listener from which the server accepts connections.
	wrap func(net.Listener) net.Listener
	// serve serves until drain is called. It returns nil then.
	serve func(net.Listener) error
	// drain accepts no more connections and waits for calls in flight. When ctx ends it
	// cuts them off. It may be called without serve.
	drain func(context.Context) error
}

// made returns the listeners that are not off.
func made(makers ...func() (*listener, error)) ([]*listener, error) {
	var all []*listener
	for _, maker := range makers {
		l, err := maker()
		if err != nil {
			return nil, err
		}
		if l != nil {
			all = append(all, l)
		}
	}
	return all, nil
}

// A socket is a listener that is open.
type socket struct {
	*listener
	net.Listener
}

// open begins to listen.
func (l *listener) open(ctx context.Context) (*socket, error) {
	network, address := "tcp", l.address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
		removeStale(ctx, path)
	}
	var config net.ListenConfig
	opened, err := config.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("server: start: %s: %w", l.name, err)
	}
	return &socket{l, l.wrap(opened)}, nil
}

// addr returns the address in use. Go writes [::] for 0.0.0.0, which means the same to it.
func (s *socket) addr() Addr {
	address := s.Addr().String()
	if s.Addr().Network() == "unix" {
		address = "unix:" + address
	} else if rest, found := strings.CutPrefix(address, "[::]"); found && strings.HasPrefix(s.address, "0.0.0.0:") {
		address = "0.0.0.0" + rest
	}
	return Addr{s.name, address}
}

// openAll opens every listener, or none.
func openAll(ctx context.Context, listeners []*listener) ([]*socket, error) {
	var opened []*socket
	for _, l := range listeners {
		s, err := l.open(ctx)
		if err != nil {
			return nil, errors.Join(err, closeAll(opened))
		}
		opened = append(opened, s)
	}
	return opened, nil
}

func closeAll(sockets []*socket) error {
	var err error
	for _, s := range sockets {
		err = errors.Join(err, s.Close())
	}
	return err
}

// drainAll drains listeners at the same time.
func drainAll(ctx context.Context, listeners []*listener) error {
	errs := make([]error, len(listeners))
	var draining sync.WaitGroup
	for i, l := range listeners {
		draining.Go(func() {
			if err := l.drain(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", l.name, err)
			}
		})
	}
	draining.Wait()
	return errors.Join(errs...)
}

// newRESP returns the listener of Redis clients; nil if it is off.
func (a *App) newRESP() (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.RESP == Off {
		return nil, nil
	}
	by, err := a.authenticator("resp", nil, nil)
	if err != nil {
		return nil, err
	}
	secured, err := o.serverTLS("resp tls", o.RESPTLS)
	if err != nil {
		return nil, err
	}
	server := resp.New(resp.Options{
		Taker: t.frontEnd("resp", a.engine), Rules: a.rules.Load, Callers: by, Timeout: o.Timeout, MaxConnections: o.RESPMaxConnections,
		Panics: t.panics("resp"), Logger: t.seldom,
	})
	t.connections["resp"] = server.Clients
	return &listener{
		name: "resp", address: o.RESP, serve: server.Serve, drain: func(ctx context.Context) error { return server.Shutdown(ctx) },
		wrap: func(l net.Listener) net.Listener {
			if secured != nil {
				l = tls.NewListener(l, secured)
			}
			return l
		},
	}, nil
}

// removeStale removes a socket that a process left behind when it was killed. If it
// cannot, listening fails with the reason.
func removeStale(ctx context.Context, path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		_ = os.Remove(path)
		return
	}
	_ = conn.Close()
}

// A closer closes a named resource.
type closer struct {
	name  string
	close func(context.Context) error
}

// closers close resources, the last one first.
type closers []closer

func (c *closers) add(name string, stop func(context.Context) error) {
	*c = append(*c, closer{name, stop})
}

// close closes everything; an error does not keep the rest open.
func (c closers) close(ctx context.Context) error {
	var err error
	for i := len(c) - 1; i >= 0; i-- {
		if failed := c[i].close(ctx); failed != nil {
			err = errors.Join(err, fmt.Errorf("server: stop: %s: %w", c[i].name, failed))
		}
	}
	return err
}
