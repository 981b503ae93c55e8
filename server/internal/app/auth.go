package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/plainhttp"
)

// An access describes which machines can reach a listener and how its callers
// authenticate.
type access struct {
	listener string // "http", "grpc", "resp" or "admin"
	address  string // as in the options
	secrets  string // the file of tokens or passwords; empty: none
	callers  string // the file of callers; empty: none
	setting  string // the option that names the secrets
	tls      TLS
}

// accesses returns the access of every listener, including those that are off.
func (o *Options) accesses() []access {
	return []access{
		{"http", o.HTTP, o.HTTPTokenFile, o.Callers, "http token file", o.HTTPTLS},
		{"grpc", o.GRPC, o.GRPCTokenFile, o.Callers, "grpc token file", o.GRPCTLS},
		{"models", cmp.Or(o.Models.Address, Off), "", cmp.Or(o.Callers, o.Models.JWT.Keys), "callers", o.Models.TLS},
		{"resp", o.RESP, o.RESPPasswordFile, o.Callers, "resp password file", o.RESPTLS},
		{"admin", o.Admin.Address, o.Admin.TokenFile, o.Callers, "admin token file", o.Admin.TLS},
	}
}

func (o *Options) accessOf(listener string) *access {
	all := o.accesses()
	return &all[slices.IndexFunc(all, func(a access) bool { return a.listener == listener })]
}

// exposed reports whether other machines can reach the listener.
func (a *access) exposed() bool {
	return a.address != Off && !strings.HasPrefix(a.address, "unix:") && !onLoopback(a.address)
}

// onLoopback reports whether only this machine can reach host:port. Names other than
// localhost can mean anything.
func onLoopback(hostPort string) bool {
	host, _, _ := net.SplitHostPort(hostPort)
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// open reports whether the listener serves every caller without credentials.
func (a *access) open() bool { return a.secrets == "" && a.callers == "" && a.tls.ClientCA == "" }

// leastSecret returns the least length of the listener's secrets, in bytes. On this
// machine Redis clients may keep the short password that they have.
func (a *access) leastSecret() int {
	if a.listener == "resp" && !a.exposed() {
		return 1
	}
	return callers.MinSecret
}

// check refuses secrets that would cross the network in plain text, unless the operator
// says that something else encrypts the connections.
func (a *access) check(encrypted bool) error {
	field, file := a.setting, a.secrets
	if file == "" {
		field, file = "callers", a.callers
	}
	if !a.exposed() || file == "" || a.tls.Cert != "" || encrypted {
		return nil
	}
	return &weir.InvalidError{
		Field: field, Value: strconv.Quote(file) + " for " + strconv.Quote(a.address),
		Want: flag(a.listener+" tls cert") + ", a loopback address, or --insecure-token where a mesh or a tunnel encrypts the connections:" +
			" secrets would cross the network in plain text",
	}
}

// flag returns the flag of a setting.
func flag(setting string) string { return "--" + strings.ReplaceAll(setting, " ", "-") }

// warnOfOpenListeners logs each listener that other machines reach and that asks its
// callers for nothing. That is no error: a network policy or a mesh may protect it.
func (o *Options) warnOfOpenListeners(ctx context.Context) {
	for _, a := range o.accesses() {
		if a.exposed() && a.open() {
			o.Logger.WarnContext(ctx, "a listener serves everybody who reaches it", "listener", a.listener, "address", a.address,
				"want", flag(a.setting)+", --callers, "+flag(a.listener+" tls client ca")+" or a loopback address")
		}
	}
}

// worldPermissions are the permissions that every user of a host has.
const worldPermissions = 0o007

// secretFiles returns the settings that name a file with a secret.
func (o *Options) secretFiles() []Setting {
	all := append(o.Settings(), o.modelSettings()...)
	return slices.DeleteFunc(all, func(s Setting) bool { return !s.Secret })
}

// warnOfOpenFiles logs which files with secrets every user of the host can use. That is
// no error: Kubernetes mounts files so by default.
func (o *Options) warnOfOpenFiles(ctx context.Context) {
	if runtime.GOOS == "windows" {
		return // it has no such permissions
	}
	for _, s := range o.secretFiles() {
		file := s.Field.(*string)
		if *file == "" {
			continue
		}
		info, err := os.Stat(*file)
		if err != nil || info.Mode().Perm()&worldPermissions == 0 {
			continue // the reader of the file reports an error
		}
		o.Logger.WarnContext(ctx, "a file with a secret is open to every user of this host", "setting", FieldOf(s.Flag), "file", *file,
			"mode", fmt.Sprintf("%04o", info.Mode().Perm()), "want", "no permissions for others, such as 0600 or 0640")
	}
}

// openSecrets opens the file of the listener's tokens or passwords; nil if there is none.
func (a *access) openSecrets(logger *slog.Logger) (*callers.Secrets, error) {
	return callers.SecretsFile{Setting: a.setting, File: a.secrets, Least: a.leastSecret(), Logger: logger}.Open()
}

// checkUnused refuses files of secrets that are wrong although their listener is off.
func (o *Options) checkUnused() error {
	for _, a := range o.accesses() {
		if a.address == Off {
			if _, err := a.openSecrets(o.Logger); err != nil {
				return err
			}
		}
	}
	return nil
}

// authenticator returns the authenticator for the callers of a listener, or nil if the
// options require no credentials.
func (a *App) authenticator(listener string, headers *callers.Headers, tokens *callers.JWT) (*callers.Authenticator, error) {
	secrets, err := a.options.accessOf(listener).openSecrets(a.options.Logger)
	if err != nil {
		return nil, err
	}
	if secrets != nil {
		a.files.add(secrets.Refresh)
	}
	return callers.New(callers.Options{
		Listener: listener, Secrets: secrets, File: a.callers, Headers: headers, JWT: tokens, Logger: a.options.Logger,
		Failed: a.telemetry.metrics.AuthFailures(listener), Requests: a.telemetry.metrics.CallerRequests(listener),
	}), nil
}

// errToken answers callers that show no token, or a wrong one.
const errToken = "a token is needed: want Authorization: Bearer TOKEN"

// requireToken serves callers that show a token, as Bearer or as the password of Basic,
// which proxies can write into a URL, and everybody at public paths.
func requireToken(next http.Handler, by *callers.Authenticator) http.Handler {
	if by == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(public, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		shown := credentialsOf(r)
		if who, known := by.Authenticate(shown); known {
			next.ServeHTTP(w, plainhttp.Derive(w, r, who, callers.NewContext))
			return
		}
		shown.HangUp(w)
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
		(&problem.Document{Status: http.StatusUnauthorized, Detail: errToken, Field: "authorization"}).Write(w, r)
	})
}

