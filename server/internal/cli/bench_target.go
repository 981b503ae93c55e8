package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/client"
	"github.com/weirlimit/weir/server/internal/cputime"
	"github.com/weirlimit/weir/stack"
)

const (
	// benchPatience is how long a server has for an answer.
	benchPatience = 10 * time.Second
	// benchConnections are those of gRPC, each of which carries many calls.
	benchConnections = 4
	benchPrefix      = "weir-bench:"
)

// benchTargets are what can be loaded.
const benchTargets = "memory, redis://…, http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"

// benchAim is what to load, and as whom.
type benchAim struct {
	target, limit    string
	domain, entry    string
	tokenFile, token string
	clear            bool // the token may go in plain text
	tls              clientTLS
	pid              int

	scheme string
}

// A benchTarget answers one key a call.
type benchTarget struct {
	io.Closer
	allow func(ctx context.Context, key string) (granted bool, err error)
	// others is what the target's own process has used of processors, false where
	// nobody tells; nil where it has none of its own.
	others func(ctx context.Context) (time.Duration, bool)
}

// check reads the target and refuses flags that mean nothing to it.
func (a *benchAim) check(given func(flag string) bool) error {
	a.scheme, _, _ = strings.Cut(a.target, ":")
	var foreign []string
	switch a.scheme {
	case "memory", "redis", "rediss", "unix":
		foreign = []string{"domain", "entry", "token-file", insecureToken, "ca", "cert", "key", "pid"}
	case "http", "https", "grpc", "grpcs":
		foreign = []string{"limit"}
		if !a.secured() {
			foreign = append(foreign, "ca", "cert", "key")
		}
		u, err := url.Parse(a.target)
		if err != nil || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery != "" {
			value := strconv.Quote(a.target)
			if strings.Contains(a.target, "@") {
				value = "with a user" // and perhaps a password
			}
			return &weir.InvalidError{Field: "target", Value: value, Want: a.scheme + "://HOST:PORT and no more"}
		}
		if a.tokenFile != "" && !a.clear {
			if err := checkClearText("token-file", u); err != nil {
				return err
			}
		}
	default:
		// It may hold a password.
		return &weir.InvalidError{Field: "target", Value: "of no known kind", Want: benchTargets}
	}
	for _, flag := range foreign {
		if given(flag) {
			return &weir.InvalidError{Field: flag, Value: "given", Want: "none: it says nothing to " + a.name()}
		}
	}
	return a.checkPID(given("pid"))
}

func (a *benchAim) checkPID(given bool) error {
	if !given {
		return nil
	}
	if _, err := cputime.Of(a.pid); a.pid < 1 || err != nil {
		return &weir.InvalidError{Field: "pid", Value: strconv.Itoa(a.pid), Want: "a process on this machine, which has to be Linux"}
	}
	return nil
}

// isServer reports whether a server is asked, under its own rules.
func (a *benchAim) isServer() bool { return strings.HasPrefix(a.scheme, "http") || a.isRLS() }

func (a *benchAim) isRLS() bool { return strings.HasPrefix(a.scheme, "grpc") }

// secured reports whether it is asked over TLS.
func (a *benchAim) secured() bool { return a.scheme == "https" || a.scheme == "grpcs" }

// name is what the target is called where a password must not be seen.
func (a *benchAim) name() string {
	u, err := url.Parse(a.target)
	if err != nil || u.Host == "" {
		return a.scheme
	}
	return a.scheme + "://" + u.Host
}

// described is the target and what it is asked.
func (a *benchAim) described() string {
	if a.isServer() {
		return fmt.Sprintf("%s, domain %s, entry %s", a.name(), plainly(a.domain), plainly(a.entry))
	}
	return fmt.Sprintf("%s, %s a key", a.name(), a.limit)
}

// open makes the target ready for so many callers. It may connect to nothing yet.
func (a *benchAim) open(callers int) (*benchTarget, error) {
	if a.isServer() {
		return a.openServer(callers)
	}
	return a.openStore()
}

func (a *benchAim) openStore() (*benchTarget, error) {
	limit, err := weir.ParseLimit(a.limit)
	if err != nil {
		return nil, err
	}
	if limit.Algorithm == weir.Concurrency {
		return nil, &weir.InvalidError{Field: "limit", Value: strconv.Quote(a.limit), Want: "one that counts units: nobody would give places back"}
	}
	store, client, err := app.OpenStore(app.Options{Store: a.target, StorePrefix: benchPrefix})
	if err != nil {
		return nil, named("target", err)
	}
	t := &benchTarget{Closer: io.NopCloser(nil)}
	if client != nil {
		t.Closer, t.others = client, func(ctx context.Context) (time.Duration, bool) { return redisCPU(ctx, client) }
		// As in a server, but for what it would answer without Redis.
		store = stack.New(store, stack.Options{AskAlways: true})
	}
	limiter, err := weir.NewLimiter(store, limit)
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.allow = func(ctx context.Context, key string) (bool, error) {
		d, err := limiter.Allow(ctx, key)
		return d.Allowed(), err
	}
	return t, nil
}

// redisCPU is what Redis says of itself, where it may be asked.
func redisCPU(ctx context.Context, client redis.UniversalClient) (time.Duration, bool) {
	text, err := client.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, false
	}
	var used time.Duration
	for line := range strings.SplitSeq(text, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, false
			}
			used += time.Duration(seconds * float64(time.Second))
		}
	}
	return used, true
}

func (a *benchAim) openServer(callers int) (*benchTarget, error) {
	if a.tokenFile != "" {
		text, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, &weir.InvalidError{Field: "token-file", Value: strconv.Quote(a.tokenFile), Want: "a file with a token: " + err.Error()}
		}
		a.token, _, _ = strings.Cut(strings.TrimSpace(string(text)), "\n")
		a.token = strings.TrimSpace(a.token)
	}
	asks, err := a.dial(callers)
	if err != nil {
		return nil, err
	}
	t := &benchTarget{Closer: asks, allow: func(ctx context.Context, key string) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, benchPatience)
		defer cancel()
		return asks.Allow(ctx, key)
	}}
	if a.pid > 0 {
		t.others = func(context.Context) (time.Duration, bool) {
			used, err := cputime.Of(a.pid)
			return used, err == nil
		}
	}
	return t, nil
}

// asker is a client of a server.
type asker interface {
	io.Closer
	Allow(ctx context.Context, key string) (bool, error)
}

func (a *benchAim) dial(callers int) (asker, error) {
	o := client.Options{Domain: a.domain, Entry: a.entry, Connections: callers, Token: a.token}
	if a.secured() {
		var err error
		if o.TLS, err = a.tls.config(""); err != nil {
			return nil, err
		}
	}
	target := strings.TrimRight(a.target, "/")
	if a.isRLS() {
		o.Connections = benchConnections
		return client.DialRLS(strings.TrimPrefix(target, a.scheme+"://"), o)
	}
	return client.DialHTTP(target+"/v1/auth?"+url.Values{"domain": {a.domain}}.Encode()+"&entry="+url.QueryEscape(a.entry+"="), o), nil
}
