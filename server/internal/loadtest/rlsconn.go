package loadtest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	rlsMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	// answerWindow is the flow-control window of each answer, and its greatest length.
	answerWindow = 1 << 20
	// connWindow is the flow-control window of a connection. It is never nearly used up,
	// so that updates of it are rare.
	connWindow = 1 << 28
	// initialWindow is the flow-control window of HTTP/2 before SETTINGS change it.
	initialWindow = 1<<16 - 1
	maxStreamID   = 1<<31 - 1
	// firstTry and lastTry bound the time between attempts to connect again.
	firstTry, lastTry = time.Millisecond, 100 * time.Millisecond
)

// An rlsConn keeps calls in flight on one connection at a time. All its methods are called
// by one goroutine, which reads what has arrived, starts a call for each one that ended,
// and writes before it waits.
type rlsConn struct {
	load    *RLSLoad
	callers int
	random  *rand.Rand
	opening bool // the first call is in flight

	net     net.Conn
	reader  *bufio.Reader
	framer  *http2.Framer
	out     bytes.Buffer // frames that are not written yet
	encoder *headerWriter
	decoder *hpack.Decoder
	body    []byte // message of the next call, with its prefix

	// calls has the call of stream s at (s/2) modulo its length, a power of two.
	calls    []rlsCall
	inFlight int
	next     uint32 // stream of the next call
	// blocked is the number of calls whose body is not sent for lack of window.
	blocked int
	// leaving is true after GOAWAY, and when there are no more streams: the calls in
	// flight are answered, others need another connection.
	leaving bool
	settled bool      // the server's SETTINGS have arrived
	silent  time.Time // deadline of the next read

	window       int64  // what the connection may still send
	streamWindow int64  // what a new stream may send
	maxStreams   uint32 // that the server allows
	received     int    // bytes of DATA that no WINDOW_UPDATE has given back
	headers      *rlsCall
	headersEnd   bool // the header block that is being read ends its stream
	status, grpc string
	message      string

	mu     sync.Mutex
	report RLSReport
}

// An rlsCall is a call in flight. Its id is 0 if there is none.
type rlsCall struct {
	id     uint32
	begun  time.Time
	began  bool  // the answer's headers have arrived
	window int64 // what the stream may still send
	unsent []byte
	answer []byte
}

func newRLSConn(l *RLSLoad, callers int) *rlsConn {
	slots := 4
	for slots < 2*callers {
		slots *= 2
	}
	return &rlsConn{
		load: l, callers: callers, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		calls:  make([]rlsCall, slots),
		report: RLSReport{Report: Report{Latency: hdrhistogram.New(1, maxLatency, 3)}},
	}
}

// dialHTTP2 connects to a server of HTTP/2, by prior knowledge in plain text.
func dialHTTP2(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	config = config.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if chosen := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; chosen != http2.NextProtoTLS {
		return nil, errors.Join(fmt.Errorf("%s speaks %q over TLS: want h2", address, chosen), conn.Close())
	}
	return conn, nil
}

// greet exchanges SETTINGS and a PING, and leaves the connection idle.
func greet(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	_, err := io.WriteString(conn, http2.ClientPreface)
	err = cmp.Or(err, framer.WriteSettings(), framer.WritePing(false, [8]byte{1}))
	for err == nil {
		var frame http2.Frame
		if frame, err = framer.ReadFrame(); err != nil {
			break
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if frame.IsAck() {
				return conn.SetDeadline(time.Time{})
			}
			err = framer.WritePing(true, frame.Data)
		case *http2.GoAwayFrame:
			err = errors.New("the server sent GOAWAY: " + frame.ErrCode.String())
		}
	}
	return err
}

// open connects and sends one call, which is not counted.
func (c *rlsConn) open(ctx context.Context) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	c.opening = true
	c.start()
	for c.inFlight > 0 {
		if err := c.turn(); err != nil {
			return err
		}
	}
	c.opening = false
	return c.report.Failure
}

func (c *rlsConn) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.load.Timeout+time.Second)
	defer cancel()
	conn, err := dialHTTP2(ctx, c.load.Address, c.load.TLS)
	if err != nil {
		return err
	}
	c.net, c.reader = conn, bufio.NewReaderSize(conn, 1<<16)
	c.out.Reset()
	c.framer = http2.NewFramer(&c.out, c.reader)
	c.framer.SetReuseFrames()
	c.encoder, c.decoder = c.requestHeaders(), hpack.NewDecoder(tableCapacity, c.field)
	c.next, c.leaving, c.headers, c.received, c.blocked = 1, false, nil, 0, 0
	c.window, c.streamWindow, c.maxStreams = initialWindow, initialWindow, 1<<31-1
	c.silent, c.settled = time.Time{}, false
	c.out.WriteString(http2.ClientPreface)
	// A Framer fails only if its writer does.
	_ = c.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: answerWindow})
	_ = c.framer.WriteWindowUpdate(0, connWindow-initialWindow)
	for !c.settled {
		if err := c.turn(); err != nil {
			c.close()
			return err
		}
	}
	return nil
}

