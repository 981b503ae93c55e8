package frames_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"maps"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/frames"
)

// An attack sends frames until the connection fails.
type attack struct {
	begin func(*wire)                   // may be nil
	step  func(w *wire, i uint32) error // i counts from 0
	code  http2.ErrCode
	or    http2.ErrCode // where it depends on what the server is just doing; 0: it does not
}

const calm = http2.ErrCodeEnhanceYourCalm

// id is the i-th stream of a client.
func id(i uint32) uint32 { return 2*i + 1 }

// all does one thing after another.
func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// small makes the receive buffers of a listener's connections small. A server that ends a
// connection reads and discards a MiB of what was sent before. If it left any unread, the reset
// of the connection could overtake the GOAWAY.
type small struct{ net.Listener }

func (l small) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if tcp, ok := nc.(*net.TCPConn); ok {
		err = tcp.SetReadBuffer(64 << 10)
	}
	return nc, err
}

var attacks = map[string]attack{
	"reset of unfinished calls": {nil, func(w *wire, i uint32) error {
		return all(w.head(id(i), echo), w.WriteRSTStream(id(i), http2.ErrCodeCancel))
	}, calm, 0},
	"reset of whole calls": {nil, func(w *wire, i uint32) error {
		return all(w.call(id(i), wait, 1), w.WriteRSTStream(id(i), http2.ErrCodeCancel))
	}, calm, 0},
	"reset of unfinished streams": {nil, func(w *wire, i uint32) error {
		return all(w.head(id(i), chat), w.WriteRSTStream(id(i), http2.ErrCodeCancel))
	}, calm, 0},
	"reset of streams": {nil, func(w *wire, i uint32) error {
		return all(w.call(id(i), chat, 1), w.WriteRSTStream(id(i), http2.ErrCodeCancel))
	}, calm, 0},
	"streams that receive nothing": {nil, func(w *wire, i uint32) error {
		return all(w.head(id(i), deaf), w.WriteData(id(i), false, message(10_000)))
	}, http2.ErrCodeFlowControl, calm},
	"messages of a stream, empty": {func(w *wire) { w.check(w.head(1, chat)) }, func(w *wire, _ uint32) error {
		return w.WriteData(1, false, []byte{0, 0, 0, 0, 0})
	}, calm, 0},
	"unknown methods":       {nil, func(w *wire, i uint32) error { return w.head(id(i), "/a.B/C") }, calm, 0},
	"too many streams":      {nil, func(w *wire, i uint32) error { return w.head(id(i), echo) }, calm, 0},
	"CONTINUATION, endless": {unfinished, func(w *wire, _ uint32) error { return w.WriteContinuation(1, false, make([]byte, 1000)) }, calm, 0},
	"CONTINUATION, empty":   {unfinished, func(w *wire, _ uint32) error { return w.WriteContinuation(1, false, nil) }, calm, 0},
	"CONTINUATION, a field": {unfinished, func(w *wire, _ uint32) error { return w.WriteContinuation(1, false, []byte{0x82}) }, calm, 0},
	"PING":                  {nil, func(w *wire, _ uint32) error { return w.WritePing(false, [8]byte{}) }, calm, 0},
	"PING's answers":        {nil, func(w *wire, _ uint32) error { return w.WritePing(true, [8]byte{}) }, calm, 0},
	"SETTINGS":              {nil, func(w *wire, _ uint32) error { return w.WriteSettings() }, calm, 0},
	"SETTINGS' answers":     {nil, func(w *wire, _ uint32) error { return w.WriteSettingsAck() }, calm, 0},
	"SETTINGS, long":        {openStreams, func(w *wire, _ uint32) error { return w.WriteSettings(windows()...) }, calm, 0},
	"SETTINGS, while answers wait": {answersWait, func(w *wire, i uint32) error {
		return w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: i + 1})
	}, calm, 0},
	"DATA, empty":             {oneCall, func(w *wire, _ uint32) error { return w.WriteData(1, false, nil) }, calm, 0},
	"DATA, only padding":      {oneCall, func(w *wire, _ uint32) error { return w.WriteDataPadded(1, false, nil, make([]byte, 200)) }, calm, 0},
	"PRIORITY":                {nil, func(w *wire, _ uint32) error { return w.WritePriority(1, http2.PriorityParam{StreamDep: 3}) }, calm, 0},
	"WINDOW_UPDATE":           {nil, func(w *wire, _ uint32) error { return w.WriteWindowUpdate(0, 1) }, calm, 0},
	"WINDOW_UPDATE, a stream": {oneCall, func(w *wire, _ uint32) error { return w.WriteWindowUpdate(1, 1) }, calm, 0},
	"unknown frames":          {nil, func(w *wire, _ uint32) error { return w.WriteRawFrame(99, 0, 0, nil) }, calm, 0},
	"GOAWAY":                  {nil, func(w *wire, _ uint32) error { return w.WriteGoAway(0, 0, nil) }, calm, 0},
	"DATA after a reset": {func(w *wire) { w.check(all(w.head(1, echo), w.WriteRSTStream(1, 0))) }, func(w *wire, _ uint32) error {
		return w.WriteData(1, false, nil)
	}, http2.ErrCodeStreamClosed, 0},
	"made to reset, by a window of 0": {nil, func(w *wire, i uint32) error {
		return all(w.call(id(i), wait, 1), w.WriteWindowUpdate(id(i), 0))
	}, calm, 0},
	"made to reset, by too large a window": {nil, func(w *wire, i uint32) error {
		return all(w.call(id(i), wait, 1), w.WriteWindowUpdate(id(i), 1<<31-1))
	}, calm, 0},
	"made to reset, by DATA after the end": {nil, func(w *wire, i uint32) error {
		return all(w.call(id(i), wait, 1), w.WriteData(id(i), true, nil))
	}, calm, http2.ErrCodeStreamClosed},
	"made to reset, by a priority": {nil, func(w *wire, i uint32) error {
		return all(w.call(id(i), wait, 1), w.WritePriority(id(i), http2.PriorityParam{StreamDep: id(i)}))
	}, calm, 0},
	"malformed calls": {nil, func(w *wire, i uint32) error { return w.head(id(i), echo, "connection", "close") }, calm, 0},
	"messages beyond the limit": {nil, func(w *wire, i uint32) error {
		return all(w.head(id(i), echo), w.WriteData(id(i), false, []byte{0, 255, 255, 255, 255}))
	}, calm, 0},
	"header lists beyond the limit": {remember, func(w *wire, i uint32) error {
		// The table's newest entry, of 4000 bytes, a thousand times.
		block := append(w.fields(echo), strings.Repeat("\xbe", 1000)...)
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i + 1), BlockFragment: block, EndHeaders: true, EndStream: true})
	}, calm, 0},
	"header lists far beyond the limit": {nil, func(w *wire, i uint32) error {
		return w.split(id(i), bytes.Clone(w.fields(echo, "a", strings.Repeat("~", 12_000), "b", strings.Repeat("~", 30_000))))
	}, calm, 0},
	"a value without end": {func(w *wire) {
		w.check(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: append(w.fields(echo), "\x00\x01a\x7f\xff\xff\xff\x00"...)}))
	}, func(w *wire, _ uint32) error { return w.WriteContinuation(1, false, make([]byte, 16_000)) }, calm, 0},
	"a block that cannot be decoded": {nil, func(w *wire, _ uint32) error {
		return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
	}, http2.ErrCodeCompression, 0},
	"a frame too large": {nil, func(w *wire, _ uint32) error { return w.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 16385)) }, http2.ErrCodeFrameSize, 0},
	"HTTP/1.1": {nil, func(w *wire, _ uint32) error {
		_, err := io.WriteString(w.nc, "GET / HTTP/1.1\r\n\r\n")
		return err
	}, http2.ErrCodeFrameSize, 0},
}

