// Package compare answers Envoy's rate limit service with the answers of another service,
// and reports which of them Weir would have given otherwise, and why. Weir's decision never
// changes or delays an answer.
package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
)

const (
	// lateAfter is how long after the other service Weir may decide until that counts as no
	// decision: Envoy gives up after 20 ms by default.
	lateAfter = 20 * time.Millisecond
	// maxDeciding bounds the decisions at a time, and maxBytes the memory of their requests:
	// they may outlast their calls.
	maxDeciding, maxBytes = 1024, 16 << 20
	// unreachableAfter is how many calls in a row get no answer until the other service counts as
	// unreachable. A single one may have been late.
	unreachableAfter = 3
)

// A Result says how Weir's answer to a call differs.
type Result string

// The results.
const (
	Same     Result = "same"
	Stricter Result = "stricter" // Weir refuses, the other service does not
	Looser   Result = "looser"   // the other service refuses, Weir does not
	Limits   Result = "limits"   // the same answer, for other limits
	Failed   Result = "failed"   // Weir has reached no decision
	Absent   Result = "absent"   // the other service has not answered
	Rejected Result = "rejected" // Weir has answered with an error; the other service was not asked
)

// Options are what [New] needs. Other, Compared and Logger are required.
type Options struct {
	// Other is the connection to the service whose answers count.
	Other grpc.ClientConnInterface
	// Compared is called with the result of each call.
	Compared func(Result)
	// Logger gets a line for each kind of difference, at most once a minute, with an
	// example and the number of differences; at the level debug, for each difference.
	Logger *slog.Logger
	// Background, if not nil, calls a function, and recovers if it panics.
	Background func(func())
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// A Request is one that Weir has not decided yet. It does not use the memory of its call.
type Request interface {
	// Bytes is about how much memory the request takes.
	Bytes() int64
	// Decide returns Weir's encoded answer. It is called at most once.
	Decide(context.Context) ([]byte, error)
	// Names returns the domain, and the keys of a descriptor, of all descriptors for -1,
	// both about as long as most at most.
	Names(descriptor, most int) (domain, keys string)
}

// A Comparer answers calls. It is safe for concurrent use.
type Comparer struct {
	options  Options
	began    time.Time
	failures atomic.Int64 // calls in a row that got no answer

	mu       sync.Mutex // guards the fields below; never held while waiting
	kinds    map[kind]*count
	failed   error // of the last call that got no answer
	deciding int
	bytes    int64
	stopped  bool
	running  sync.WaitGroup
}

// New returns a Comparer.
func New(o Options) *Comparer {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Background == nil {
		o.Background = func(f func()) { f() }
	}
	return &Comparer{options: o, began: o.Now(), kinds: map[kind]*count{}}
}

// A comparison has the two answers to a call. Whoever gets the second one compares them.
type comparison struct {
	request    Request
	theirs     []byte
	answered   time.Time // by the other service
	ours       []byte
	err        error // why there is no decision
	haveOne    atomic.Bool
	comparable bool
}

// Answer returns the other service's answer to an encoded request, or its error, which is a
// status. Meanwhile Weir decides the request, which nothing waits for; its decision does not end
// with ctx, so that what Weir counts stays right.
func (c *Comparer) Answer(ctx context.Context, raw []byte, request Request) ([]byte, error) {
	both := &comparison{request: request}
	c.decide(context.WithoutCancel(ctx), both)
	err := c.options.Other.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, raw, &both.theirs, grpc.ForceCodec(encoded{}))
	both.answered, both.comparable = c.options.Now(), err == nil
	c.note(ctx, request, err)
	c.half(both)
	return both.theirs, err
}

// decide has Weir decide in the background, or notes why it does not.
func (c *Comparer) decide(ctx context.Context, both *comparison) {
	bytes := both.request.Bytes()
	if both.err = c.begin(bytes); both.err != nil {
		both.haveOne.Store(true)
		return
	}
	go func() {
		defer c.end(bytes)
		c.options.Background(func() {
			both.err = errPanicked
			defer c.half(both)
			both.ours, both.err = both.request.Decide(ctx)
		})
	}()
}

