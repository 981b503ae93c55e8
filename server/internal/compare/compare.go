// Package compare answers Envoy's rate limit service with the answers of another service,
// and reports which of them Weir would have given otherwise, and why. Weir's decision never
// changes an answer, and delays one by [Grace] at most.
package compare

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// Grace is how long Weir may go on deciding after the other service has answered.
const Grace = 20 * time.Millisecond

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
)

// Options are what [New] needs. All but Now are required.
type Options struct {
	// Other is the connection to the service whose answers count.
	Other grpc.ClientConnInterface
	// Compared is called with the result of each call.
	Compared func(Result)
	// Logger gets a line for each kind of difference, at most once a minute, with an
	// example and the number of differences; at the level debug, for each difference.
	Logger *slog.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// A Comparer answers calls. It is safe for concurrent use, and starts nothing that outlasts
// a call.
type Comparer struct {
	options Options
	began   time.Time
	mu      sync.Mutex
	kinds   map[kind]*count
}

// New returns a Comparer.
func New(o Options) *Comparer {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Comparer{options: o, began: o.Now(), kinds: map[kind]*count{}}
}

// Answer returns the other service's answer to an encoded request, or its error, which is a
// status. Meanwhile decide returns Weir's own; its context ends soon after the other service
// has answered.
func (c *Comparer) Answer(ctx context.Context, raw []byte, decide func(context.Context) ([]byte, error)) ([]byte, error) {
	deciding, stop := context.WithCancel(ctx)
	defer stop()
	var theirs []byte
	var failed error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		failed = c.options.Other.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, raw, &theirs, grpc.ForceCodec(encoded{}))
		time.AfterFunc(Grace, stop)
	}()
	ours, err := decide(deciding)
	<-answered
	switch {
	case failed != nil:
		c.options.Compared(Absent)
	case err != nil:
		reason := err.Error()
		if deciding.Err() != nil && ctx.Err() == nil {
			reason = decidedLate
		}
		c.report(&difference{result: Failed, descriptor: -1, reason: reason}, raw)
	default:
		c.compare(raw, theirs, ours)
	}
	return theirs, failed
}

// compare reports how two answers differ.
func (c *Comparer) compare(raw, theirs, ours []byte) {
	other, own := new(rlsv3.RateLimitResponse), new(rlsv3.RateLimitResponse)
	if proto.Unmarshal(theirs, other) != nil {
		c.options.Compared(Absent)
		return
	}
	if err := proto.Unmarshal(ours, own); err != nil {
		c.report(&difference{result: Failed, descriptor: -1, reason: err.Error()}, raw)
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
	c.report(d, raw)
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
func (c *Comparer) report(d *difference, raw []byte) {
	c.options.Compared(d.result)
	asked := new(rlsv3.RateLimitRequest)
	if proto.Unmarshal(raw, asked) != nil {
		return // the other service has understood it
	}
	domain := clip(asked.GetDomain())
	keys := joined(asked, d.descriptor, func(key, _ string) string { return key })
	text := joined(asked, d.descriptor, func(key, value string) string { return key + "=" + value })
	n, due := c.count(kind{d.result, domain, keys, d.reason})
	level := slog.LevelDebug
	if due {
		level = slog.LevelWarn
	}
	c.options.Logger.Log(context.Background(), level, "Weir would have answered otherwise",
		"result", string(d.result), "reason", d.reason, "domain", domain, "descriptor", text,
		"other", statusText(d.other), "weir", statusText(d.weir), "number", n)
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

// joined returns the entries of a descriptor as entry writes them; those of all of them for -1.
func joined(asked *rlsv3.RateLimitRequest, descriptor int, entry func(key, value string) string) string {
	descriptors := asked.GetDescriptors()
	if descriptor >= 0 && descriptor < len(descriptors) {
		descriptors = descriptors[descriptor : descriptor+1]
	}
	var texts []string
	for _, d := range descriptors {
		var entries []string
		for _, e := range d.GetEntries() {
			entries = append(entries, entry(e.GetKey(), e.GetValue()))
		}
		texts = append(texts, strings.Join(entries, ","))
	}
	return clip(strings.Join(slices.Compact(texts), "; "))
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
