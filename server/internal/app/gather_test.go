package app

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// A pipeline sends calls of the rate limit service in one write.
type pipeline struct {
	*framer
	out    bytes.Buffer
	frames *http2.Framer
	last   uint32 // stream
	calls  int    // in out
}

func newPipeline(t *testing.T, app *App) *pipeline {
	t.Helper()
	p := &pipeline{framer: newFramer(t, app), last: 1<<32 - 1}
	p.frames = http2.NewFramer(&p.out, nil)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := p.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	// The server reads further calls through a large buffer.
	p.call(t, strings.Repeat("x", 4000), "a", nil)
	p.send(t)
	return p
}

// call adds a call for one entry, with further header fields, and returns its stream.
func (p *pipeline) call(t *testing.T, key, value string, more map[string]string) uint32 {
	t.Helper()
	message, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor(key, value)}})
	if err != nil {
		t.Fatal(err)
	}
	p.last += 2
	p.calls++
	_ = p.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: p.last, BlockFragment: p.block(rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, more), EndHeaders: true})
	_ = p.frames.WriteData(p.last, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
	return p.last
}

// An outcome is how a call was answered.
type outcome struct {
	status codes.Code
	over   rlsv3.RateLimitResponse_Code
}

// send sends the calls and returns their outcomes by stream.
func (p *pipeline) send(t *testing.T) map[uint32]outcome {
	t.Helper()
	return p.read(t, p.write(t))
}

// write sends the calls and returns how many they are.
func (p *pipeline) write(t *testing.T) (calls int) {
	t.Helper()
	_ = p.conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if _, err := p.conn.Write(p.out.Bytes()); err != nil {
		t.Fatal(err)
	}
	p.out.Reset()
	calls, p.calls = p.calls, 0
	return calls
}

// read returns the next n outcomes by stream.
func (p *pipeline) read(t *testing.T, n int) map[uint32]outcome {
	t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	got := map[uint32]outcome{}
	over := map[uint32]rlsv3.RateLimitResponse_Code{}
	for len(got) < n {
		f, err := p.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			m := new(rlsv3.RateLimitResponse)
			if err := proto.Unmarshal(f.Data()[5:], m); err != nil {
				t.Fatal(err)
			}
			over[f.StreamID] = m.GetOverallCode()
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if code, err := strconv.Atoi(field.Value); err == nil && field.Name == "grpc-status" {
					got[f.StreamID] = outcome{codes.Code(code), over[f.StreamID]}
				}
			}
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			t.Fatalf("%v", f)
		}
	}
	return got
}

const gatherRules = `domain: shop
descriptors:
  - {key: user, rate_limit: {algorithm: gcra, unit: year, requests_per_unit: 1000}}
  - {key: hot, rate_limit: {algorithm: fixed_window, unit: day, requests_per_unit: 100000}}
  - {key: once, rate_limit: {algorithm: fixed_window, unit: day, requests_per_unit: 1}}
`

// TestGatheredCallers has calls of several callers come together: each is judged by its own
// rights, and a forbidden one charges nothing.
func TestGatheredCallers(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Store: testserver.StartRedis(t).URL(), Config: rulesFor(t, gatherRules), Callers: callersFile(t, "take", "shop")})
	p := newPipeline(t, app)
	want := map[uint32]codes.Code{}
	for i := range 300 {
		name, code := "edge", codes.OK
		if i%3 > 0 {
			name, code = "watch", codes.PermissionDenied
		}
		fields := map[string]string{"authorization": "Bearer " + tokenOf(name)}
		want[p.call(t, "user", "a", fields)] = code
	}
	for id, got := range p.send(t) {
		if got.status != want[id] || got.over == rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("stream %d: %v, want %v", id, got, want[id])
		}
	}
	// 100 were charged.
	for range 901 {
		p.call(t, "user", "a", map[string]string{"authorization": "Bearer " + tokenOf("edge")})
	}
	refused := 0
	for _, got := range p.send(t) {
		if got.over == rlsv3.RateLimitResponse_OVER_LIMIT {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of 901 were refused, want 1", refused)
	}
}

// TestGatheredExactly grants a limit of 100 000 exactly, to calls of many connections that are
// decided together.
func TestGatheredExactly(t *testing.T) {
	t.Parallel()
	app := start(t, Options{Store: testserver.StartRedis(t).URL(), Config: rulesFor(t, gatherRules)})
	const connections, rounds, each = 8, 26, 500 // 104 000
	var granted, refused atomic.Int64
	var clients sync.WaitGroup
	for range connections {
		p := newPipeline(t, app)
		clients.Go(func() {
			for range rounds {
				for i := range each {
					p.call(t, "hot", "a", nil)
					if i%100 == 0 {
						p.call(t, "once", "a", nil) // refused from memory, among them
					}
				}
				for _, got := range p.send(t) {
					switch {
					case got.status != codes.OK:
						t.Errorf("%v", got)
					case got.over == rlsv3.RateLimitResponse_OVER_LIMIT:
						refused.Add(1)
					default:
						granted.Add(1)
					}
				}
			}
		})
	}
	clients.Wait()
	const once = connections * rounds * each / 100
	if granted.Load() != 100_001 || refused.Load() != connections*rounds*each-100_000+once-1 {
		t.Errorf("%d were granted and %d refused", granted.Load(), refused.Load())
	}
	// Each call is counted by itself, and most shared a call of the store with others.
	const calls = connections*rounds*each + once
	wantMetrics(t, app,
		fmt.Sprintf("weir_grpc_calls_total{code=\"OK\",method=\"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit\"} %d", calls),
		fmt.Sprintf("weir_decision_seconds_count{frontend=\"rls\"} %d", calls),
	)
}

// A heldStore decides once it may.
type heldStore struct {
	calls.Store
	may chan struct{}
}

func (h heldStore) Take(ctx context.Context, acts []*weir.Act) {
	<-h.may
	h.Store.Take(ctx, acts)
}

// TestGatheredDeadlines has calls with several deadlines come together: each is answered in its
// own time, though the store does not reply.
func TestGatheredDeadlines(t *testing.T) {
	t.Parallel()
	h := heldStore{may: make(chan struct{})}
	app := start(t, Options{
		Store: testserver.StartRedis(t).URL(), Config: rulesFor(t, gatherRules),
		wrapStore: func(t weir.Taker) weir.Taker { h.Store = t.(calls.Store); return h },
	})
	p := newPipeline(t, app)
	short := map[uint32]bool{}
	for i := range 60 {
		timeout := []string{"50m", "60m", "25S"}[i%3]
		short[p.call(t, "user", strconv.Itoa(i), map[string]string{"grpc-timeout": timeout})] = i%3 < 2
	}
	p.write(t)
	for id := range p.read(t, 40) {
		if !short[id] {
			t.Errorf("stream %d was answered before the store", id)
		}
	}
	close(h.may)
	for id, got := range p.read(t, 20) {
		if short[id] || got != (outcome{codes.OK, rlsv3.RateLimitResponse_OK}) {
			t.Errorf("stream %d: %v", id, got)
		}
	}
}
