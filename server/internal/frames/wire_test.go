package frames_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirlimit/weir/server/internal/frames"
)

// A wire is a client that sends what it likes.
type wire struct {
	testing.TB
	*http2.Framer
	nc      net.Conn
	block   bytes.Buffer
	encoder *hpack.Encoder
	decoder *hpack.Decoder
}

// wire connects and shakes hands.
func (p *peer) wire(t testing.TB, settings ...http2.Setting) *wire {
	t.Helper()
	w := p.bare(t)
	w.must(io.WriteString(w.nc, http2.ClientPreface))
	w.check(w.WriteSettings(settings...))
	if _, ok := w.next().(*http2.SettingsFrame); !ok {
		t.Fatal("the server's first frame is no SETTINGS")
	}
	w.check(w.WriteSettingsAck())
	return w
}

// bare connects and says nothing.
func (p *peer) bare(t testing.TB) *wire {
	t.Helper()
	nc, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	w := &wire{TB: t, nc: nc, Framer: http2.NewFramer(nc, nc), decoder: hpack.NewDecoder(4096, nil)}
	w.AllowIllegalWrites = true
	w.encoder = hpack.NewEncoder(&w.block)
	return w
}

func (w *wire) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *wire) must(_ int, err error) {
	w.Helper()
	w.check(err)
}

// fields encodes the header of a call, and more.
func (w *wire) fields(method string, more ...string) []byte {
	w.block.Reset()
	all := append([]string{":method", "POST", ":scheme", "http", ":path", method, "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(all); i += 2 {
		_ = w.encoder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	return w.block.Bytes()
}

// head sends the header of a call.
func (w *wire) head(id uint32, method string, more ...string) error {
	return w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.fields(method, more...), EndHeaders: true})
}

// split sends a header block in as many frames as it takes, without a message.
func (w *wire) split(id uint32, block []byte) error {
	part := block[:min(len(block), 16384)]
	block = block[len(part):]
	err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndHeaders: len(block) == 0, EndStream: true})
	for err == nil && len(block) > 0 {
		part, block = block[:min(len(block), 16384)], block[min(len(block), 16384):]
		err = w.WriteContinuation(id, len(block) == 0, part)
	}
	return err
}

// message is a BytesValue of some size, as gRPC sends it.
func message(size int) []byte {
	body := binary.AppendUvarint([]byte{0x0a}, uint64(size))
	body = append(body, bytes.Repeat([]byte{9}, size)...)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}

// call sends a whole call, whose message fits a frame.
func (w *wire) call(id uint32, method string, size int) error {
	if err := w.head(id, method); err != nil {
		return err
	}
	return w.WriteData(id, true, message(size))
}

// next returns the next frame. The test fails if there is none.
func (w *wire) next() http2.Frame {
	w.Helper()
	f, err := w.ReadFrame()
	w.check(err)
	return f
}

// wanted returns the next frame of a type. Others are passed over.
func wanted[F http2.Frame](w *wire) F {
	w.Helper()
	for {
		if f, ok := w.next().(F); ok {
			return f
		}
	}
}

// read decodes a block of headers.
func (w *wire) read(block []byte) map[string]string {
	w.Helper()
	fields, err := w.decoder.DecodeFull(block)
	w.check(err)
	all := map[string]string{}
	for _, f := range fields {
		all[f.Name] = f.Value
	}
	return all
}

// data returns the next n bytes of a stream's data, in however many frames.
func (w *wire) data(id uint32, n int) {
	w.Helper()
	for n > 0 {
		f := wanted[*http2.DataFrame](w)
		if f.StreamID != id || len(f.Data()) > n {
			w.Fatalf("%d bytes for stream %d: want %d for %d", len(f.Data()), f.StreamID, n, id)
		}
		n -= len(f.Data())
	}
}

// quiet has the server answer a ping: nothing else may come before.
func (w *wire) quiet() {
	w.Helper()
	w.check(w.WritePing(false, [8]byte{1}))
	for {
		switch f := w.next().(type) {
		case *http2.PingFrame:
			return
		case *http2.SettingsFrame, *http2.WindowUpdateFrame:
		default:
			w.Fatalf("%v", f)
		}
	}
}

