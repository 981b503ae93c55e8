package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/internal/logs"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/models/ledger"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Options are what [New] needs. Upstream, Rules, Taker and Domain are required.
type Options struct {
	// Upstream is the provider's address. The path of a request is appended to its path.
	Upstream *url.URL
	// Key returns the credential for the provider, in place of the caller's; empty: none is
	// sent. Nil: the caller's own credential is sent.
	Key func() string
	// Callers checks the credentials of callers. Nil: the provider does.
	Callers *callers.Authenticator
	// Headers are those by which a trusted proxy says who calls. They are not forwarded. Nil:
	// there are none.
	Headers *callers.Headers
	// Rules returns the rules in force, and Domain is the one whose rules apply.
	Rules  func() *rules.Set
	Domain string
	// Taker decides, each time within the Timeout. Zero: a second.
	Taker   weir.Taker
	Timeout time.Duration
	// UpstreamTimeout is how long a whole request may take, and the life of its hold. Zero:
	// 30 minutes.
	UpstreamTimeout time.Duration
	// ReadOn is how long an answer is read on after its client has left, for its usage. Zero:
	// not at all.
	ReadOn time.Duration
	// Dial, if not nil, connects to the provider.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxBody is the size of the largest body, in bytes. Zero: 32 MiB.
	MaxBody int64
	// Budget bounds the memory of bodies. Nil: no bound.
	Budget *admission.Budget
	// Rejected, if not nil, is called for each request that found no room in the budget.
	Rejected func(admission.Reason)
	// Unmatched, if not nil, is called for each request that no rule applies to, and reports
	// whether to refuse it.
	Unmatched func(*rules.Request, rules.Unmatched) (refuse bool)
	// Wait is how long a request may wait for room, a minute at most. Zero: not at all.
	Wait time.Duration
	// Ledger records what requests have used. Nil: nothing does.
	Ledger *ledger.Ledger
	// Observer counts. Nil: nothing is counted.
	Observer Observer
	// Logger gets warnings, at most one a minute, without prompts and credentials. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

// An Observer counts what a [Proxy] does. Its methods are called from many goroutines.
type Observer interface {
	// Answered counts a request by its form and the status of its answer.
	Answered(form string, status int)
	// FirstByte observes how long a request waited for the head of its answer.
	FirstByte(d time.Duration)
	// Stream counts streams of a caller and a model that begin, 1, and end, -1.
	Stream(key, model string, change int)
	// Settled counts what a request of a caller and a model has used, once: every number of
	// config.Meters but that of dollars if there is no price. Row is the pattern of the model
	// in the price table; empty if there is none.
	Settled(key, model, row string, used map[string]int64)
	// Charged counts the units that a settled request was charged under a limit, by what it
	// counts.
	Charged(rule, row, count string, units int64)
	// UsageMissing counts an answer without usage that counts, by the reason.
	UsageMissing(reason string)
	// Underestimated counts units beyond a hold, and Unrecorded those that a limit could not
	// record.
	Underestimated(rule string, units int64)
	Unrecorded(rule string, units int64)
	// Replaced counts requests that were held for a cheaper model in place of their own, by the
	// limit that says so and the row of the price table of the model that was asked for.
	Replaced(rule, row, instead string)
	// Waiting counts requests that begin, 1, and end, -1, to wait for room.
	Waiting(change int)
	// SettleFailed counts requests that could not be settled.
	SettleFailed()
}

// Reasons for which an answer has no usage that counts.
const (
	UsageAbsent     = "absent"
	UsageInvalid    = "invalid"
	UsageCut        = "cut"
	UsageClientLeft = "client_left"
	UsageEncoded    = "encoded"
)

// nobody is the Observer that counts nothing.
type nobody struct{}

func (nobody) Answered(string, int)                             {}
func (nobody) FirstByte(time.Duration)                          {}
func (nobody) Stream(string, string, int)                       {}
func (nobody) Settled(string, string, string, map[string]int64) {}
func (nobody) Charged(string, string, string, int64)            {}
func (nobody) UsageMissing(string)                              {}
func (nobody) Underestimated(string, int64)                     {}
func (nobody) Unrecorded(string, int64)                         {}
func (nobody) Waiting(int)                                      {}
func (nobody) Replaced(string, string, string)                  {}
func (nobody) SettleFailed()                                    {}

// A Proxy forwards requests to one provider and meters them. It is safe for concurrent use.
// Create it with [New]; it starts nothing.
type Proxy struct {
	holder
	proxy     httputil.ReverseProxy
	transport *http.Transport
	cut       context.Context // ends when requests in flight are cut
	cutAll    context.CancelFunc
	missing   logs.Seldom // lines about usage
	asking    askers
	readers   atomic.Int64 // answers that are read on without a client
}

// New returns a proxy. The error is a [*weir.InvalidError].
func New(o Options) (*Proxy, error) {
	switch {
	case o.Upstream == nil || o.Upstream.Scheme != "http" && o.Upstream.Scheme != "https" || o.Upstream.Host == "":
		return nil, problem.Invalid("upstream", "no address", "a URL such as https://api.openai.com")
	case o.Rules == nil || o.Taker == nil || o.Domain == "":
		return nil, problem.Invalid("rules", "missing", "rules, a domain and a store")
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.UpstreamTimeout == 0 {
		o.UpstreamTimeout = 30 * time.Minute
	}
	if o.MaxBody == 0 {
		o.MaxBody = 32 << 20
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{holder: holder{Options: &o, logged: logs.Seldom{Period: loggedAgain}}, missing: logs.Seldom{Period: loggedAgain}}
	p.cut, p.cutAll = context.WithCancel(context.Background())
	p.stop = p.cut.Done()
	p.transport = &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: o.Dial, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, WriteBufferSize: 4 << 10, ReadBufferSize: 4 << 10,
	}
	if o.Dial != nil {
		p.transport.Proxy = nil
	}
	p.proxy = httputil.ReverseProxy{
		Rewrite: p.rewrite, Transport: roundTripper{p}, FlushInterval: -1, BufferPool: buffers{},
		ModifyResponse: p.answered, ErrorHandler: p.failed, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	return p, nil
}

// Cut ends the requests in flight: streams end with an error event.
func (p *Proxy) Cut() { p.cutAll() }

// Stop ends the requests in flight. The store delivers their settlements.
func (p *Proxy) Stop(context.Context) error {
	p.cutAll()
	p.transport.CloseIdleConnections()
	return nil
}

// buffers are those with which answers are copied, small because many streams are open.
type buffers struct{}

var pool = sync.Pool{New: func() any { return new([8 << 10]byte) }}

func (buffers) Get() []byte  { return pool.Get().(*[8 << 10]byte)[:] }
func (buffers) Put(b []byte) { pool.Put((*[8 << 10]byte)(b)) }

// An exchange is one request and its answer.
type exchange struct {
	form     Form
	endpoint endpoint
	id       string
	began    time.Time
	client   context.Context // ends when the client leaves
	path     string          // as it was sent
	query    string
	memory   admission.Body // of the fields below
	body     pieces         // to forward
	original pieces         // without stream_options that Weir added; nil if it added none
	removes  bool           // the chunk of usage that the client did not ask for
	own      *held          // nil if nothing is held
	shown    string         // the credential for the provider
	headers  http.Header
	sent     atomic.Bool // a connection was there: the provider may have worked

	cancel  context.CancelCauseFunc // ends the request to the provider
	leaving sync.Once
	readOn  *time.Timer // while the answer is read on without the client; nil before
}

// forget lets go of the body, once nothing sends it any more.
func (x *exchange) forget() {
	x.body, x.original, x.memory.Text = nil, nil, nil
	x.memory.Close()
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange)
}

// errCut, errLate and errLeft are why a request in flight ends early.
var (
	errCut  = errors.New("meter: the server stops")
	errLate = errors.New("meter: the upstream timeout is over")
	errLeft = errors.New("meter: the client has left")
)

// maxReaders is how many answers are read on at once.
const maxReaders = 256

// left is called when the client of a request may have left. The answer is read on for a
// while, because it may report its usage at its end.
func (p *Proxy) left(x *exchange) {
	x.leaving.Do(func() {
		if p.ReadOn <= 0 || x.own == nil || !x.sent.Load() {
			x.cancel(errLeft)
			return
		}
		if p.readers.Add(1) > maxReaders {
			p.readers.Add(-1)
			x.cancel(errLeft)
			return
		}
		x.readOn = time.AfterFunc(p.ReadOn, func() { x.cancel(errLeft) })
	})
}

// end ends reading on.
func (p *Proxy) end(x *exchange) {
	x.leaving.Do(func() {})
	if x.readOn != nil {
		x.readOn.Stop()
		p.readers.Add(-1)
	}
}

// ServeHTTP meters and forwards a request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	x := &exchange{form: formOf(path), path: path, query: cleanQuery(query), id: newID(), began: time.Now(), client: r.Context()}
	defer x.forget()
	w = &observed{ResponseWriter: w, answered: func(status int) { p.Observer.Answered(x.form.String(), status) }}
	if err := p.prepare(w, r, x); err != nil {
		var refused *refusal
		if !errors.As(err, &refused) {
			panic(http.ErrAbortHandler) // the client left while it sent its body
		}
		refused.write(w, x.form, x.id)
		return
	}
	if x.endpoint == me {
		return // It is answered.
	}
	if x.own != nil && r.Context().Err() != nil {
		x.own.refund()
		return
	}
	ctx, end := context.WithTimeoutCause(context.WithoutCancel(r.Context()), p.UpstreamTimeout, errLate)
	defer end()
	ctx, x.cancel = context.WithCancelCause(ctx)
	defer x.cancel(nil)
	defer context.AfterFunc(p.cut, func() { x.cancel(errCut) })()
	defer p.end(x)
	defer context.AfterFunc(r.Context(), func() { p.left(x) })()
	ctx = context.WithValue(ctx, exchangeKey{}, x)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) }})
	if x.own != nil {
		// Whatever happens below, the hold is settled.
		defer func() { x.own.settle(usage{cut: true}, false) }()
	}
	p.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// prepare reads the request and holds what it may cost, or answers it. The error is a [*refusal], or that