func credentialsOf(r *http.Request) *callers.Credentials {
	shown := callers.FromRequest(r)
	if _, password, basic := r.BasicAuth(); basic && len(r.Header["Authorization"]) == 1 {
		shown.Token, shown.Shown = password, true
	}
	return shown
}

// isKnown returns a function that reports whether a request shows a known caller; nil,
// for no caller, if nothing is asked for.
func isKnown(by *callers.Authenticator) func(*http.Request) bool {
	if by == nil {
		return nil
	}
	return func(r *http.Request) bool {
		shown := credentialsOf(r)
		if !shown.Shown && shown.Certificate == nil {
			return false
		}
		_, known := by.Authenticate(shown)
		return known
	}
}

// requireRead serves callers that may read the admin API, in all domains.
func requireRead(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := callers.FromContext(r.Context()).May(callers.AdminRead, callers.AllDomains); err != nil {
			w.Header().Set("Cache-Control", "no-store")
			problem.Of(err).Write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authenticate authenticates the caller of a gRPC method by the values of its
// authorization, its address and the state of its TLS, either of which may be nil. The
// error is a status.
func authenticate(by *callers.Authenticator, authorization []string, addr net.Addr, state *tls.ConnectionState) (*callers.Identity, error) {
	shown := &callers.Credentials{Certificate: callers.Genuine(state)}
	shown.Token, shown.Shown = callers.Bearer(authorization)
	if addr != nil {
		shown.Remote = addr
	}
	from, counted := addr.(*countedAddr)
	if counted {
		shown.Connection = &from.conn.attempts
	}
	who, known := by.Authenticate(shown)
	if known {
		return who, nil
	}
	if shown.Connection.Exhausted() {
		// The answer arrives before the connection ends. No goroutine waits for that.
		time.AfterFunc(hangUpAfter, func() { _ = from.conn.Close() })
	}
	return nil, status.Error(codes.Unauthenticated, errToken)
}

// hangUpAfter is how long a gRPC connection lives after too many failures in a row.
const hangUpAfter = 100 * time.Millisecond