// unfinished begins a block that does not end.
func unfinished(w *wire) {
	w.check(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.fields(echo)}))
}

func oneCall(w *wire) { w.check(w.head(1, echo)) }

func openStreams(w *wire) {
	for i := range uint32(900) {
		w.check(w.head(id(i), echo))
	}
}

// answersWait has answers wait for windows of their streams.
func answersWait(w *wire) {
	w.check(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	w.check(w.WriteWindowUpdate(0, 1<<30))
	const answers = 20
	for i := range uint32(answers) {
		w.check(w.call(id(i), large, 1))
	}
	for range answers {
		w.read(wanted[*http2.HeadersFrame](w).HeaderBlockFragment())
	}
}

// windows is as many settings as a frame holds.
func windows() []http2.Setting {
	all := make([]http2.Setting, 2700)
	for i := range all {
		all[i] = http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)}
	}
	return all
}

// remember puts an entry into the server's table.
func remember(w *wire) {
	w.block.Reset()
	w.encoder.SetMaxDynamicTableSize(4096)
	_ = w.encoder.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"})
	w.check(w.head(1, echo, "x-large", strings.Repeat("a", 4000)))
	w.check(w.WriteData(1, true, message(1)))
}

// TestAttacks floods a server and looks at what it costs. It does not run beside
// other tests, which need memory too.
func TestAttacks(t *testing.T) {
	maps.Copy(attacks, gzipAttacks)
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			var ended atomic.Bool
			p := serve(t, frames.Options{Hold: holds(admission.NewBudget(16 << 20)), Limited: func(r frames.Reason) {
				if r == frames.ReasonFlood || r == frames.ReasonProtocol {
					ended.Store(true)
				}
			}})
			honest := newHonest(t, p)
			before := heap()
			w := p.wire(t)
			w.check(w.nc.(*net.TCPConn).SetWriteBuffer(64 << 10))
			if a.begin != nil {
				a.begin(w)
			}
			done := make(chan uint32)
			go func() {
				n := uint32(0)
				for ; n < 1_000_000 && !ended.Load() && a.step(w, n) == nil; n++ {
				}
				done <- n
			}()
			if code, said := w.end(); !said || code != a.code && (a.or == 0 || code != a.or) {
				t.Errorf("ended with %v (GOAWAY: %v), want %v", code, said, a.code)
			}
			_ = w.nc.Close()
			if n := <-done; n == 1_000_000 {
				t.Error("the attack was never stopped")
			}
			if grown := heap() - before; grown > 64<<20 {
				t.Errorf("the heap has grown by %d KiB", grown>>10)
			}
			honest.stop()
		})
	}
}

