package server

import (
	"context"
	"net"
	"strings"
)

// An access says who reaches a listener and how it tells its callers apart.
type access struct {
	listener string // "http", "grpc", "resp" or "admin"
	address  string // as the option has it
	secrets  string // the file of tokens or passwords; empty: none
	setting  string // that names it
	tls      TLS
}

// accesses returns the access of each listener that the options ask for.
func (o *Options) accesses() []access {
	all := []access{
		{"http", o.HTTP, o.HTTPTokenFile, "http token file", o.HTTPTLS},
		{"grpc", o.GRPC, o.GRPCTokenFile, "grpc token file", o.GRPCTLS},
		{"resp", o.RESP, o.RESPPasswordFile, "resp password file", TLS{}},
		{"admin", o.Admin.Address, o.Admin.TokenFile, "admin token file", o.Admin.TLS},
	}
	var on []access
	for _, a := range all {
		if a.address != off {
			on = append(on, a)
		}
	}
	return on
}

// exposed reports whether other machines can reach the listener.
func (a *access) exposed() bool {
	host, _, _ := net.SplitHostPort(a.address)
	return !strings.HasPrefix(a.address, "unix:") && !loopback(host)
}

// open reports whether the listener serves everybody who reaches it.
func (a *access) open() bool { return a.secrets == "" && a.tls.ClientCA == "" }

// flag returns the flag of a setting.
func flag(setting string) string { return "--" + strings.ReplaceAll(setting, " ", "-") }

// warnOfOpenListeners logs each listener that other machines reach and that asks them
// for nothing. That stops nothing: a network policy or a mesh may be in front of it.
func (o *Options) warnOfOpenListeners(ctx context.Context) {
	for _, a := range o.accesses() {
		if a.exposed() && a.open() {
			o.Logger.WarnContext(ctx, "a listener serves everybody who reaches it", "listener", a.listener, "address", a.address,
				"want", flag(a.setting)+", "+flag(a.listener+" tls client ca")+" or a loopback address")
		}
	}
}
