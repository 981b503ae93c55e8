package frames

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

const fuzzed = "/a.B/C"

const streamed = "/a.B/D"

// newFuzzed returns a server that echoes, calls and the messages of streams.
func newFuzzed(f *testing.F) *Server {
	s, err := New(Options{
		Hold:    func(func()) Hold { return ledger{f, new(atomic.Int64)} },
		Methods: map[string]Handler{fuzzed: func(c *Call) { c.Reply(c.Message()) }},
		Streams: map[string]StreamHandler{streamed: func(s *Stream) {
			for {
				m, err := s.Recv()
				if err != nil || s.Send(m) != nil {
					return
				}
			}
		}},
		MaxStreams: 10, MaxMessage: 1000, MaxHeaderList: 1000,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Stop(f.Context()) })
	return s
}

// A ledger is a hold that demands to be settled when its connection ends.
type ledger struct {
	testing.TB
	held *atomic.Int64
}

func (l ledger) Take(n int64) bool { l.held.Add(n); return true }
func (l ledger) Return(n int64)    { l.held.Add(-n) }
func (l ledger) Unfinished(n int64) {
	if n < 0 || n > l.held.Load() {
		l.Errorf("%d bytes are unfinished", n)
	}
}

func (l ledger) Close() {
	if n := l.held.Load(); n != 0 {
		l.Errorf("%d bytes are still held", n)
	}
}

// An outcome is what a client saw.
type outcome struct {
	data    map[uint32][]byte
	status  map[uint32]string // grpc-status, or the status of HTTP where there is none
	resets  map[uint32]http2.ErrCode
	goAways []http2.ErrCode
	err     error // of output that no client could read
}

// A pipe is a connection whose client has sent its input, and closes when every
// whole call is answered.
type pipe struct {
	net.Conn // nil: what follows is all that is called
	conn     *conn
	input    []byte
	mu       sync.Mutex
	output   bytes.Buffer
	ended    bool
}

func (p *pipe) Read(b []byte) (int, error) {
	if len(p.input) > 0 {
		n := copy(b, p.input)
		p.input = p.input[n:]
		return n, nil
	}
	for !p.settled() {
		runtime.Gosched()
	}
	return 0, io.EOF
}

// settled reports whether nothing more will come of the server's own accord.
func (p *pipe) settled() bool {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	c := p.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kick()
	for _, st := range c.streams {
		// What waits for the client's window waits forever.
		if st.running && st.ended && st.unsent() == 0 {
			return ended
		}
	}
	return !c.flushing || ended
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

func (p *pipe) Close() error { return p.SetReadDeadline(time.Time{}.Add(1)) }

func (p *pipe) SetReadDeadline(at time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = !at.IsZero() && time.Until(at) < 0
	return nil
}

func (p *pipe) SetDeadline(at time.Time) error { return p.SetReadDeadline(at) }
func (p *pipe) RemoteAddr() net.Addr           { return &net.TCPAddr{} }
func (p *pipe) LocalAddr() net.Addr            { return &net.TCPAddr{} }

// converse has a client send input and then close, and returns what came back. The
// connection has ended then.
func converse(s *Server, input []byte) *outcome {
	p := &pipe{input: input}
	p.conn = newConn(s, p)
	if p.conn.begin() {
		p.conn.work(reading)
		p.conn.mu.Lock()
		for !p.conn.left {
			p.conn.changed.Wait()
		}
		p.conn.mu.Unlock()
	}
	return read(&p.output)
}

func read(client io.Reader) *outcome {
	o := &outcome{data: map[uint32][]byte{}, status: map[uint32]string{}, resets: map[uint32]http2.ErrCode{}}
	framer := http2.NewFramer(nil, client)
	framer.SetMaxReadFrameSize(maxFrame)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				o.err = err
			}
			return o
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			o.data[f.StreamID] = append(o.data[f.StreamID], f.Data()...)
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == ":status" || field.Name == "grpc-status" {
					o.status[f.StreamID] = field.Value
				}
			}
		case *http2.RSTStreamFrame:
			o.resets[f.StreamID] = f.ErrCode
		case *http2.GoAwayFrame:
			o.goAways = append(o.goAways, f.ErrCode)
		}
	}
}

// A script writes frames for a seed.
type script struct {
	bytes.Buffer
	*http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
}

func newScript() *script {
	s := new(script)
	s.Framer = http2.NewFramer(&s.Buffer, nil)
	s.AllowIllegalWrites = true
	s.encoder = hpack.NewEncoder(&s.block)
	return s
}

func (s *script) head(id uint32, end bool, fields ...string) {
	s.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = s.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = s.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.block.Bytes(), EndHeaders: true, EndStream: end})
}

func usual(path string, more ...string) []string {
	return append([]string{":method", "POST", ":scheme", "http", ":path", path, "content-type", "application/grpc"}, more...)
}