// TestHeaderMemory begins calls whose headers take far more memory than bytes: fields are sent
// by one byte each. They are charged for what they take. It runs beside no other test.
func TestHeaderMemory(t *testing.T) {
	const most = 32 << 20
	budget := admission.NewBudget(most)
	p := serve(t, frames.Options{Hold: holds(budget)})
	before := heap()
	for range 16 {
		w := p.wire(t)
		for i := range uint32(1000) {
			block := append(bytes.Clone(w.fields(echo)), bytes.Repeat([]byte{0x80 | 21}, 450)...) // "age"
			w.check(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i), BlockFragment: block, EndHeaders: true}))
		}
		w.check(w.WritePing(false, [8]byte{}))
		for pinged := false; !pinged; {
			_, pinged = w.next().(*http2.PingFrame)
		}
	}
	runtime.GC()
	if grown := heap() - before; grown > 2*most {
		t.Errorf("the heap has grown by %d MiB for a budget of %d", grown>>20, most>>20)
	}
	if p.Stats().Limited["memory"] == 0 {
		t.Error("nothing was limited")
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// An honest client calls all the time.
type honest struct {
	*testing.T
	cancel context.CancelFunc
	done   chan struct{}
}

func newHonest(t *testing.T, p *peer) *honest {
	ctx, cancel := context.WithCancel(context.Background())
	h := &honest{t, cancel, make(chan struct{})}
	conn := p.dial(t, plaintext)
	go func() {
		defer close(h.done)
		for ctx.Err() == nil {
			// However busy the machine is.
			one, cancel := context.WithTimeout(ctx, 5*time.Second)
			if _, err := call(one, conn, echo, []byte("a")); err != nil && ctx.Err() == nil {
				t.Errorf("an honest client: %v", err)
			}
			cancel()
		}
	}()
	t.Cleanup(h.stop)
	return h
}

func (h *honest) stop() {
	h.cancel()
	<-h.done
}

// TestTimeouts has clients take their time: each is sent away.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	cert, _ := certificate(t)
	secret := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	const short = 50 * time.Millisecond
	for name, tc := range map[string]struct {
		o     frames.Options
		begin func(*wire)
		want  string // reason
	}{
		"nothing":          {frames.Options{HandshakeTimeout: short}, func(*wire) {}, "handshake"},
		"half a preface":   {frames.Options{HandshakeTimeout: short}, func(w *wire) { w.must(io.WriteString(w.nc, http2.ClientPreface[:12])) }, "handshake"},
		"no SETTINGS":      {frames.Options{HandshakeTimeout: short}, func(w *wire) { w.must(io.WriteString(w.nc, http2.ClientPreface)) }, "handshake"},
		"no TLS":           {frames.Options{HandshakeTimeout: short, TLS: secret}, func(*wire) {}, "handshake"},
		"half a handshake": {frames.Options{HandshakeTimeout: short, TLS: secret}, func(w *wire) { w.must(w.nc.Write([]byte{22, 3, 1, 1, 0, 1})) }, "handshake"},
		"no calls":         {frames.Options{IdleTimeout: short}, greet, "idle"},
		"half a frame":     {frames.Options{IdleTimeout: short}, func(w *wire) { greet(w); w.must(w.nc.Write([]byte{0, 0, 8, 6})) }, "idle"},
		"half a header":    {frames.Options{IdleTimeout: short}, func(w *wire) { greet(w); unfinished(w) }, "idle"},
		"a slow header":    {frames.Options{MessageTimeout: short}, func(w *wire) { greet(w); unfinished(w) }, "slow"},
		"old":              {frames.Options{MaxAge: short}, greet, "age"},
		"old, with a call": {frames.Options{MaxAge: short, AgeGrace: short}, func(w *wire) {
			greet(w)
			_ = w.call(1, wait, 1) // it may come too late
		}, "age"},
		"answers unread": {frames.Options{WriteTimeout: short}, unread, "write"},
		"answers no window": {frames.Options{IdleTimeout: short, MaxAge: short, AgeGrace: short}, func(w *wire) {
			w.must(io.WriteString(w.nc, http2.ClientPreface))
			w.check(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			w.check(w.call(1, echo, 1))
		}, "age"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, tc.o)
			w := p.bare(t)
			tc.begin(w)
			eventually(t, func() bool { s := p.Stats(); return s.Accepted == 1 && s.Connections == 0 })
			if limited := p.Stats().Limited; limited[tc.want] != 1 {
				t.Errorf("counted %v, want one %s", limited, tc.want)
			}
		})
	}
}

