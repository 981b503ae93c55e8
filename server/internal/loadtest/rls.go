package loadtest

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weirlimit/weir"
)

// MaxConnections is the most connections that an [RLSLoad] or [DialIdle] opens.
const MaxConnections = 20_000

// An RLSLoad keeps calls of Envoy's rate limit service in flight: each answer is followed
// by the next call. It reads and writes HTTP/2 frames itself, so that it costs a fraction
// of the server that it measures. Its fields must not change while it runs.
type RLSLoad struct {
	// Address is HOST:PORT.
	Address string
	// TLS configures TLS. Nil means plain text.
	TLS *tls.Config
	// Token is sent as a bearer token unless it is empty.
	Token string
	// Domain and Entry are the domain and the key of the only entry of the only
	// descriptor. Its value is drawn uniformly from Keys values.
	Domain, Entry string
	Keys          int
	// Connections is the number of connections, Callers the number of calls in flight
	// on all of them together. A server that allows fewer on a connection gets fewer.
	Connections, Callers int
	// Duration is the time during which calls are started.
	Duration time.Duration
	// Timeout is sent with each call as grpc-timeout. A connection on which nothing
	// arrives for a second longer has failed, with all its calls.
	Timeout time.Duration
	// Traceparent sends a new W3C trace context, not sampled, with each call.
	Traceparent bool
	// Progress, if not nil, is called every second with the results so far.
	Progress func(Report)
}

// An RLSReport counts the results of an RLSLoad. Latencies count from when a call is
// written to when its status is read.
type RLSReport struct {
	Report
	// Failure is the first failure, or nil.
	Failure error
	// Reconnects is the number of connections that were opened again, because the
	// server sent GOAWAY or the connection failed.
	Reconnects int
}

// Validate reports the first field that is out of range, as a [*weir.InvalidError].
func (l *RLSLoad) Validate() error {
	invalid := func(field, value, want string) error {
		return &weir.InvalidError{Field: field, Value: value, Want: want}
	}
	switch {
	case l.Duration <= 0 || l.Duration > 24*time.Hour:
		return invalid("duration", l.Duration.String(), "more than 0 and at most 24h")
	case l.Callers < 1 || l.Callers > 10_000:
		return invalid("callers", strconv.Itoa(l.Callers), "1 … 10000")
	case l.Connections < 1 || l.Connections > l.Callers:
		return invalid("connections", strconv.Itoa(l.Connections), "1 … the number of callers")
	case l.Timeout < time.Millisecond || l.Timeout > time.Hour:
		return invalid("timeout", l.Timeout.String(), "1ms … 1h")
	}
	return nil
}

// Run opens the connections, sends one call that is not counted on each, and then keeps
// calls in flight until Duration has passed or ctx ends. It waits for the last answers.
// Run returns an error if the first calls fail, or if it cannot connect again.
func (l *RLSLoad) Run(ctx context.Context) (RLSReport, error) {
	if err := l.Validate(); err != nil {
		return RLSReport{}, err
	}
	conns, err := l.open(ctx)
	if err != nil {
		return RLSReport{}, err
	}
	begun := time.Now()
	var stop atomic.Bool
	defer time.AfterFunc(l.Duration, func() { stop.Store(true) }).Stop()
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	errs := make([]error, len(conns))
	var done sync.WaitGroup
	for i, c := range conns {
		done.Go(func() { errs[i] = c.run(context.WithoutCancel(ctx), &stop) })
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	watch(l.Progress, func() Report { return total(conns, time.Since(begun)).Report }, finished)
	return total(conns, time.Since(begun)), errors.Join(errs...)
}

// open connects and sends the first call on each connection.
func (l *RLSLoad) open(ctx context.Context) ([]*rlsConn, error) {
	conns := make([]*rlsConn, l.Connections)
	for i := range conns {
		// The first connections have one caller more if they cannot be divided evenly.
		callers := (l.Callers + l.Connections - 1 - i) / l.Connections
		conns[i] = newRLSConn(l, callers)
	}
	errs := make([]error, len(conns))
	var done sync.WaitGroup
	for i, c := range conns {
		done.Go(func() { errs[i] = c.open(ctx) })
	}
	done.Wait()
	if err := cmp.Or(errs...); err != nil {
		for _, c := range conns {
			c.close()
		}
		return nil, err
	}
	return conns, nil
}

func total(conns []*rlsConn, elapsed time.Duration) RLSReport {
	all := RLSReport{Report: Report{Elapsed: elapsed, Latency: hdrhistogram.New(1, maxLatency, 3)}}
	for _, c := range conns {
		c.mu.Lock()
		all.add(&c.report.Report)
		all.Failure = cmp.Or(all.Failure, c.report.Failure)
		all.Reconnects += c.report.Reconnects
		c.mu.Unlock()
	}
	return all
}

// DialIdle opens n connections to a gRPC server at address and exchanges SETTINGS and one
// PING on each. The function that it returns closes them.
func DialIdle(ctx context.Context, address string, config *tls.Config, n int) (closeAll func(), err error) {
	if n < 1 || n > MaxConnections {
		return nil, &weir.InvalidError{Field: "connections", Value: strconv.Itoa(n), Want: fmt.Sprintf("1 … %d", MaxConnections)}
	}
	conns := make([]net.Conn, 0, n)
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	for range n {
		conn, err := dialHTTP2(ctx, address, config)
		if err == nil {
			conns = append(conns, conn)
			err = greet(conn)
		}
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("open connection %d: %w", len(conns)+1, err)
		}
	}
	return closeAll, nil
}