// end reads until the connection ends. It returns the code of a GOAWAY, if one came.
func (w *wire) end() (code http2.ErrCode, said bool) {
	w.Helper()
	for {
		f, err := w.ReadFrame()
		if err != nil {
			if e := net.Error(nil); errors.As(err, &e) && e.Timeout() {
				w.Fatal("the connection does not end")
			}
			return code, said
		}
		if f, ok := f.(*http2.GoAwayFrame); ok {
			code, said = f.ErrCode, true
		}
	}
}

// answered reads the rest of an answer, up to the trailer's grpc-status.
func (w *wire) answered(id uint32) string {
	w.Helper()
	for {
		switch f := w.next().(type) {
		case *http2.HeadersFrame:
			if header := w.read(f.HeaderBlockFragment()); f.StreamID == id && f.StreamEnded() {
				return header["grpc-status"]
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				w.Fatalf("%v", f)
			}
		case *http2.GoAwayFrame:
			w.Fatalf("%v", f)
		}
	}
}

// TestWindowChanges moves the windows of streams whose answers are on their way,
// also below zero.
func TestWindowChanges(t *testing.T) {
	t.Parallel()
	initial := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	w := serve(t, frames.Options{}).wire(t, initial(20))
	w.check(w.call(1, echo, 93)) // 100 bytes
	w.data(1, 20)
	w.check(w.WriteSettings(initial(5))) // leaves -15
	w.quiet()
	w.check(w.WriteWindowUpdate(1, 15))
	w.quiet()
	w.check(w.WriteWindowUpdate(1, 10))
	w.data(1, 10)
	w.check(w.WriteSettings(initial(25))) // 20 more
	w.data(1, 20)
	w.quiet()
	w.check(w.call(3, echo, 93))
	w.data(3, 25)
	w.check(w.WriteSettings(initial(1000)))
	for range 2 {
		// In any order.
		f := wanted[*http2.DataFrame](w)
		if want := map[uint32]int{1: 50, 3: 75}[f.StreamID]; len(f.Data()) != want {
			t.Errorf("%d bytes for stream %d, want %d", len(f.Data()), f.StreamID, want)
		}
	}
	w.check(w.WriteSettings(initial(1<<31 - 1)))
	w.quietBut()
	w.check(w.call(5, wait, 1))
	w.check(w.WriteWindowUpdate(5, 1))
	if f := wanted[*http2.RSTStreamFrame](w); f.ErrCode != http2.ErrCodeFlowControl {
		t.Errorf("%v", f)
	}
}

// TestConnectionWindow lets answers wait for the window that they share.
func TestConnectionWindow(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{}).wire(t)
	const each = 16_000 - 8 // and 8 bytes around it
	for i := range uint32(6) {
		w.check(w.call(2*i+1, echo, each))
	}
	got := map[uint32]int{}
	for sum := 0; sum < 65535; {
		f := wanted[*http2.DataFrame](w)
		got[f.StreamID] += len(f.Data())
		sum += len(f.Data())
	}
	w.quietBut()
	w.check(w.WriteWindowUpdate(0, 1<<20))
	for sum := 65535; sum < 6*len(message(each)); {
		f := wanted[*http2.DataFrame](w)
		got[f.StreamID] += len(f.Data())
		sum += len(f.Data())
	}
	for id, n := range got {
		if n != len(message(each)) {
			t.Errorf("stream %d got %d bytes", id, n)
		}
	}
	w.check(w.WriteWindowUpdate(0, 1<<31-1))
	if code, _ := w.end(); code != http2.ErrCodeFlowControl {
		t.Errorf("a window beyond 2³¹-1: %v", code)
	}
}

// quietBut is quiet, but for headers.
func (w *wire) quietBut() {
	w.Helper()
	w.check(w.WritePing(false, [8]byte{1}))
	for {
		switch f := w.next().(type) {
		case *http2.PingFrame:
			return
		case *http2.DataFrame:
			w.Fatalf("%v", f)
		}
	}
}