var (
	errBusy     = errors.New("too many requests wait for a decision of Weir")
	errStopped  = errors.New("the server is about to stop")
	errPanicked = errors.New("the decision panicked; the log says why")
)

// begin makes room for a decision.
func (c *Comparer) begin(bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return errStopped
	case c.deciding >= maxDeciding || c.bytes+bytes > maxBytes:
		return errBusy
	}
	c.deciding++
	c.bytes += bytes
	c.running.Add(1)
	return nil
}

// end gives the room back.
func (c *Comparer) end(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deciding--
	c.bytes -= bytes
	c.running.Done()
}

// Stop waits for the decisions that are in flight. An error means that ctx ended first.
// Afterwards calls are answered and not compared.
func (c *Comparer) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		c.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for decisions: %w", ctx.Err())
	}
}

// half compares the answers if the other one of them is there.
func (c *Comparer) half(both *comparison) {
	if !both.haveOne.Swap(true) || !both.comparable {
		return
	}
	switch {
	case both.err != nil:
		c.report(&difference{result: Failed, descriptor: -1, reason: reasonFor(both.err)}, both.request)
	case c.options.Now().Sub(both.answered) > lateAfter:
		c.report(&difference{result: Failed, descriptor: -1, reason: decidedLate}, both.request)
	default:
		c.compare(both)
	}
}

// note keeps whether the other service answers, and reports that it does not, unless the
// caller has left.
func (c *Comparer) note(ctx context.Context, request Request, err error) {
	silent := silence(err)
	switch {
	case err == nil || silent == "":
		if c.failures.Load() != 0 { // most calls write nothing that others read
			c.failures.Store(0)
		}
	case !errors.Is(ctx.Err(), context.Canceled):
		c.failures.Add(1)
		c.mu.Lock()
		c.failed = errors.New(silent)
		c.mu.Unlock()
	}
	if err == nil {
		return
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		domain, _ := request.Names(-1, maxText)
		code := status.Code(err).String()
		c.log(kind{result: Absent, reason: code}, "the compared service gives no answer",
			"code", code, "error", cmp.Or(silent, "one of its own"), "domain", clip(domain))
	}
	c.options.Compared(Absent)
}

// silence returns the words of an error that comes from the connection or its deadline; empty
// for an error of the other service's own, whose words may have values of the request.
func silence(err error) string {
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return clip(cmp.Or(s.Message(), s.Code().String()))
	}
	return ""
}