func greet(w *wire) {
	w.must(io.WriteString(w.nc, http2.ClientPreface))
	w.check(w.WriteSettings())
}

// unread asks for more answers than any buffer holds, and reads nothing.
func unread(w *wire) {
	greet(w)
	w.check(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	w.check(w.WriteWindowUpdate(0, 1<<30))
	// No more than may be in flight.
	for i := uint32(0); i < 900 && w.call(id(i), large, 1) == nil; i++ {
	}
}

// TestStalledCalls has clients leave a call unfinished: it is reset, and what it held is free
// for others.
func TestStalledCalls(t *testing.T) {
	t.Parallel()
	const short = 50 * time.Millisecond
	for name, tc := range map[string]struct {
		o    frames.Options
		call func(w *wire, id uint32) error
		want string // reason
	}{
		"half a message after another": {frames.Options{MessageTimeout: short}, func(w *wire, id uint32) error {
			return all(w.head(id, sink), w.WriteData(id, false, message(1)), w.WriteData(id, false, []byte{0, 0, 0, 0, 9, 1, 2}))
		}, "slow"},
		"half of two messages at once": {frames.Options{MessageTimeout: short}, func(w *wire, id uint32) error {
			return all(w.head(id, sink), w.WriteData(id, false, append(message(1), message(1)[:6]...)))
		}, "slow"},
		"no window for a message":      {frames.Options{WriteTimeout: short}, func(w *wire, id uint32) error { return w.call(id, burst, 1) }, "write"},
		"no window for an answer":      {frames.Options{WriteTimeout: short}, func(w *wire, id uint32) error { return w.call(id, large, 1) }, "write"},
		"no window for a plain answer": {frames.Options{WriteTimeout: short, MessageTimeout: short}, func(w *wire, id uint32) error { return w.plain(id) }, "write"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			budget := admission.NewBudget(16 << 20)
			tc.o.Hold, tc.o.MaxOpen = holds(budget), 40
			p := serve(t, tc.o)
			w := p.wire(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			const calls = 20
			for i := range uint32(calls) {
				w.check(tc.call(w, id(i)))
			}
			headers := map[uint32]int{}
			for resets := 0; resets < calls; {
				switch f := w.next().(type) {
				case *http2.HeadersFrame:
					if headers[f.StreamID]++; headers[f.StreamID] > 1 {
						t.Fatalf("further headers for stream %d", f.StreamID)
					}
				case *http2.RSTStreamFrame:
					if resets++; f.ErrCode != http2.ErrCodeCancel {
						t.Errorf("%v", f)
					}
				}
			}
			eventually(t, func() bool { return budget.Held() == 0 && p.Stats().Open == 0 })
			if n := p.Stats().Limited[tc.want]; n != calls {
				t.Errorf("%d were limited, want %d", n, calls)
			}
		})
	}
}

// plain begins a request that is no call.
func (w *wire) plain(id uint32) error {
	w.block.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}} {
		_ = w.encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block.Bytes(), EndHeaders: true})
}

