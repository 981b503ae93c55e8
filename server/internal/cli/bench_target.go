package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/server/internal/loadtest"
	"github.com/weirlimit/weir/server/internal/settingfile"
	"github.com/weirlimit/weir/server/internal/store"
)

const (
	benchTimeout     = 10 * time.Second // of a request
	benchConnections = 4                // of gRPC; each carries many calls
	benchPrefix      = "weir-bench:"
)

const benchTargets = "memory, redis://…, http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"

// benchAim has the flags that describe the target.
type benchAim struct {
	target, limit string
	domain, entry string
	tokenFile     string
	clear         bool // the token may be sent in plain text
	tls           clientTLS
	pid           int

	scheme string
}

// defineServer defines the flags for a server.
func (a *benchAim) defineServer(flags *pflag.FlagSet) {
	flags.StringVar(&a.domain, "domain", "demo", "for a server: domain of the requests")
	flags.StringVar(&a.entry, "entry", "user", "for a server: descriptor entry whose values are the keys")
	defineInsecureToken(flags, &a.clear)
	flags.StringVar(&a.tokenFile, "token-file", "", "for a server: file with its token")
	flags.StringVar(&a.tls.ca, "ca", "", "for a server over TLS: CA certificates, PEM (default: the system's)")
	flags.StringVar(&a.tls.cert, "cert", "", "for a server over TLS: client certificate, PEM")
	flags.StringVar(&a.tls.key, "key", "", "for a server over TLS: key of the client certificate, PEM")
	flags.IntVar(&a.pid, "pid", 0, "for a server on this machine: its process ID, to report its CPU time per decision")
}

// A benchTarget is a store or a server under load.
type benchTarget struct {
	loadtest.Client
	// targetCPU returns the CPU time of the target's process, or false if it is unknown.
	// It is nil if the target is this process.
	targetCPU func(ctx context.Context) (time.Duration, bool)
}

// cpuTimes has the CPU time of this process, and of the target's if that is known.
type cpuTimes struct {
	own, target time.Duration
	known       bool
}

func (t *benchTarget) cpu(ctx context.Context) cpuTimes {
	times := cpuTimes{own: loadtest.OwnCPU()}
	if t.targetCPU != nil {
		times.target, times.known = t.targetCPU(ctx)
	}
	return times
}

func (c cpuTimes) since(before cpuTimes) cpuTimes {
	return cpuTimes{c.own - before.own, c.target - before.target, c.known && before.known}
}

// check parses the target and rejects flags that do not apply to it.
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
		return &weir.InvalidError{Field: "target", Value: "of an unknown scheme", Want: benchTargets}
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
	if _, err := loadtest.CPUOf(a.pid); a.pid < 1 || err != nil {
		return &weir.InvalidError{Field: "pid", Value: strconv.Itoa(a.pid), Want: "a process on this machine, which has to be Linux"}
	}
	return nil
}

// isServer reports whether the target is a server, which applies its own rules.
func (a *benchAim) isServer() bool { return strings.HasPrefix(a.scheme, "http") || a.isRLS() }

func (a *benchAim) isRLS() bool { return strings.HasPrefix(a.scheme, "grpc") }

// secured reports whether the target uses TLS.
func (a *benchAim) secured() bool { return a.scheme == "https" || a.scheme == "grpcs" }

// address returns HOST:PORT of a server.
func (a *benchAim) address() string {
	return strings.TrimRight(strings.TrimPrefix(a.target, a.scheme+"://"), "/")
}

// secrets reads the token, if one is given, and the configuration of TLS, if it is used.
func (a *benchAim) secrets() (token string, config *tls.Config, err error) {
	if a.tokenFile != "" {
		if token, err = readToken(a.tokenFile); err != nil {
			return "", nil, settingfile.Invalid("token-file", a.tokenFile, "a file with a token: "+err.Error())
		}
	}
	if a.secured() {
		config, err = a.tls.config("")
	}
	return token, config, err
}