// of the connection.
func (p *Proxy) prepare(w http.ResponseWriter, r *http.Request, x *exchange) error {
	if x.endpoint = endpointOf(r.Method, x.path); x.endpoint == unknown {
		return unknownPath(r.Method, x.path)
	}
	key, who, err := p.caller(w, r, x)
	if err != nil {
		return err
	}
	ctx, by := callers.NewContext(r.Context(), who), &subject{key: key}
	if by.labels, err = classed(who.Labels(), p.Rules().Classes(p.Domain), r.Header); err != nil {
		return err
	}
	switch x.endpoint {
	case me:
		return p.answerMe(ctx, w, by)
	case catalog:
		return mayAsk(ctx, p.ask(by))
	}
	if coding := r.Header.Values("Content-Encoding"); len(coding) > 0 {
		return misunderstood(http.StatusUnsupportedMediaType, "unsupported_encoding", invalidRequest, "the body is compressed: want it plain")
	}
	if x.memory, err = p.read(w, r); err != nil {
		return err
	}
	most, err := p.waitOf(r)
	if err != nil {
		return err
	}
	req, err := readRequest(x.endpoint, &x.memory)
	if errors.Is(err, admission.ErrFull) {
		return p.full()
	}
	if err != nil {
		return err
	}
	own, err := p.hold(ctx, req, by, most, func(plan *rules.Plan) {
		if x.headers = (http.Header{}); plan.ID != "" {
			x.id = plan.ID
		}
		describe(x.headers, plan)
	})
	if err != nil {
		for name, values := range x.headers {
			w.Header()[name] = values
		}
		return err
	}
	x.own, x.body, x.original, x.removes = own, own.e.body, own.e.plain, own.e.plain != nil
	own.e.body, own.e.plain = nil, nil
	if own.model != req.model {
		x.headers.Set(modelHeader, own.model)
	}
	return nil
}

