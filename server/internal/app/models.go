package app

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/dashboard"
	"github.com/weirlimit/weir/server/internal/metrics"
	"github.com/weirlimit/weir/server/internal/models/journal"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/models/meter"
	"github.com/weirlimit/weir/server/internal/models/mockmodel"
	"github.com/weirlimit/weir/server/internal/rules"
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
	Wait            time.Duration // for room; 0 for not at all
	Ledger          bool          // record what is used
	LedgerZone      string        // where its months begin; empty: UTC
	Journal         string        // a folder; empty: none
	AlertWebhook    string
	AlertSecretFile string
	ReadOn          time.Duration // after the client has left; 0 for not at all
	MaxConnections  int
	TLS             TLS
	// IdentityHeader says which header has which label of the caller, as user=X-User,team=X-Team,
	// and IdentityFrom who may send them.
	IdentityHeader, IdentityFrom string
	JWT                          JWTOptions
}

// JWTOptions are the settings of tokens of an issuer. All are given, or none.
type JWTOptions struct {
	Keys, Issuer, Audience, Label string
}

// identify reports whether callers are known by anything but their credentials for the provider.
func (o *Options) identify() bool {
	return o.Callers != "" || o.Models.IdentityHeader != "" || o.Models.JWT.Keys != ""
}

func (o *ModelOptions) on() bool { return o.Upstream != "" || o.Mock }

// notOfModels are the groups and flags of weir serve that a proxy for language models does
// not have.
var (
	groupsNotOfModels = map[string]bool{"Rules over xDS": true, "Answers": true, "Envoy's rate limit service": true}
	flagsNotOfModels  = map[string]bool{"envoyproxy-metrics": true, "max-descriptors": true}
)

// ModelSettings returns the settings of a proxy for language models.
func (o *Options) ModelSettings() []Setting {
	all := o.modelSettings()
	for _, s := range o.Settings() {
		listener, _, _ := strings.Cut(s.Flag, "-")
		if groupsNotOfModels[s.Group] || flagsNotOfModels[s.Flag] || listener == "http" || listener == "grpc" || listener == "resp" {
			continue
		}
		switch s.Flag {
		case "request-memory":
			s.Default, s.Help = 0, strings.TrimSuffix(s.Help, ".")+fmt.Sprintf("\n(default: a quarter of the memory limit, at most %d).", maxModelMemory)
		case "unmatched":
			s.Default, s.Help = "refuse", "Answer requests that no rule applies to: refuse or allow. They are counted and logged."
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
			"Forward requests to the provider at this URL, such as https://api.openai.com."),
		toggle("mock", &m.Mock, false,
			"Forward requests to a provider of our own that answers with words, to try limits without\na key."),
		setting("listen", &m.Address, DefaultModels,
			"Listen for clients of language models at this address, or at unix:/path; port 0 picks a\nfree one.",
			orSocket(address("host:port, such as "+DefaultModels+", or unix:/path"))),
		setting("domain", &m.Domain, "", "Apply the rules of this domain (default: the only domain of the rules)."),
		secretFile("upstream-key-file", &m.UpstreamKeyFile,
			"Send the key in this file to the provider, in place of the caller's token. Needs callers that\nWeir knows, as by --callers.\n"+
				"A new key is used within a second."),
		setting("max-body", &m.MaxBody, 32, "Refuse requests with more MiB.", within(1, 1024, "1 … 1024")),
		setting("upstream-timeout", &m.UpstreamTimeout, 30*time.Minute,
			"End a request after this time, its stream included. It is also the life of its hold.",
			func(d time.Duration) string { return unless(d >= time.Second && d <= weir.MaxWait, "1s … 24h") }),
		settingUnset("read-on", &m.ReadOn, 5*time.Second, 0,
			"Read an answer on for this long after its client has left, so that it costs what the\n"+
				"provider reports at its end; 0 for not at all.",
			func(d time.Duration) string { return unless(d >= 0 && d <= time.Minute, "0s … 1m") }),
		setting("wait", &m.Wait, 0,
			"Let requests wait this long for room, in a fair line: for open requests to end, or for a\n"+
				"limit to drain. A client waits for less with the header Weir-Wait.",
			func(d time.Duration) string { return unless(d >= 0 && d <= time.Minute, "0s … 1m") }),
		toggle("ledger", &m.Ledger, true,
			"Record in the store what each request has used, for alerts and GET /v1/me."),
		setting("ledger-zone", &m.LedgerZone, "UTC",
			"Begin the months of the ledger, and so of weir report, in this time zone, such as\n"+
				"Europe/Berlin. All instances need the same one."),
		setting("journal", &m.Journal, "",
			"Write a line for each request that is held, and one when it is settled, into files of this\n"+
				"folder, which no other instance may use."),
		setting("alert-webhook", &m.AlertWebhook, "",
			"Post alerts of the rules' limits to this URL, as Standard Webhooks has it."),
		secretFile("alert-secret-file", &m.AlertSecretFile,
			"Sign them with the secret in this file: whsec_ and 24 to 64 bytes in Base64."),
		setting("models-max-connections", &m.MaxConnections, 4096, "Keep at most this many connections of clients open.", positive),
	), group("Security",
		tlsSettings("models", &m.TLS),
		setting("identity-header", &m.IdentityHeader, "",
			"Take the labels of callers from these headers of a trusted proxy, such as\n"+
				"user=X-User,team=X-Team. Others who send them are refused. Needs --identity-from."),
		setting("identity-from", &m.IdentityFrom, "",
			"Trust the headers of the proxy with this name in its client certificate, such as\n"+
				"spiffe://example.org/gateway, or, with --listen unix:/path, everybody at unix:/path."),
		setting("jwt-keys", &m.JWT.Keys, "",
			"Know callers by signed tokens (JWT), which clients send as their API key. Read the keys of\n"+
				"the issuer, a JWK set, from this file or https:// URL. Needs the other --jwt- flags."),
		setting("jwt-issuer", &m.JWT.Issuer, "", "Take tokens of this issuer only: their iss."),
		setting("jwt-audience", &m.JWT.Audience, "", "Take tokens for this audience only: their aud."),
		setting("jwt-label", &m.JWT.Label, "",
			"Take the labels of callers from these claims, such as user=sub,team=dept."),
	)...)
}