// TestSlowMessages refuses calls whose messages do not come, and serves others on
// the same connection.
func TestSlowMessages(t *testing.T) {
	t.Parallel()
	budget := admission.NewBudget(64 << 20)
	p := serve(t, frames.Options{MessageTimeout: 50 * time.Millisecond, Hold: holds(budget)})
	w := p.wire(t)
	for i := range uint32(1000) {
		w.check(all(w.head(id(i), echo), w.WriteData(id(i), false, message(700)[:650])))
	}
	for range 1000 {
		if header := w.read(wanted[*http2.HeadersFrame](w).HeaderBlockFragment()); header["grpc-status"] != "4" {
			t.Fatalf("%v", header)
		}
	}
	w.check(w.call(id(1000), echo, 1000))
	if status := w.answered(id(1000)); status != "0" {
		t.Errorf("status %s", status)
	}
	eventually(t, func() bool { return budget.Held() == 0 })
}

func holds(b *admission.Budget) func(func()) frames.Hold {
	return func(evict func()) frames.Hold { return b.Hold(evict) }
}

// TestBudget: connections share the memory for messages. The largest gives way to others
// that need little.
func TestBudget(t *testing.T) {
	t.Parallel()
	budget := admission.NewBudget(1 << 20)
	p := serve(t, frames.Options{Hold: holds(budget)})
	honest := p.wire(t)
	for i := range uint32(20) {
		w := p.wire(t)
		w.check(w.head(1, echo))
		var err error
		for rest := message(200_000)[:160_000]; len(rest) > 0 && err == nil; rest = rest[16_000:] {
			err = w.WriteData(1, false, rest[:16_000])
		}
		if held := budget.Held(); held > 1<<20+20*16<<10 {
			t.Errorf("%d bytes are held", held)
		}
		honest.check(honest.call(id(i), echo, 100))
		if status := honest.answered(id(i)); status != "0" {
			t.Errorf("status %s", status)
		}
	}
	if n := p.Stats().Limited["memory"]; n < 10 {
		t.Errorf("%d were limited", n)
	}
}