// modelHeader says which model took the place of the one that was asked for.
const modelHeader = "Weir-Model"

// waitHeader is the header by which a client waits for less time.
const waitHeader = "Weir-Wait"

// waitOf returns how long a request may wait for room. The error is a [*refusal].
func (p *Proxy) waitOf(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(waitHeader)
	if text == "" {
		return p.Wait, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, invalidBody(fmt.Sprintf("the header %s is %q: want a duration such as 5s, 0s for not at all", waitHeader, shorten(text)))
	}
	return min(d, p.Wait), nil
}

// caller returns the name of the caller in limits.
func (p *Proxy) caller(w http.ResponseWriter, r *http.Request, x *exchange) (string, *callers.Identity, error) {
	who, err := p.Callers.FromProxy(r)
	if refused := new(callers.RefusedError); errors.As(err, &refused) {
		return "", nil, refusedCaller("identity_header", refused)
	}
	if who != nil {
		if p.Key != nil {
			x.shown = p.Key()
		}
		return who.Name(), who, nil
	}
	credential, err := credentialOf(x.form, r.Header)
	if p.Callers == nil {
		x.shown = credential
		return keyOf(credential), nil, err
	}
	shown := callers.FromRequest(r)
	shown.Token, shown.Shown = credential, err == nil
	if err != nil && (shown.Certificate == nil || err.(*refusal).status != http.StatusUnauthorized) {
		return "", nil, err
	}
	var known bool
	who, known = p.Callers.Authenticate(shown)
	if !known {
		shown.HangUp(w)
		why := "nobody has this credential"
		if shown.Why != "" {
			why += ": " + shown.Why
		}
		return "", nil, unauthorized(http.StatusUnauthorized, why)
	}
	if p.Key != nil {
		x.shown = p.Key()
	}
	return who.Name(), who, nil
}