// maxModelMemory bounds the memory of requests to language models, in MiB, unless the operator
// says otherwise.
const maxModelMemory = 256

// completeModels gives the fields that a proxy for language models has other defaults for
// these defaults.
func (o *Options) completeModels() {
	o.Unmatched = cmp.Or(o.Unmatched, "refuse")
	if o.Limits.RequestMemory == 0 {
		quarter := debug.SetMemoryLimit(-1) / 4 >> 20
		o.Limits.RequestMemory = int(max(minMemory, min(quarter, maxModelMemory)))
	}
}

// checkModels checks where credentials go. The error names the provider without what may be a
// secret.
func (o *Options) checkModels() error {
	m := &o.Models
	if m.Upstream == "" {
		return nil
	}
	u, err := url.Parse(m.Upstream)
	switch {
	case err != nil:
		return &weir.InvalidError{Field: "upstream", Value: "no URL", Want: wantUpstream}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return &weir.InvalidError{Field: "upstream", Value: strconv.Quote(u.Scheme+"://"+u.Host) + " with more than a path", Want: wantUpstream}
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return &weir.InvalidError{Field: "upstream", Value: strconv.Quote(m.Upstream), Want: wantUpstream}
	case o.InsecureToken:
		return nil
	}
	const mesh = ", or --insecure-token where a mesh or a tunnel encrypts the connections: credentials would cross the network in plain text"
	if sent := !o.identify() || m.UpstreamKeyFile != ""; sent && u.Scheme == "http" && !onLoopback(net.JoinHostPort(u.Hostname(), "80")) {
		return &weir.InvalidError{Field: "upstream", Value: strconv.Quote(m.Upstream), Want: "https://" + u.Host + mesh}
	}
	if a := o.accessOf("models"); !o.identify() && a.exposed() && m.TLS.Cert == "" {
		return &weir.InvalidError{Field: "listen", Value: strconv.Quote(a.address), Want: flag("models tls cert") + ", a loopback address" + mesh}
	}
	return nil
}

const wantUpstream = "http://HOST or https://HOST, and a path"

