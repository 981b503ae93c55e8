package app

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/weirlimit/weir/server/internal/resp"
)

// newRESP returns the listener of Redis clients; nil if it is off.
func (a *App) newRESP() (*listener, error) {
	o, t := &a.options, a.telemetry
	if o.RESP == Off {
		return nil, nil
	}
	by, err := a.authenticator("resp")
	if err != nil {
		return nil, err
	}
	secured, err := o.serverTLS("resp tls", o.RESPTLS)
	if err != nil {
		return nil, err
	}
	server, err := resp.New(resp.Options{
		Taker: t.frontEnd("resp", a.engine), Callers: by, Timeout: o.Timeout, MaxConnections: o.RESPMaxConnections,
		Panics: t.panics("resp"), Logger: t.seldom,
	})
	if err != nil {
		return nil, err
	}
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