func (c *rlsConn) close() {
	if c.net != nil {
		_ = c.net.Close()
	}
}

// run keeps calls in flight until stop is set and the last one is answered.
func (c *rlsConn) run(ctx context.Context, stop *atomic.Bool) error {
	defer c.close()
	for {
		for !stop.Load() && c.mayStart() {
			c.start()
		}
		if c.inFlight == 0 && stop.Load() {
			return nil
		}
		if c.inFlight == 0 && c.leaving {
			if err := c.reconnect(ctx, stop); err != nil {
				return err
			}
			continue
		}
		if err := c.turn(); err != nil {
			c.lose(fmt.Errorf("the connection failed: %w", err))
		}
	}
}

func (c *rlsConn) mayStart() bool {
	return !c.leaving && c.blocked == 0 && c.inFlight < c.callers && uint32(c.inFlight) < c.maxStreams
}

// reconnect replaces the connection. It tries until Timeout has passed: the server may
// be restarting.
func (c *rlsConn) reconnect(ctx context.Context, stop *atomic.Bool) error {
	c.close()
	deadline := time.Now().Add(c.load.Timeout)
	for wait := firstTry; ; wait = min(2*wait, lastTry) {
		time.Sleep(wait)
		err := c.connect(ctx)
		if err == nil {
			c.mu.Lock()
			c.report.Reconnects++
			c.mu.Unlock()
			return nil
		}
		if stop.Load() {
			c.net = nil
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("connect again: %w", err)
		}
	}
}

// lose fails all calls in flight, because the connection did.
func (c *rlsConn) lose(err error) {
	for i := range c.calls {
		if call := &c.calls[i]; call.id != 0 {
			c.fail(call, err)
		}
	}
	c.leaving = true
}

// turn writes what has gathered, waits for frames and handles those that have arrived.
func (c *rlsConn) turn() error {
	now := time.Now()
	if patience := c.load.Timeout + time.Second; c.silent.Sub(now) < patience-100*time.Millisecond {
		c.silent = now.Add(patience)
		if err := c.net.SetDeadline(c.silent); err != nil {
			return err
		}
	}
	if c.out.Len() > 0 {
		_, err := c.net.Write(c.out.Bytes())
		c.out.Reset()
		if err != nil {
			return err
		}
	}
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		if err := c.handle(frame); err != nil {
			return err
		}
		if !c.arrived() {
			return nil
		}
	}
}

// arrived reports whether a whole frame can be read without waiting.
func (c *rlsConn) arrived() bool {
	const head = 9
	if c.reader.Buffered() < head {
		return false
	}
	prefix, _ := c.reader.Peek(3)
	return c.reader.Buffered() >= head+int(prefix[0])<<16+int(prefix[1])<<8+int(prefix[2])
}

// start begins a call on the next stream.
func (c *rlsConn) start() {
	// A stream that hangs keeps its slot; the streams that would share it are left out.
	for c.call(c.next).id != 0 {
		c.next += 2
	}
	call := c.call(c.next)
	*call = rlsCall{id: c.next, window: c.streamWindow, unsent: call.unsent[:0], answer: call.answer[:0]}
	c.next += 2
	c.leaving = c.leaving || c.next > maxStreamID-2*uint32(len(c.calls))
	c.inFlight++
	_ = c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: call.id, BlockFragment: c.encoder.block(c.traceparent()), EndHeaders: true})
	c.writeMessage()
	if n := int64(len(c.body)); c.blocked == 0 && n <= c.window && n <= call.window {
		c.window -= n
		_ = c.framer.WriteData(call.id, true, c.body)
	} else {
		call.unsent = append(call.unsent, c.body...)
		c.blocked++
		c.sendMore(call)
	}
	call.begun = time.Now()
}

// call returns the slot of a stream.
func (c *rlsConn) call(id uint32) *rlsCall { return &c.calls[id/2&uint32(len(c.calls)-1)] }

// sendMore sends as much of a call's body as the windows allow.
func (c *rlsConn) sendMore(call *rlsCall) {
	n := min(int64(len(call.unsent)), c.window, call.window)
	if n <= 0 {
		return
	}
	c.window, call.window = c.window-n, call.window-n
	_ = c.framer.WriteData(call.id, int(n) == len(call.unsent), call.unsent[:n])
	if call.unsent = call.unsent[n:]; len(call.unsent) == 0 {
		c.blocked--
	}
}