// bodyTime is how long a client may take to send its body.
const bodyTime = time.Minute

// read reads the body whole: a request that is forwarded while it is read can end with its
// answer.
func (p *Proxy) read(w http.ResponseWriter, r *http.Request) (admission.Body, error) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTime))
	body, err := p.Budget.ReadBody(w, r, p.MaxBody)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return body, misunderstood(http.StatusRequestEntityTooLarge, "body_too_large", "request_too_large", "the body is larger than "+decimal(tooLarge.Limit)+" bytes")
	}
	if errors.Is(err, admission.ErrFull) {
		return body, p.full()
	}
	if err == nil {
		_ = connection.SetReadDeadline(time.Time{})
	}
	return body, err
}

// full is the answer of a request that there is no memory for.
func (p *Proxy) full() error {
	if p.Rejected != nil {
		p.Rejected(admission.Memory)
	}
	full := failed(http.StatusServiceUnavailable, "request_memory", "requests that are being received use too much memory; retry in 1 s")
	full.retry = 1
	return full
}

// rewrite makes the request to the provider.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	x := exchangeOf(r.In)
	out := r.Out
	target := *p.Upstream
	target.Path = strings.TrimSuffix(target.Path, "/") + x.path
	target.RawPath, target.RawQuery = "", x.query
	out.URL, out.Host = &target, target.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := r.In.Header[name]; len(values) > 0 {
			out.Header[name] = values
		}
	}
	for _, name := range append([]string{"Upgrade", "Connection", "Expect", waitHeader, classHeader}, otherHeaders...) {
		out.Header.Del(name)
	}
	p.Headers.Remove(out.Header)
	if p.Key != nil {
		out.Header = besideOwnKey(out.Header)
	}
	out.Header.Set("Accept-Encoding", "identity")
	if x.endpoint != catalog {
		// As which text the body is read is not for the client to say.
		out.Header.Set("Content-Type", "application/json")
	}
	setCredential(x.form, out.Header, x.shown, p.Callers != nil)
	x.setBody(out, x.body)
}