func prefixed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// check holds a connection that has ended to what it leaves.
func check(t *testing.T, s *Server, o *outcome) {
	if o.err != nil {
		t.Errorf("the server wrote what no client can read: %v", o.err)
	}
	if n := s.opened.Load(); n != 0 {
		t.Errorf("%d streams are still open", n)
	}
}

// FuzzFrames reads whatever a client sends after its preface.
func FuzzFrames(f *testing.F) {
	s := newFuzzed(f)
	for _, write := range []func(*script){
		func(*script) {},
		func(w *script) { w.head(1, false, usual(fuzzed)...); _ = w.WriteData(1, true, prefixed([]byte("a"))) },
		func(w *script) { w.head(1, false, usual("/x")...); _ = w.WriteData(1, true, prefixed([]byte("a"))) },
		func(w *script) {
			w.head(1, false, usual(streamed)...)
			_ = w.WriteData(1, false, append(prefixed([]byte("a")), prefixed([]byte("bc"))[:6]...))
			_ = w.WriteData(1, true, prefixed([]byte("bc"))[6:])
		},
		func(w *script) { w.head(1, true, ":method", "GET", ":scheme", "http", ":path", "/") },
		func(w *script) {
			w.head(1, false, usual(fuzzed)...)
			_ = w.WriteRSTStream(1, 8)
			_ = w.WriteWindowUpdate(1, 0)
			_ = w.WritePriority(3, http2.PriorityParam{StreamDep: 3})
		},
		func(w *script) {
			_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3})
			w.head(1, false, usual(fuzzed)...)
			_ = w.WriteDataPadded(1, false, prefixed([]byte("abc"))[:4], make([]byte, 9))
			_ = w.WriteData(1, true, prefixed([]byte("abc"))[4:])
			_ = w.WriteWindowUpdate(1, 5)
			_ = w.WriteWindowUpdate(0, 1<<31-1)
		},
		func(w *script) {
			_ = w.WritePing(false, farewell)
			_ = w.WritePing(true, farewell)
			_ = w.WriteGoAway(1, 0, nil)
			_ = w.WriteContinuation(1, true, nil)
			_ = w.WriteRawFrame(77, 1, 2, []byte("a"))
		},
	} {
		w := newScript()
		write(w)
		f.Add(w.Bytes())
	}
	begin := newScript()
	begin.WriteString(http2.ClientPreface)
	_ = begin.WriteSettings()
	f.Fuzz(func(t *testing.T, input []byte) {
		whole := append(bytes.Clone(begin.Bytes()), input...)
		// The connection's own memory, and both sides' buffers.
		fuzztest.Within(t, 4*fuzztest.MostBytes, 4*len(input), func() { check(t, s, converse(s, whole)) })
	})
}

// FuzzRequests sends one call, whose header and message are anything, in pieces. It
// is answered once, or reset; a call without fault is answered with its message.
func FuzzRequests(f *testing.F) {
	s := newFuzzed(f)
	f.Add(fuzzed, "application/grpc", "te", "trailers", []byte("message"), uint8(3))
	f.Add(fuzzed, "application/grpc+proto", "grpc-timeout", "1S", []byte{}, uint8(0))
	f.Add("/x", "application/grpc", "grpc-encoding", "gzip", []byte("message"), uint8(100))
	f.Add(streamed, "application/grpc", "grpc-encoding", "gzip", []byte("message"), uint8(100))
	f.Add(fuzzed, "text/plain", "content-length", "12", []byte("message"), uint8(1))
	f.Add(fuzzed, "application/grpc", "grpc-timeout", "99999999H", bytes.Repeat([]byte{0}, 996), uint8(200))
	f.Add(fuzzed, "application/grpc;x", "connection", "close", []byte("a"), uint8(200))
	f.Fuzz(func(t *testing.T, path, contentType, name, value string, body []byte, piece uint8) {
		body = body[:min(len(body), 2000)]
		w := newScript()
		w.WriteString(http2.ClientPreface)
		_ = w.WriteSettings()
		w.head(1, false, ":method", "POST", ":scheme", "http", ":path", path, "content-type", contentType, name, value)
		rest := prefixed(body)
		for step := int(piece)*8 + 1; len(rest) > step; rest = rest[step:] {
			_ = w.WriteData(1, false, rest[:step])
		}
		_ = w.WriteData(1, true, rest)
		o := converse(s, w.Bytes())
		check(t, s, o)
		answers := len(o.status)
		if len(o.goAways) == 0 && len(o.resets) == 0 && answers != 1 {
			t.Errorf("%d answers", answers)
		}
		faultless := path == fuzzed && contentType == "application/grpc" && name == "te" && value == "trailers" && len(body) <= 1000
		if faultless && (o.status[1] != "0" || !bytes.Equal(o.data[1], prefixed(body))) {
			t.Errorf("status %s, %d bytes of %d", o.status[1], len(o.data[1]), len(body)+prefixLength)
		}
	})
}
