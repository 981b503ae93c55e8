// Package wire loads a gRPC server with unary calls written on bare HTTP/2 frames.
// It costs about a tenth of what grpc-go's client does, so that a fast server is not
// measured by the speed of its client.
package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A Load is calls of one method, always as many in flight. All fields are required,
// Token aside.
type Load struct {
	Address     string // host:port
	Method      string // "/package.Service/Method"
	Connections int
	InFlight    int // on all connections together
	Duration    time.Duration
	Token       string
	// Message returns the i-th message of a connection, encoded. It may use the
	// memory of buf.
	Message func(buf []byte, i int) []byte
	// Answered, if not nil, is called with every message that comes back. It is called by
	// one goroutine for each connection.
	Answered func(message []byte)
}

// A Report is what came of a load.
type Report struct {
	Calls   int64
	Failed  int64 // with another grpc-status than 0
	Elapsed time.Duration
	P50     time.Duration
	P99     time.Duration
}

// Rate is the calls in a second.
func (r Report) Rate() float64 { return float64(r.Calls) / r.Elapsed.Seconds() }

// Run calls until the duration has passed or ctx ends.
func (l *Load) Run(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Duration)
	defer cancel()
	var mu sync.Mutex
	var all Report
	var errs []error
	var latencies []time.Duration
	var running sync.WaitGroup
	begin := time.Now()
	for i := range l.Connections {
		running.Go(func() {
			c := client{load: l, inFlight: max(1, l.InFlight/l.Connections), next: i * 1_000_003}
			err := c.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			all.Calls += c.calls
			all.Failed += c.failed
			latencies = append(latencies, c.latencies...)
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	running.Wait()
	all.Elapsed = time.Since(begin)
	if len(latencies) > 0 {
		slices.Sort(latencies)
		all.P50, all.P99 = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	}
	return all, errors.Join(errs...)
}

// A client is one connection.
type client struct {
	load     *Load
	nc       net.Conn
	inFlight int
	next     int // message
	id       uint32
	begun    []time.Time // of streams, by a part of their number
	read     time.Time

	out     []byte
	encoder *hpack.Encoder
	block   bytes.Buffer
	message []byte
	owed    uint32 // bytes of the server's window

	calls, failed int64
	latencies     []time.Duration // of one call in sampled
}

const (
	sampled = 16
	window  = 1 << 30
)

func (c *client) run(ctx context.Context) error {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", c.load.Address)
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	c.nc, c.id, c.read = nc, 1, time.Now()
	c.begun = make([]time.Time, 1<<16)
	c.encoder = hpack.NewEncoder(&c.block)
	c.greet()
	for range c.inFlight {
		c.call()
	}
	if err := c.flush(); err != nil {
		return err
	}
	if err := c.receive(); ctx.Err() == nil {
		return fmt.Errorf("wire: the connection ended: %w", err)
	}
	return nil
}

func (c *client) greet() {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&b, nil)
	// A buffer takes everything.
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = framer.WriteWindowUpdate(0, window)
	c.out = append(c.out, b.Bytes()...)
}

// call writes a call, with headers as Envoy sends them: some that are always the
// same, and some that never are.
func (c *client) call() {
	c.block.Reset()
	for _, f := range [...][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", c.load.Method},
		{":authority", "rate_limit_cluster"},
		{"te", "trailers"},
		{"grpc-timeout", "1000m"},
		{"content-type", "application/grpc"},
		{"x-envoy-internal", "true"},
	} {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	if c.load.Token != "" {
		_ = c.encoder.WriteField(hpack.HeaderField{Name: "authorization", Value: "Bearer " + c.load.Token})
	}
	trace := strconv.AppendUint([]byte("00-4bf92f3577b34da6a3ce929d"), 10_000_000+uint64(c.next), 10)
	_ = c.encoder.WriteField(hpack.HeaderField{Name: "traceparent", Value: string(trace[:35]) + "-00f067aa0ba902b7-01"})
	c.message = c.load.Message(c.message[:0], c.next)
	c.frame(c.block.Len(), http2.FrameHeaders, http2.FlagHeadersEndHeaders)
	c.out = append(c.out, c.block.Bytes()...)
	c.frame(5+len(c.message), http2.FrameData, http2.FlagDataEndStream)
	c.out = binary.BigEndian.AppendUint32(append(c.out, 0), uint32(len(c.message)))
	c.out = append(c.out, c.message...)
	c.begun[c.id/2%uint32(len(c.begun))] = c.read
	c.id += 2
	c.next++
}

func (c *client) frame(length int, kind http2.FrameType, flags http2.Flags) {
	c.out = append(c.out, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	c.out = binary.BigEndian.AppendUint32(c.out, c.id)
}

func (c *client) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// receive reads answers, and calls again for each.
func (c *client) receive() error {
	buffer := make([]byte, 64<<10)
	rest := 0
	for {
		n, err := c.nc.Read(buffer[rest:])
		if err != nil {
			return err
		}
		c.read = time.Now()
		in := buffer[:rest+n]
		for len(in) >= 9 {
			length := int(in[0])<<16 | int(in[1])<<8 | int(in[2])
			if 9+length > len(buffer) {
				return io.ErrShortBuffer
			}
			if len(in) < 9+length {
				break
			}
			if err := c.frameOf(http2.FrameType(in[3]), http2.Flags(in[4]), binary.BigEndian.Uint32(in[5:]), in[9:9+length]); err != nil {
				return err
			}
			in = in[9+length:]
		}
		rest = copy(buffer, in)
		if err := c.flush(); err != nil {
			return err
		}
	}
}

func (c *client) frameOf(kind http2.FrameType, flags http2.Flags, id uint32, payload []byte) error {
	switch kind {
	case http2.FrameData:
		c.owed += uint32(len(payload))
		if c.owed >= window/2 {
			c.out = append(c.out, 0, 0, 4, byte(http2.FrameWindowUpdate), 0, 0, 0, 0, 0)
			c.out = binary.BigEndian.AppendUint32(c.out, c.owed)
			c.owed = 0
		}
		if c.load.Answered != nil && len(payload) >= 5 {
			c.load.Answered(payload[5:])
		}
	case http2.FrameHeaders:
		if !flags.Has(http2.FlagHeadersEndStream) {
			return nil
		}
		c.calls++
		// Trailers are few bytes, whatever encodes them; an index into the table of
		// grpc-go's server is one.
		if len(payload) > 16 {
			c.failed++
		}
		if c.calls%sampled == 0 {
			c.latencies = append(c.latencies, c.read.Sub(c.begun[id/2%uint32(len(c.begun))]))
		}
		c.call()
	case http2.FrameSettings:
		if !flags.Has(http2.FlagSettingsAck) {
			c.out = append(c.out, 0, 0, 0, byte(http2.FrameSettings), byte(http2.FlagSettingsAck), 0, 0, 0, 0)
		}
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			c.out = append(c.out, 0, 0, 8, byte(http2.FramePing), byte(http2.FlagPingAck), 0, 0, 0, 0)
			c.out = append(c.out, payload...)
		}
	case http2.FrameRSTStream, http2.FrameGoAway:
		return fmt.Errorf("%v with code %x", kind, payload)
	}
	return nil
}
