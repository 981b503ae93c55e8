package frames_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/server/internal/admission"
	"github.com/weirlimit/weir/server/internal/frames"
)

// received notes how many bytes answers had before they were decompressed.
type received struct {
	mu         sync.Mutex
	compressed int
}

func (*received) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (*received) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}
func (*received) HandleConn(context.Context, stats.ConnStats) {}
func (r *received) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.compressed = in.CompressedLength
	}
}

// TestGzip has a client compress its messages. Answers come back compressed if that is worth
// it, and others do not.
func TestGzip(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		var got received
		conn := serve(t, frames.Options{Direct: direct}).dial(t, plaintext, grpc.WithStatsHandler(&got))
		for _, size := range []int{0, 1, 200, 1000, 70_000, 256<<10 - 4} {
			message := bytes.Repeat([]byte("abcdefg\n"), size/8+1)[:size]
			for _, options := range [][]grpc.CallOption{{grpc.UseCompressor(grpcgzip.Name)}, nil} {
				answer, err := call(within(t, 10*time.Second), conn, echo, message, options...)
				if err != nil || !bytes.Equal(answer, message) {
					t.Fatalf("%d bytes: %d bytes came back, and %v", size, len(answer), err)
				}
				if compressed := got.compressed < size; compressed != (options != nil && size >= 1000) {
					t.Errorf("%d bytes came back in %d, compressed: %v", size, got.compressed, options != nil)
				}
			}
		}
		for size, want := range map[int]codes.Code{256<<10 - 3: codes.ResourceExhausted, 4 << 20: codes.ResourceExhausted} {
			if _, err := call(within(t, 10*time.Second), conn, echo, make([]byte, size), grpc.UseCompressor(grpcgzip.Name)); status.Code(err) != want {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
		if _, err := call(within(t, 10*time.Second), conn, reject, nil, grpc.UseCompressor(grpcgzip.Name)); status.Code(err) != codes.FailedPrecondition {
			t.Error(err)
		}
	}
}

// zipped compresses bytes.
func zipped(plain []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(plain)
	_ = w.Close()
	return b.Bytes()
}

// claiming has a gzip claim to be as large as it is not.
func claiming(packed []byte, size uint32) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(packed[:len(packed)-4]), size)
}

// pack frames a compressed message.
func pack(packed []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{1}, uint32(len(packed))), packed...)
}

// zippedCall sends a call whose message is compressed.
func (w *wire) zippedCall(id uint32, packed []byte) error {
	return all(w.head(id, echo, "grpc-encoding", "gzip"), w.WriteData(id, true, pack(packed)))
}

// TestWrongGzip sends messages that are not what they say.
func TestWrongGzip(t *testing.T) {
	t.Parallel()
	plain := message(1000)[5:]
	whole := zipped(plain)
	broken := bytes.Clone(whole)
	broken[len(broken)-5] ^= 1 // of the checksum
	for name, tc := range map[string]struct {
		packed []byte
		want   string
	}{
		"right":              {whole, "0"},
		"empty":              {nil, "13"},
		"no gzip":            {bytes.Repeat([]byte{7}, 100), "8"},
		"a short one":        {whole[:17], "13"},
		"larger than said":   {claiming(whole, uint32(len(plain)-1)), "13"},
		"smaller than said":  {claiming(whole, uint32(len(plain)+1)), "13"},
		"more than allowed":  {claiming(whole, 256<<10+1), "8"},
		"much more than any": {claiming(whole, 1<<32-1), "8"},
		"another checksum":   {broken, "13"},
		"two":                {append(bytes.Clone(whole), whole...), "13"},
		"more behind it":     {append(bytes.Clone(whole), whole[len(whole)-4:]...), "13"},
	} {
		w := serve(t, frames.Options{}).wire(t)
		w.check(w.zippedCall(1, tc.packed))
		if status := w.answered(1); status != tc.want {
			t.Errorf("%s: status %s, want %s", name, status, tc.want)
		}
		w.check(w.call(3, echo, 1))
		if status := w.answered(3); status != "0" {
			t.Errorf("%s, and then: status %s", name, status)
		}
	}
	// A message may be compressed only if the header says how.
	for _, encoding := range []string{"identity", "snappy"} {
		w := serve(t, frames.Options{}).wire(t)
		w.check(all(w.head(1, echo, "grpc-encoding", encoding), w.WriteData(1, true, pack(whole))))
		if status := w.answered(1); status != map[string]string{"identity": "13", "snappy": "12"}[encoding] {
			t.Errorf("%s: status %s", encoding, status)
		}
	}
}

// TestGzipIsCharged: what a message says that it takes is charged before it is read.
func TestGzipIsCharged(t *testing.T) {
	t.Parallel()
	budget := admission.NewBudget(256 << 10)
	p := serve(t, frames.Options{Hold: holds(budget)})
	w := p.wire(t)
	for i, want := range []string{"0", "8", "0"} {
		size := []int{50 << 10, 200 << 10, 60 << 10}[i]
		w.check(w.zippedCall(id(uint32(i)), zipped(message(size)[5:])))
		if status := w.answered(id(uint32(i))); status != want {
			t.Errorf("%d bytes: status %s, want %s", size, status, want)
		}
	}
	eventually(t, func() bool { return budget.Held() == 0 })
}

// bomb is a message of the largest size that there may be, in as few bytes as possible.
var bomb = sync.OnceValue(func() []byte { return zipped(message(256<<10 - 4)[5:]) })

// gzipAttacks are attacks by compressed messages.
var gzipAttacks = map[string]attack{
	"gzip, beyond the limit": {nil, func(w *wire, i uint32) error { return w.zippedCall(id(i), claiming(bomb(), 1<<30)) }, calm, 0},
	"gzip, larger than said": {nil, func(w *wire, i uint32) error { return w.zippedCall(id(i), claiming(bomb(), 200<<10)) }, calm, 0},
	"gzip, broken":           {nil, func(w *wire, i uint32) error { return w.zippedCall(id(i), []byte(strings.Repeat("\x00", 40))) }, calm, 0},
	"gzip, a thousandfold":   {nil, func(w *wire, i uint32) error { return w.zippedCall(id(i), bomb()) }, calm, 0},
	"gzip, unfinished": {nil, func(w *wire, i uint32) error {
		return all(w.head(id(i), echo, "grpc-encoding", "gzip"), w.WriteData(id(i), false, pack(bomb())[:20]))
	}, calm, 0},
	"gzip, reset": {nil, func(w *wire, i uint32) error {
		return all(w.zippedCall(id(i), bomb()), w.WriteRSTStream(id(i), http2.ErrCodeCancel))
	}, calm, 0},
}