// newModels returns the proxy for language models, and the mock that it forwards to; nil
// where there is none.
func (a *App) newModels() (*listener, *listener, error) {
	o, t := &a.options, a.telemetry
	m := &o.Models
	options := meter.Options{
		Rules: a.rules.Load, Domain: m.Domain, Taker: t.frontEnd("models", a.engine), Timeout: o.Timeout, UpstreamTimeout: m.UpstreamTimeout, ReadOn: m.ReadOn, Wait: m.Wait,
		MaxBody: int64(m.MaxBody) << 20, Budget: a.budget, Rejected: t.rejections("models"), Unmatched: t.unmatched,
		Observer: modelObserver{t.metrics.Models(), &t.traffic.Models}, Logger: o.Logger,
	}
	switch domains := a.rules.Load().Domains(); {
	case m.Domain != "" && !slices.Contains(domains, m.Domain):
		return nil, nil, &weir.InvalidError{Field: "domain", Value: strconv.Quote(m.Domain), Want: "one of the rules: " + strings.Join(domains, ", ")}
	case m.Domain == "" && len(domains) != 1:
		return nil, nil, &weir.InvalidError{Field: "domain", Value: "none", Want: fmt.Sprintf("one of the %d domains of the rules", len(domains))}
	case m.Domain == "":
		options.Domain = domains[0]
	}
	var err error
	if options.Headers, err = callers.NewHeaders(m.IdentityHeader, m.IdentityFrom, m.Address, m.TLS.ClientCA != ""); err != nil {
		return nil, nil, err
	}
	tokens, err := callers.NewJWT(callers.JWTOptions{
		Keys: m.JWT.Keys, Issuer: m.JWT.Issuer, Audience: m.JWT.Audience, Labels: m.JWT.Label, Insecure: o.InsecureToken, Logger: o.Logger,
	})
	if err != nil {
		return nil, nil, err
	}
	if tokens != nil {
		a.files.add(tokens.Refresh)
		a.health.issuer = tokens.State
	}
	if options.Callers, err = a.authenticator("models", options.Headers, tokens); err != nil {
		return nil, nil, err
	}
	if err := a.upstreamKey(&options); err != nil {
		return nil, nil, err
	}
	if err := a.newLedger(&options); err != nil {
		return nil, nil, err
	}
	a.rules.check = func(set *rules.Set) error {
		if m.AlertWebhook == "" && set.Alerts() {
			o.Logger.Warn("the rules have alerts, and nobody gets them: there is no --alert-webhook")
		}
		hasLabel := func(key string) bool {
			return a.callers.HasLabel(key) || options.Headers.HasLabel(key) || tokens.HasLabel(key)
		}
		return meter.CheckRules(set, options.Domain, hasLabel, o.MaxKeys)
	}
	if err := a.rules.check(a.rules.Load()); err != nil {
		return nil, nil, err
	}
	prices := &pricesAge{func() time.Time { return a.rules.Load().PricesAsOf(options.Domain) }, o.Logger}
	t.metrics.PricesAge(prices.age)
	a.files.add(prices.watch)
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
	a.dollars = func(ctx context.Context) (all []dashboard.Budget) {
		for _, b := range proxy.Budgets(ctx) {
			all = append(all, dashboard.Budget(b))
		}
		return all
	}
	a.closers.add("settlements", proxy.Stop)
	s := newHTTPServer(o.Logger, min(o.DrainDelay, maxDismissal))
	// A stream may last. The body has a deadline of its own.
	s.ReadTimeout, s.WriteTimeout, s.MaxHeaderBytes = time.Minute, 0, 64<<10
	s.Handler = o.Telemetry.Tracing.HTTP(t.panics("models").HTTP(fromPages(o, m.Address, m.TLS, proxy)), meter.Paths()...)
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

// newLedger puts the ledger together, if there is one.
func (a *App) newLedger(options *meter.Options) error {
	m := &a.options.Models
	if !m.Ledger {
		if m.AlertWebhook != "" || m.AlertSecretFile != "" {
			return &weir.InvalidError{Field: "alert webhook", Value: "given", Want: "none without a ledger, which records the alerts"}
		}
		if m.Journal != "" {
			return &weir.InvalidError{Field: "journal", Value: strconv.Quote(m.Journal), Want: "none without a ledger, which writes it"}
		}
		return nil
	}
	if m.AlertSecretFile != "" && m.AlertWebhook == "" {
		return &weir.InvalidError{Field: "alert secret file", Value: strconv.Quote(m.AlertSecretFile), Want: "none without --alert-webhook"}
	}
	text, err := settingfile.Line("alert secret file", m.AlertSecretFile)
	if err != nil {
		return err
	}
	secret, err := ledger.ParseSecret(text)
	if err != nil {
		return err
	}
	zone, err := time.LoadLocation(m.LedgerZone)
	if err != nil || m.LedgerZone == "Local" {
		return &weir.InvalidError{Field: "ledger zone", Value: strconv.Quote(m.LedgerZone), Want: "a time zone of the IANA database, such as Europe/Berlin"}
	}
	lines, err := a.newJournal()
	if err != nil {
		return err
	}
	counts := a.telemetry.metrics.Ledger(func() int { return a.ledger.Waiting() })
	// A node of a cluster can lose its data alone, while those of the limits keep theirs.
	var restores weir.Taker
	if _, single := a.store.Client.(*redis.Client); single {
		restores = a.store.Taker
	}
	a.ledger, err = ledger.New(ledger.Options{
		Client: a.store.Client, Taker: restores, Prefix: a.options.StorePrefix, Domain: options.Domain, Zone: zone, Journal: lines,
		Webhook: m.AlertWebhook, Secret: secret, Observer: counts, Logger: a.options.Logger,
	})
	if err != nil {
		return err
	}
	a.closers.add("ledger", a.ledger.Stop)
	options.Ledger = a.ledger
	return nil
}

// newJournal opens the journal; nil if there is none.
func (a *App) newJournal() (*journal.Journal, error) {
	if a.options.Models.Journal == "" {
		return nil, nil
	}
	var err error
	a.journal, err = journal.Open(journal.Options{Dir: a.options.Models.Journal, Observer: a.telemetry.metrics.Journal(), Logger: a.options.Logger})
	if err != nil {
		return nil, err
	}
	a.closers.add("journal", a.journal.Stop)
	return a.journal, nil
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

func (o modelObserver) Settled(key, model, row string, used map[string]int64) {
	o.Models.Settled(key, model, row, used)
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
	if !a.options.identify() {
		return &weir.InvalidError{Field: "upstream key file", Value: strconv.Quote(file), Want: "--callers beside it, or another way to know them: everybody would use the key"}
	}
	key, err := callers.OpenKey("upstream key file", file, a.options.Logger)
	if err != nil {
		return err
	}
	a.files.add(key.Refresh)
	options.Key = key.Get
	return nil
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