// sendAll sends what a window has held up.
func (c *rlsConn) sendAll() {
	for i := 0; c.blocked > 0 && i < len(c.calls); i++ {
		if call := &c.calls[i]; call.id != 0 && len(call.unsent) > 0 {
			c.sendMore(call)
		}
	}
}

// requestHeaders returns an encoder of the headers that Envoy sends.
func (c *rlsConn) requestHeaders() *headerWriter {
	w := newHeaderWriter()
	scheme := "http"
	if c.load.TLS != nil {
		scheme = "https"
	}
	w.add(":method", "POST", false)
	w.add(":path", rlsMethod, false)
	w.add(":authority", c.load.Address, false)
	w.add(":scheme", scheme, false)
	w.add("te", "trailers", false)
	w.add("grpc-timeout", strconv.FormatInt(c.load.Timeout.Milliseconds(), 10)+"m", false)
	w.add("content-type", "application/grpc", false)
	w.add("x-envoy-internal", "true", false)
	if c.load.Token != "" {
		w.add("authorization", "Bearer "+c.load.Token, true)
	}
	if c.load.Traceparent {
		w.add("traceparent", "", false)
	}
	return w
}

// writeMessage builds the message of the next call.
func (c *rlsConn) writeMessage() {
	key := "k" + strconv.Itoa(c.random.IntN(c.load.Keys))
	entry := protowire.SizeBytes(len(c.load.Entry)) + protowire.SizeBytes(len(key)) + 2
	descriptor := protowire.SizeBytes(entry) + 1
	b := append(c.body[:0], 0, 0, 0, 0, 0)
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), c.load.Domain)
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.BytesType), uint64(descriptor))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(entry))
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), c.load.Entry)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), key)
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	c.body = b
}

// traceparent returns a new trace context, or nothing if none is sent.
func (c *rlsConn) traceparent() string {
	if !c.load.Traceparent {
		return ""
	}
	var id [24]byte
	for i := 0; i < len(id); i += 8 {
		binary.LittleEndian.PutUint64(id[i:], c.random.Uint64()|1) // neither of the IDs may be 0
	}
	text := append(make([]byte, 0, 55), "00-"...)
	text = append(hex.AppendEncode(text, id[:16]), '-')
	return string(append(hex.AppendEncode(text, id[16:]), "-00"...))
}

func (c *rlsConn) handle(frame http2.Frame) error {
	switch frame := frame.(type) {
	case *http2.HeadersFrame:
		return c.readHeaders(frame)
	case *http2.ContinuationFrame:
		return c.readBlock(frame.HeaderBlockFragment(), frame.HeadersEnded())
	case *http2.DataFrame:
		return c.readData(frame)
	case *http2.SettingsFrame:
		return c.readSettings(frame)
	case *http2.PingFrame:
		if !frame.IsAck() {
			_ = c.framer.WritePing(true, frame.Data)
		}
	case *http2.WindowUpdateFrame:
		c.readWindow(frame.StreamID, int64(frame.Increment))
	case *http2.RSTStreamFrame:
		if call := c.call(frame.StreamID); call.id == frame.StreamID {
			c.endReset(call, frame.ErrCode)
		}
	case *http2.GoAwayFrame:
		c.readShutdown(frame)
	case *http2.PushPromiseFrame:
		return errors.New("the server sent PUSH_PROMISE")
	}
	return nil
}

func (c *rlsConn) readSettings(frame *http2.SettingsFrame) error {
	if frame.IsAck() {
		return nil
	}
	_ = frame.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			change := int64(s.Val) - c.streamWindow
			c.streamWindow += change
			for i := range c.calls {
				c.calls[i].window += change
			}
		case http2.SettingMaxConcurrentStreams:
			c.maxStreams = s.Val
		case http2.SettingHeaderTableSize:
			c.encoder.limit(s.Val)
		}
		return nil
	})
	c.settled = true
	c.sendAll()
	return c.framer.WriteSettingsAck()
}

func (c *rlsConn) readWindow(stream uint32, increment int64) {
	if stream == 0 {
		c.window += increment
	} else if call := c.call(stream); call.id == stream {
		call.window += increment
	}
	c.sendAll()
}

// readShutdown makes the calls in flight the connection's last ones. Those that the server
// has not begun are sent again on the next connection: they count neither as answered nor
// as failed.
func (c *rlsConn) readShutdown(frame *http2.GoAwayFrame) {
	c.leaving = true
	for i := range c.calls {
		call := &c.calls[i]
		if call.id <= frame.LastStreamID {
			continue
		}
		if frame.ErrCode != http2.ErrCodeNo {
			c.fail(call, fmt.Errorf("the server sent GOAWAY: %v %s", frame.ErrCode, frame.DebugData()))
			continue
		}
		c.remove(call)
	}
}