// name returns the target without a password.
func (a *benchAim) name() string {
	u, err := url.Parse(a.target)
	if err != nil || u.Host == "" {
		return a.scheme
	}
	return a.scheme + "://" + u.Host
}

// described returns the target and the limit or the rules that apply.
func (a *benchAim) described() string {
	if a.isServer() {
		return fmt.Sprintf("%s, domain %s, entry %s", a.name(), plainly(a.domain), plainly(a.entry))
	}
	return fmt.Sprintf("%s, %s a key", a.name(), a.limit)
}

// open returns the target for a number of callers. It need not connect yet.
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
	if algo.TraitsOf(limit.Algorithm).HoldsSlots {
		return nil, &weir.InvalidError{Field: "limit", Value: strconv.Quote(a.limit), Want: "one that counts units: nothing would release the slots"}
	}
	opened, err := store.Open(store.Options{URL: a.target, Prefix: benchPrefix})
	if err != nil {
		return nil, named("target", err)
	}
	taker, client := opened.Taker, opened.Client
	if client != nil {
		// The layers of a server, without its fallback. A stall is to be measured rather than
		// taken for an outage.
		taker = stack.New(taker, stack.Options{DenyCacheEntries: -1, Remote: remote.Options{
			Policy: func(*weir.Charge) remote.Policy { return remote.Error },
			Calls:  calls.Options{Silence: time.Second},
		}})
	}
	limiter, err := weir.NewLimiter(taker, "test", limit)
	if err != nil {
		return nil, err
	}
	t := &benchTarget{Client: storeClient{limiter, client}}
	if client != nil {
		t.targetCPU = func(ctx context.Context) (time.Duration, bool) { return redisCPU(ctx, client) }
	}
	return t, nil
}

// named adds the name of a flag to an error about its value.
func named(flag string, err error) error {
	mistake := new(weir.InvalidError)
	if !errors.As(err, &mistake) {
		return err
	}
	return &weir.InvalidError{Field: flag + ", " + mistake.Path(), Value: mistake.Value, Want: mistake.Want, Default: mistake.Default}
}

// A storeClient asks a store as if it were a server.
type storeClient struct {
	limiter *weir.Limiter
	redis   redis.UniversalClient // nil for memory
}

func (s storeClient) Allow(ctx context.Context, key string) (bool, error) {
	d, err := s.limiter.Allow(ctx, key)
	return d.Allowed(), err
}

func (s storeClient) Close() error {
	if s.redis == nil {
		return nil
	}
	return s.redis.Close()
}

// redisCPU returns the CPU time that Redis reports, or false if the command is not allowed.
func redisCPU(ctx context.Context, client redis.UniversalClient) (time.Duration, bool) {
	info, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, false
	}
	var used time.Duration
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, false
		}
		used += time.Duration(seconds * float64(time.Second))
	}
	return used, true
}

// serverCPU returns a function that reads the server's CPU time, or nil without --pid.
func (a *benchAim) serverCPU() func(context.Context) (time.Duration, bool) {
	if a.pid == 0 {
		return nil
	}
	return func(context.Context) (time.Duration, bool) {
		used, err := loadtest.CPUOf(a.pid)
		return used, err == nil
	}
}

func (a *benchAim) openServer(callers int) (*benchTarget, error) {
	o := loadtest.ClientOptions{Timeout: benchTimeout, Domain: a.domain, Entry: a.entry, Connections: callers}
	var err error
	if o.Token, o.TLS, err = a.secrets(); err != nil {
		return nil, err
	}
	t := &benchTarget{targetCPU: a.serverCPU()}
	if a.isRLS() {
		o.Connections = benchConnections
		t.Client, err = loadtest.DialRLS(a.address(), o)
	} else {
		query := url.Values{"domain": {a.domain}}.Encode() + "&entry=" + url.QueryEscape(a.entry+"=")
		t.Client = loadtest.DialHTTP(strings.TrimRight(a.target, "/")+"/v1/auth?"+query, o)
	}
	return t, err
}