// TestLargeMessages sends large messages at once on one connection: all are answered.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	budget := admission.NewBudget(64 << 20)
	p := serve(t, frames.Options{Hold: holds(budget)})
	testLarge(t, p.dial(t, plaintext))
	eventually(t, func() bool { return budget.Held() == 0 })
}

func testLarge(t *testing.T, conn *grpc.ClientConn) {
	body := make([]byte, 250_000)
	for _, n := range []int{16, 64} {
		var calls sync.WaitGroup
		for range n {
			calls.Go(func() {
				answer, err := call(within(t, 30*time.Second), conn, count, body)
				if size, _ := binary.Uvarint(answer); err != nil || size != uint64(len(body)+4) {
					t.Errorf("%d at once: %d bytes, and %v", n, size, err)
				}
			})
		}
		calls.Wait()
	}
}

// TestPrefixes announces a thousand messages on a connection and sends none. What they take is
// refused at once, and the connection gives way to honest clients with large messages.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	budget := admission.NewBudget(size)
	p := serve(t, frames.Options{Hold: holds(budget), MessageTimeout: time.Minute}) // a busy machine may be late
	announce := func() *wire {
		w := p.wire(t)
		for i := range uint32(1000) {
			if all(w.head(id(i), echo), w.WriteData(id(i), false, []byte{0, 0, 3, 0xd0, 0x90})) != nil {
				break
			}
		}
		return w
	}
	for range 4 {
		announce()
		if held := budget.Held(); held > size {
			t.Errorf("%d bytes are held", held)
		}
	}
	w := announce()
	refused := 0
	for ping := false; !ping; {
		switch f := w.next().(type) {
		case *http2.HeadersFrame:
			if header := w.read(f.HeaderBlockFragment()); header["grpc-status"] != "8" {
				t.Fatalf("%v", header)
			}
			refused++
			if refused == 1 {
				w.check(w.WritePing(false, [8]byte{}))
			}
		case *http2.PingFrame:
			ping = true
		}
	}
	conn := p.dial(t, plaintext)
	for range 20 {
		if _, err := call(within(t, time.Minute), conn, echo, make([]byte, 250_000)); err != nil {
			t.Error(err)
		}
	}
	if n := p.Stats().Limited["memory"]; n < 1000 {
		t.Errorf("%d were limited", n)
	}
}

// TestUnsettled opens a call before the client knows the settings: it may send as much as
// HTTP/2 says, and gets the window for the rest afterwards.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{}).bare(t)
	greet(w)
	body := message(100_000)
	w.check(w.head(1, count))
	for sent := 0; sent < 65535; sent += 16384 {
		w.check(w.WriteData(1, false, body[sent:min(sent+16384, 65535)]))
	}
	w.check(w.WriteSettingsAck())
	body = body[65535:]
	for window := 16384 - 65535; len(body) > 0; {
		for window <= 0 {
			if f := wanted[*http2.WindowUpdateFrame](w); f.StreamID == 1 {
				window += int(f.Increment)
			}
		}
		n := min(len(body), window, 16384)
		w.check(w.WriteData(1, n == len(body), body[:n]))
		body, window = body[n:], window-n
	}
	if status := w.answered(1); status != "0" {
		t.Errorf("status %s", status)
	}
}