// endReset ends a call that the server has reset. One that it has not begun is sent again.
func (c *rlsConn) endReset(call *rlsCall, code http2.ErrCode) {
	if code == http2.ErrCodeRefusedStream {
		c.remove(call)
		return
	}
	c.fail(call, fmt.Errorf("the server reset the call: %v", code))
}

func (c *rlsConn) readData(frame *http2.DataFrame) error {
	if c.received += int(frame.Length); c.received > connWindow/2 {
		_ = c.framer.WriteWindowUpdate(0, uint32(c.received))
		c.received = 0
	}
	call := c.call(frame.StreamID)
	if call.id != frame.StreamID {
		return nil // it has failed meanwhile
	}
	switch data := frame.Data(); {
	case !call.began:
		c.fail(call, errors.New("the server sent DATA before HEADERS"))
	case len(call.answer)+len(data) > answerWindow:
		c.fail(call, fmt.Errorf("the answer has more than %d bytes", answerWindow))
	default:
		call.answer = append(call.answer, data...)
		if frame.StreamEnded() {
			c.fail(call, errors.New("the server sent no grpc-status"))
		}
	}
	return nil
}

func (c *rlsConn) readHeaders(frame *http2.HeadersFrame) error {
	c.headers, c.headersEnd = c.call(frame.StreamID), frame.StreamEnded()
	if c.headers.id != frame.StreamID {
		c.headers = nil // the decoder has to see its headers none the less
	}
	c.status, c.grpc, c.message = "", "", ""
	return c.readBlock(frame.HeaderBlockFragment(), frame.HeadersEnded())
}

// field is called for each header that the decoder finds.
func (c *rlsConn) field(f hpack.HeaderField) {
	switch f.Name {
	case ":status":
		c.status = f.Value
	case "grpc-status":
		c.grpc = f.Value
	case "grpc-message":
		c.message = f.Value
	}
}

func (c *rlsConn) readBlock(block []byte, ended bool) error {
	if _, err := c.decoder.Write(block); err != nil || !ended {
		return err
	}
	if err := c.decoder.Close(); err != nil {
		return err
	}
	call := c.headers
	if call == nil {
		return nil
	}
	switch {
	case !call.began && c.status != "200":
		c.fail(call, fmt.Errorf("the server answered with HTTP status %q", c.status))
	case c.headersEnd:
		c.end(call)
	default:
		call.began = true
	}
	return nil
}

// end judges a call whose trailers have arrived.
func (c *rlsConn) end(call *rlsCall) {
	if c.grpc != "0" {
		status := fmt.Sprintf("%q", c.grpc)
		if code, err := strconv.ParseUint(c.grpc, 10, 32); err == nil {
			status = codes.Code(code).String()
		}
		c.fail(call, fmt.Errorf("grpc-status %s: %s", status, c.message))
		return
	}
	code, err := overallCode(call.answer)
	if err != nil {
		c.fail(call, err)
		return
	}
	outcome := Granted
	if code == rlsv3.RateLimitResponse_OVER_LIMIT {
		outcome = Refused
	}
	c.note(call, outcome)
}

// overallCode returns the overall code of a whole answer: OK or OVER_LIMIT.
func overallCode(answer []byte) (rlsv3.RateLimitResponse_Code, error) {
	if len(answer) < 5 || answer[0] != 0 || int(binary.BigEndian.Uint32(answer[1:])) != len(answer)-5 {
		return 0, errors.New("the answer is not one uncompressed gRPC message")
	}
	code := rlsv3.RateLimitResponse_UNKNOWN
	for b := answer[5:]; len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if number == 1 && kind == protowire.VarintType {
			value, _ := protowire.ConsumeVarint(b)
			code = rlsv3.RateLimitResponse_Code(value)
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
	}
	if code != rlsv3.RateLimitResponse_OK && code != rlsv3.RateLimitResponse_OVER_LIMIT {
		return 0, fmt.Errorf("the overall code is %v", code)
	}
	return code, nil
}

// fail counts a call as failed and frees its slot.
func (c *rlsConn) fail(call *rlsCall, err error) {
	c.mu.Lock()
	c.report.Failure = cmp.Or(c.report.Failure, err)
	c.mu.Unlock()
	c.note(call, Failed)
}

// note counts a call and frees its slot.
func (c *rlsConn) note(call *rlsCall, outcome Outcome) {
	if !c.opening {
		c.mu.Lock()
		c.report.note(outcome, time.Since(call.begun))
		c.mu.Unlock()
	}
	c.remove(call)
}

func (c *rlsConn) remove(call *rlsCall) {
	if len(call.unsent) > 0 {
		c.blocked--
	}
	call.id = 0
	c.inFlight--
}