// TestPadding sends far more padding than the windows allow at once.
func TestPadding(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{}).wire(t)
	for i, size := range []int{900, 60_000} {
		body := message(size)
		w.check(w.head(id(uint32(i)), count))
		w.check(w.WriteData(id(uint32(i)), false, body[:100]))
		window := 16384 - 100
		for body = body[100:]; len(body) > 0; body = body[min(len(body), 100):] {
			window -= 100 + 256
			for window < 0 {
				if f := wanted[*http2.WindowUpdateFrame](w); f.StreamID == id(uint32(i)) {
					window += int(f.Increment)
				}
			}
			w.check(w.WriteDataPadded(id(uint32(i)), len(body) <= 100, body[:min(len(body), 100)], make([]byte, 255)))
		}
		if status := w.answered(id(uint32(i))); status != "0" {
			t.Errorf("%d bytes: status %s", size, status)
		}
	}
}

// TestStreamWindow sends more on one stream than its window.
func TestStreamWindow(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{MaxMessage: 1000}).wire(t)
	w.check(all(w.head(1, deaf), w.WriteData(1, false, message(1))))
	for range 5 {
		w.check(w.WriteData(1, false, make([]byte, 16384)))
	}
	if f := wanted[*http2.RSTStreamFrame](w); f.ErrCode != http2.ErrCodeFlowControl {
		t.Errorf("%v", f)
	}
	w.check(w.call(3, echo, 1))
	if status := w.answered(3); status != "0" {
		t.Errorf("status %s", status)
	}
}

// TestCodes sends what RFC 9113 has a code for.
func TestCodes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		send func(w *wire) error
		want http2.ErrCode
	}{
		"HEADERS without all of its priority": {func(w *wire) error {
			return w.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPriority, 1, []byte{0, 0})
		}, http2.ErrCodeFrameSize},
		"DATA without the length of its padding": {func(w *wire) error {
			return all(w.head(1, echo), w.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, nil))
		}, http2.ErrCodeFrameSize},
		"DATA that is all padding": {func(w *wire) error {
			return all(w.head(1, echo), w.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{1}))
		}, http2.ErrCodeProtocol},
		"PRIORITY of an idle stream on itself": {func(w *wire) error {
			return w.WritePriority(99, http2.PriorityParam{StreamDep: 99})
		}, http2.ErrCodeProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := serve(t, frames.Options{}).wire(t)
			w.check(tc.send(w))
			if code, said := w.end(); !said || code != tc.want {
				t.Errorf("ended with %v (GOAWAY: %v), want %v", code, said, tc.want)
			}
		})
	}
	for _, value := range []string{" a", "a ", "\ta", "a\t", " "} {
		w := serve(t, frames.Options{}).wire(t)
		w.check(w.head(1, echo, "x-a", value))
		if f := wanted[*http2.RSTStreamFrame](w); f.ErrCode != http2.ErrCodeProtocol {
			t.Errorf("the value %q: %v", value, f)
		}
	}
}

// TestLongHeaders refuses calls whose headers are too long, and goes on with the connection:
// what their blocks leave in the table is known.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	w := serve(t, frames.Options{}).wire(t)
	for i, length := range []int{10, 16_000, 16_384, 20_000, 40_000, 60_000} {
		w.check(w.split(id(uint32(2*i)), bytes.Clone(w.fields(echo, "x-kept", "a", "x-long", strings.Repeat("~", length), "x-after", "b"))))
		header := w.read(wanted[*http2.HeadersFrame](w).HeaderBlockFragment())
		if got, want := header[":status"], map[bool]string{true: "431", false: "200"}[length > 16_100]; got != want {
			t.Errorf("a value of %d bytes: status %s, want %s", length, got, want)
		}
		w.check(w.head(id(uint32(2*i+1)), echo, "x-kept", "a", "x-after", "b"))
		w.check(w.WriteData(id(uint32(2*i+1)), true, message(10)))
		if status := w.answered(id(uint32(2*i + 1))); status != "0" {
			t.Errorf("after a value of %d bytes: status %s", length, status)
		}
	}
}