// setBody makes the pieces the body of a request. Without GetBody nothing sends it again.
func (x *exchange) setBody(r *http.Request, body pieces) {
	r.Body, r.GetBody, r.ContentLength, r.TransferEncoding = http.NoBody, nil, body.size(), nil
	if r.ContentLength > 0 {
		r.Body = &content{left: slices.Clone(body)}
	}
}

// A content is the body of a request to the provider. A stream may last long after it was
// sent, so that it lets go of its bytes when it is closed, which may be while it is read.
type content struct {
	mu   sync.Mutex
	left pieces
}

func (c *content) Read(p []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) && len(c.left) > 0 {
		part := copy(p[n:], c.left[0])
		n += part
		if c.left[0] = c.left[0][part:]; len(c.left[0]) == 0 {
			c.left = c.left[1:]
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *content) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = nil
	return nil
}

// A roundTripper sends requests to the provider.
type roundTripper struct{ p *Proxy }

// maxComplaint is how much of an answer is read for the name of a field, in bytes.
const maxComplaint = 64 << 10

// RoundTrip sends a request, and once more without stream_options if Weir added it and the
// provider does not know it.
func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r)
	answer, err := t.p.transport.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusBadRequest || x.original == nil {
		x.forget()
		return answer, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxComplaint))
	if err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	if !bytes.Contains(text, []byte("stream_options")) {
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}
		x.forget()
		return answer, nil
	}
	_ = answer.Body.Close()
	again := r.Clone(r.Context())
	x.setBody(again, x.original)
	x.removes = false
	defer x.forget()
	return t.p.transport.RoundTrip(again)
}

// failed answers a request that got no answer.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, why error) {
	x := exchangeOf(r)
	answer := failed(http.StatusBadGateway, "upstream", "the upstream cannot be reached")
	if context.Cause(r.Context()) == nil {
		p.seldom("the upstream gave no answer", "error", why)
	}
	switch cause := context.Cause(r.Context()); {
	case x.client.Err() != nil:
		// Nobody reads the answer. The model may have worked unseen.
		p.noUsage(x, UsageClientLeft)
	case errors.Is(cause, errLate):
		answer = failed(http.StatusGatewayTimeout, "upstream", "the upstream did not answer in time")
		p.noUsage(x, UsageCut)
	case errors.Is(cause, errCut):
		answer = failed(http.StatusServiceUnavailable, "stopping", "the server stops; retry in 1 s")
		answer.retry = 1
		p.noUsage(x, UsageCut)
	case x.sent.Load():
		answer.message = "the upstream broke the connection"
		p.noUsage(x, UsageCut)
	}
	if x.own != nil && !x.sent.Load() {
		x.own.refund()
	}
	answer.write(w, x.form, x.id)
}

// noUsage counts an answer without usage, and logs at most one a minute.
func (p *Proxy) noUsage(x *exchange, reason string) {
	if x.own == nil || x.endpoint == countTokens {
		return
	}
	p.Observer.UsageMissing(reason)
	if _, due := p.missing.Due(); due {
		p.Logger.Warn("an answer has no usage that counts: its hold stays charged", "reason", reason, "path", x.path, "id", x.id)
	}
}

// observed is a ResponseWriter that reports the status.
type observed struct {
	http.ResponseWriter
	answered func(int)
	begun    bool
}

// WriteHeader reports the first status that is not informational.
func (o *observed) WriteHeader(status int) {
	if status >= http.StatusOK && !o.begun {
		o.begun = true
		o.answered(status)
	}
	o.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the underlying writer, for http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }
