package app

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/callers"
)

// An access says who reaches a listener and how it tells its callers apart.
type access struct {
	listener string // "http", "grpc", "resp" or "admin"
	address  string // as the option has it
	secrets  string // the file of tokens or passwords; empty: none
	callers  string // the file of callers; empty: none
	setting  string // that names it
	tls      TLS
}

// accesses returns the access of every listener, those that are off included.
func (o *Options) accesses() []access {
	return []access{
		{"http", o.HTTP, o.HTTPTokenFile, o.Callers, "http token file", o.HTTPTLS},
		{"grpc", o.GRPC, o.GRPCTokenFile, o.Callers, "grpc token file", o.GRPCTLS},
		{"resp", o.RESP, o.RESPPasswordFile, o.Callers, "resp password file", o.RESPTLS},
		{"admin", o.Admin.Address, o.Admin.TokenFile, o.Callers, "admin token file", o.Admin.TLS},
	}
}

// accessOf returns the access of a listener by its name.
func (o *Options) accessOf(listener string) *access {
	all := o.accesses()
	return &all[slices.IndexFunc(all, func(a access) bool { return a.listener == listener })]
}

// exposed reports whether other machines can reach the listener.
func (a *access) exposed() bool {
	if a.address == off {
		return false
	}
	host, _, _ := net.SplitHostPort(a.address)
	return !strings.HasPrefix(a.address, "unix:") && !loopback(host)
}

// open reports whether the listener serves everybody who reaches it.
func (a *access) open() bool { return a.secrets == "" && a.callers == "" && a.tls.ClientCA == "" }

// leastSecret returns how many bytes each of the listener's secrets has at least. Redis
// clients keep the password that they know, where nobody else can guess it.
func (a *access) leastSecret() int {
	if a.listener == "resp" && !a.exposed() {
		return 1
	}
	return callers.MinSecret
}

// flag returns the flag of a setting.
func flag(setting string) string { return "--" + strings.ReplaceAll(setting, " ", "-") }

// checkClearText refuses secrets that other machines would send over connections
// without TLS, unless the options say that something else encrypts them.
func (o *Options) checkClearText() error {
	for _, a := range o.accesses() {
		field, file := a.setting, a.secrets
		if file == "" {
			field, file = "callers", a.callers
		}
		if a.exposed() && file != "" && a.tls.Cert == "" && !o.InsecureToken {
			return &weir.InvalidError{
				Field: field, Value: strconv.Quote(file) + " for " + strconv.Quote(a.address),
				Want: flag(a.listener+" tls cert") + ", a loopback address, or --insecure-token where a mesh or a tunnel encrypts the connections:" +
					" secrets would cross the network in plain text",
			}
		}
	}
	return nil
}

// warnOfOpenListeners logs each listener that other machines reach and that asks them
// for nothing. That stops nothing: a network policy or a mesh may be in front of it.
func (o *Options) warnOfOpenListeners(ctx context.Context) {
	for _, a := range o.accesses() {
		if a.exposed() && a.open() {
			o.Logger.WarnContext(ctx, "a listener serves everybody who reaches it", "listener", a.listener, "address", a.address,
				"want", flag(a.setting)+", --callers, "+flag(a.listener+" tls client ca")+" or a loopback address")
		}
	}
}