// Trouble returns why the other service counts as unreachable; nil if it does not.
func (c *Comparer) Trouble() error {
	n := c.failures.Load()
	if n < unreachableAfter {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Errorf("the last %d calls got no answer: %w", n, c.failed)
}

// Reject reports a call that Weir has answered with an error before it asked the other service.
func (c *Comparer) Reject(err error) {
	s := status.Convert(err)
	if s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded {
		return // the caller has left
	}
	c.log(kind{result: Rejected, reason: s.Code().String()}, "Weir rejects a call; the compared service was not asked",
		"code", s.Code().String(), "error", clip(s.Message()))
	c.options.Compared(Rejected)
}

// compare reports how two answers differ.
func (c *Comparer) compare(both *comparison) {
	other, own := new(rlsv3.RateLimitResponse), new(rlsv3.RateLimitResponse)
	if proto.Unmarshal(both.theirs, other) != nil {
		c.options.Compared(Absent)
		return
	}
	if err := proto.Unmarshal(both.ours, own); err != nil {
		c.report(&difference{result: Failed, descriptor: -1, reason: err.Error()}, both.request)
		return
	}
	d := differ(other, own)
	if d == nil {
		c.options.Compared(Same)
		return
	}
	if d.reason == countsDiffer && c.young(d.other.GetCurrentLimit()) {
		d.reason = countsYoung
	}
	c.report(d, both.request)
}

// young reports whether the window of a limit began before Weir did, so that Weir has counted
// for a part of it.
func (c *Comparer) young(l *rlsv3.RateLimitResponse_RateLimit) bool {
	now := c.options.Now()
	window := windowOf(l)
	return window > 0 && now.Add(-time.Duration(now.UnixNano()%int64(window))).Before(c.began)
}

const (
	// logPause is how long a kind of difference is not logged again.
	logPause = time.Minute
	// maxKinds bounds the kinds that are told apart, and maxText the bytes of a domain or of
	// descriptors in memory and in a line of the log: both are the callers'.
	maxKinds, maxText = 200, 500
)

// A kind is what differences have in common that are logged together.
type kind struct {
	result               Result
	domain, keys, reason string
}

// A count is the number of differences of a kind, and when one was logged.
type count struct {
	n      int64
	logged time.Time
}

// report counts a difference, and logs it if it is due.
func (c *Comparer) report(d *difference, request Request) {
	domain, keys := request.Names(d.descriptor, maxText)
	domain, keys = clip(domain), clip(keys)
	c.log(kind{d.result, domain, keys, d.reason}, "Weir would have answered otherwise",
		"result", string(d.result), "reason", d.reason, "domain", domain, "descriptor", keys,
		"other", statusText(d.other), "weir", statusText(d.weir))
	c.options.Compared(d.result)
}

// log logs what is of a kind: at WARN if it is due, else for those who debug.
func (c *Comparer) log(k kind, message string, attributes ...any) {
	n, due := c.count(k)
	level := slog.LevelDebug
	if due {
		level = slog.LevelWarn
	}
	c.options.Logger.Log(context.Background(), level, message, append(attributes, "number", n)...)
}

// reasonFor returns why Weir has no decision. It has no values of the request.
func reasonFor(err error) string {
	if invalid := new(weir.InvalidError); errors.As(err, &invalid) {
		return clip(invalid.Path() + ": want " + invalid.Want)
	}
	if s, ok := status.FromError(err); ok {
		return clip(s.Message())
	}
	return clip(err.Error())
}

// count counts a difference and reports whether its kind is to be logged, and how many of the
// kind there were.
func (c *Comparer) count(k kind) (n int64, due bool) {
	now := c.options.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.kinds[k]
	if of == nil && len(c.kinds) >= maxKinds {
		k = kind{result: k.result, reason: "further kinds"}
		of = c.kinds[k]
	}
	if of == nil {
		of = &count{logged: now.Add(-logPause)}
		c.kinds[k] = of
	}
	of.n++
	if due = now.Sub(of.logged) >= logPause; due {
		of.logged = now
	}
	return of.n, due
}

// clip returns a copy of a text that is no longer than maxText, and keeps none of its message.
func clip(text string) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), maxText)]), "")
}

// encoded is the codec of messages that stay as they are. It copies them: what is sent may
// outlast its call.
type encoded struct{}

func (encoded) Marshal(v any) ([]byte, error) { return slices.Clone(v.([]byte)), nil }

func (encoded) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

// Name is that of the codec of protobuf, which the messages are encoded with.
func (encoded) Name() string { return "proto" }

func statusText(s *rlsv3.RateLimitResponse_DescriptorStatus) string {
	switch l := s.GetCurrentLimit(); {
	case s == nil:
		return ""
	case l == nil:
		return s.GetCode().String() + ", no limit"
	default:
		return fmt.Sprintf("%v, %s, %d remain", s.GetCode(), limitText(l), s.GetLimitRemaining())
	}
}

func limitText(l *rlsv3.RateLimitResponse_RateLimit) string {
	unit := strings.ToLower(l.GetUnit().String())
	if n := multiplierOf(l); n > 1 {
		unit = fmt.Sprintf("%d %ss", n, unit)
	}
	return fmt.Sprintf("%d/%s", l.GetRequestsPerUnit(), unit)
}
