package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/meter"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/mockmodel"
	"github.com/weirlimit/weir/server/internal/settingfile"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// DefaultModels is the address of the proxy for language models.
const DefaultModels = "127.0.0.1:8090"

// ModelOptions are the settings of a proxy for language models. With an Upstream or a Mock
// the server is one, and has no other listeners for clients.
type ModelOptions struct {
	Address         string
	Upstream        string
	Mock            bool // in place of an upstream
	UpstreamKeyFile string
	Domain          string // empty: the only one of the rules
	MaxBody         int    // in MiB
	UpstreamTimeout time.Duration
	MaxConnections  int
	TLS             TLS
}

func (o *ModelOptions) on() bool { return o.Upstream != "" || o.Mock }

// notOfModels are the groups and flags of weir serve that a proxy for language models does
// not have.
var (
	groupsNotOfModels = map[string]bool{"Rules over xDS": true, "Answers": true, "Envoy's rate limit service": true}
	flagsNotOfModels  = map[string]bool{"envoyproxy-metrics": true, "max-descriptors": true, "max-value-bytes": true}
)

// ModelSettings returns the settings of a proxy for language models.
func (o *Options) ModelSettings() []Setting {
	all := o.modelSettings()
	for _, s := range o.Settings() {
		listener, _, _ := strings.Cut(s.Flag, "-")
		if groupsNotOfModels[s.Group] || flagsNotOfModels[s.Flag] || listener == "http" || listener == "grpc" || listener == "resp" {
			continue
		}
		if s.Flag == "request-memory" {
			s.Default = 256
		}
		all = append(all, s)
	}
	return all
}

// modelSettings returns those that weir serve does not have.
func (o *Options) modelSettings() []Setting {
	m := &o.Models
	return append(group("Models",
		setting("upstream", &m.Upstream, "",
			"Forward requests to the provider at this URL, such as https://api.openai.com.",
			func(text string) string {
				u, err := url.Parse(text)
				return unless(text == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "", "http://HOST or https://HOST, and a path")
			}),
		toggle("mock", &m.Mock, false,
			"Forward requests to a provider of our own that answers with words, to try limits without\na key."),
		setting("listen", &m.Address, DefaultModels,
			"Listen for clients of language models at this address; port 0 picks a free one.",
			address("host:port, such as "+DefaultModels)),
		setting("domain", &m.Domain, "", "Apply the rules of this domain (default: the only domain of the rules)."),
		secretFile("upstream-key-file", &m.UpstreamKeyFile,
			"Send the key in this file to the provider, in place of the caller's token. Needs --callers."),
		setting("max-body", &m.MaxBody, 32, "Refuse requests with more MiB.", within(1, 1024, "1 … 1024")),
		setting("upstream-timeout", &m.UpstreamTimeout, 30*time.Minute,
			"End a request after this time, its stream included. It is also the life of its hold.",
			func(d time.Duration) string { return unless(d >= time.Second && d <= weir.MaxWait, "1s … 24h") }),
		setting("models-max-connections", &m.MaxConnections, 4096, "Keep at most this many connections of clients open.", positive),
	), group("Security", tlsSettings("models", &m.TLS))...)
}

// newModels returns the proxy for language models, and the mock that it forwards to; nil
// where there is none.
func (a *App) newModels() (*listener, *listener, error) {
	o, t := &a.options, a.telemetry
	m := &o.Models
	options := meter.Options{
		Rules: a.rules.Load, Domain: m.Domain, Taker: t.frontEnd("models", a.engine), Timeout: o.Timeout, UpstreamTimeout: m.UpstreamTimeout,
		MaxBody: int64(m.MaxBody) << 20, Bounds: o.Limits.Bounds, Budget: a.budget, Rejected: t.rejections("models"), Unmatched: t.unmatched,
		Observer: modelObserver{t.metrics.Models(), &t.traffic.Models}, Logger: o.Logger,
	}
	if domains := a.rules.Load().Domains(); m.Domain == "" {
		if len(domains) != 1 {
			return nil, nil, &weir.InvalidError{Field: "domain", Value: "none", Want: fmt.Sprintf("one of the %d domains of the rules", len(domains))}
		}
		options.Domain = domains[0]
	}
	var err error
	if options.Callers, err = a.authenticator("models"); err != nil {
		return nil, nil, err
	}
	if err := a.upstreamKey(&options); err != nil {
		return nil, nil, err
	}
	var mock *listener
	if m.Mock {
		if mock, err = a.newMock(&options); err != nil {
			return nil, nil, err
		}
	} else if options.Upstream, err = url.Parse(m.Upstream); err != nil {
		return nil, nil, &weir.InvalidError{Field: "upstream", Value: strconv.Quote(m.Upstream), Want: "a URL"}
	}
	proxy, err := meter.New(options)
	if err != nil {
		return nil, nil, err
	}
	a.closers.add("settlements", proxy.Stop)
	s := newHTTPServer(o.Logger, min(o.DrainDelay, maxDismissal))
	// A stream may last. The body has a deadline of its own.
	s.ReadTimeout, s.WriteTimeout, s.MaxHeaderBytes = time.Minute, 0, 64<<10
	s.Handler = o.Telemetry.Tracing.HTTP(t.panics("models").HTTP(proxy), meter.Paths()...)
	l, err := s.listener(o, "models", m.Address, m.TLS, m.MaxConnections, t)
	if err != nil {
		return nil, nil, err
	}
	drain := l.drain
	l.drain = func(ctx context.Context) error {
		defer cutBefore(ctx, proxy.Cut)()
		return drain(ctx)
	}
	return l, mock, nil
}

// A modelObserver has requests to language models counted for metrics and for the dashboard.
type modelObserver struct {
	*metrics.Models
	uses *traffic.ModelUses
}

func (o modelObserver) Stream(key, model string, change int) {
	o.Models.Stream(key, model, change)
	o.uses.Stream(key, model, change)
}

func (o modelObserver) Settled(key, model string, used map[string]int64) {
	o.Models.Settled(key, model, used)
	o.uses.Settled(key, model, used)
}

// cutTime is how long before the end of a stop the streams that are still open are cut, so
// that they end with an error event and are settled; at most a quarter of the time.
const cutTime = time.Second

// cutBefore calls cut shortly before ctx ends, unless the function that it returns is
// called first.
func cutBefore(ctx context.Context, cut func()) (stop func()) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return func() {}
	}
	left := time.Until(end)
	timer := time.AfterFunc(left-min(cutTime, left/4), cut)
	return func() { timer.Stop() }
}

// upstreamKey reads the credential for the provider.
func (a *App) upstreamKey(options *meter.Options) error {
	file := a.options.Models.UpstreamKeyFile
	if file == "" {
		return nil
	}
	if a.options.Callers == "" {
		return &weir.InvalidError{Field: "upstream key file", Value: strconv.Quote(file), Want: "--callers beside it: everybody would use the key"}
	}
	key, err := settingfile.Line("upstream key file", file)
	options.Key = func() string { return key }
	return err
}

// newMock returns the listener of a provider of our own, and makes the proxy forward to it.
func (a *App) newMock(options *meter.Options) (*listener, error) {
	if a.options.Models.Upstream != "" {
		return nil, &weir.InvalidError{Field: "mock", Value: "given", Want: "none beside --upstream"}
	}
	options.Upstream = &url.URL{Scheme: "http", Host: "mock"}
	options.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		for _, addr := range a.Addrs() {
			if addr.Protocol == "mock" {
				return new(net.Dialer).DialContext(ctx, "tcp", addr.Address)
			}
		}
		return nil, errStarted
	}
	s := newHTTPServer(a.options.Logger, 0)
	s.ReadTimeout, s.WriteTimeout = time.Minute, 0
	s.Handler = http.Handler(&mockmodel.Server{Pause: 20 * time.Millisecond})
	return s.listener(&a.options, "mock", "127.0.0.1:0", TLS{}, a.options.Models.MaxConnections, a.telemetry)
}
