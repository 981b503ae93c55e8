package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	bodies    = 16
	bodyBytes = 1 << 30
	drips     = 500
	resets    = 50_000
)

// TestHostileTogether lets slow connections, endless bodies, calls with ten thousand
// descriptors and with a hundred thousand empty ones, and calls that are reset attack at
// once. Others are answered all the while, nothing is charged, and the process stays within
// its memory.
//
// With "-args -full" it also judges how long others wait. Attackers, others and server
// share the machine, so attacks slow everything down that runs on it, whatever they aim
// at. The control is the same attack on another process, which does nothing but refuse:
// beside attacks on Weir, others may wait three times as long for Weir as beside those. On
// a machine that is too busy to answer them in time without attacks, nothing is judged.
func TestHostileTogether(t *testing.T) {
	t.Parallel()
	t.Run("plain http", func(t *testing.T) { hostileTogether(t, "on") })
	t.Run("net/http alone", func(t *testing.T) { hostileTogether(t, "off") })
}

func hostileTogether(t *testing.T, plain string) {
	s := &siege{t: t, client: newClient(t), weir: serveWith(t, []string{memoryLimit, "WEIR_PLAIN_HTTP=" + plain}, "testdata/hostile.yaml", "memory")}
	size, rounds := together{drips / 5, bodies / 4, 5, floods / 10, resets / 10}, 1
	if *full {
		size, rounds = together{drips, bodies, 100, floods, resets}, 5
	}
	control := &siege{t: t, client: s.client, weir: startSink(t)}
	calm := p99(s.measure(2*time.Second, func() {}))
	var beside, under []time.Duration
	for range rounds {
		beside = append(beside, p99(s.measure(0, func() { control.attack(size) })))
		under = append(under, p99(s.measure(0, func() { s.attack(size) })))
	}
	most := s.memory()
	report := fmt.Sprintf("%+v: p99 of others %v, beside the same attacks on another process %v, without attacks %v; resident at most %d MiB",
		size, median(under), median(beside), calm, most>>20)
	t.Log(report, under, beside)
	if *full {
		fmt.Println("hostile clients at once:", report)
		if median(under) > 3*median(beside) && calm < busy {
			t.Error("others waited more than three times as long")
		}
	}
	if most > mostResident {
		t.Errorf("the process used %d MiB", most>>20)
	}
	s.uncharged()
}

// busy is a p99 without attacks that says that the machine has no time for the test.
const busy = 3 * time.Millisecond

// together is how much of each attack is made at once.
type together struct{ drips, bodies, calls, objects, resets int }

// attack makes all attacks at once.
func (s *siege) attack(size together) {
	var attacks sync.WaitGroup
	attacks.Go(func() { s.drip(size.drips) })
	attacks.Go(func() { s.flood(size.bodies) })
	attacks.Go(func() { s.reset(size.resets) })
	attacks.Go(func() { s.overload(size.calls) })
	attacks.Go(func() { s.pourMessages(4) })
	attacks.Go(func() { s.pourBodies("/json", size.objects) })
	attacks.Go(func() { s.pourBodies("/v1/take", size.objects) })
	attacks.Wait()
}

// measure is how long another client waits for its answers during an attack, for so
// long at least.
func (s *siege) measure(least time.Duration, attack func()) []time.Duration {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(least)
		defer timer.Stop()
		attack()
		<-timer.C
	}()
	var took []time.Duration
	for {
		began := time.Now()
		s.bystander()
		took = append(took, time.Since(began))
		select {
		case <-ended:
			return took
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func p99(took []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)*99/100].Round(10 * time.Microsecond)
}

func median(took []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(took))[len(took)/2]
}

// overload asks with ten thousand descriptors, so often.
func (s *siege) overload(calls int) {
	client := rlsv3.NewRateLimitServiceClient(dialEnvoy(s.t, s.weir))
	request := &rlsv3.RateLimitRequest{Domain: "hostile", Descriptors: slices.Repeat([]*ratelimitv3.RateLimitDescriptor{envoy("victim", "1")}, 10_000)}
	for range calls {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		_, err := client.ShouldRateLimit(ctx, request)
		cancel()
		if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted && code != codes.Unavailable {
			s.t.Errorf("10 000 descriptors: %v", err)
		}
	}
}

// flood sends so many bodies of 1 GiB at once.
func (s *siege) flood(bodies int) {
	var sending sync.WaitGroup
	for i := range bodies {
		path, length := "/v1/take", "Transfer-Encoding: chunked"
		if i%2 == 1 {
			path = "/json"
		}
		if i%4 > 1 {
			length = fmt.Sprintf("Content-Length: %d", bodyBytes)
		}
		conn := connect(s.t, s.addr)
		sending.Go(func() {
			if got := s.pour(conn, path, length); got != http.StatusTooManyRequests {
				s.t.Errorf("%s, %s: got %d, want 429", path, length, got)
			}
		})
	}
	sending.Wait()
}

// pour sends a body until it is at its end or nobody takes more of it.
func (s *siege) pour(conn net.Conn, path, length string) int {
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\n%s\r\n\r\n", path, length)
	if strings.HasPrefix(length, "Transfer") {
		fmt.Fprintf(conn, "%x\r\n", bodyBytes)
	}
	done := make(chan int, 1)
	go func() {
		got, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			s.t.Errorf("%s, %s: %v", path, length, err)
			done <- 0
			return
		}
		got.Body.Close()
		done <- got.StatusCode
	}()
	_, _ = io.CopyN(conn, endless(`{"domain":"hostile","x":`), bodyBytes)
	return <-done
}

// drip keeps so many connections busy, until the server has ended them all.
func (s *siege) drip(connections int) {
	beginnings := []string{
		"",
		"G",
		"GET /v1/auth?domain=hostile&victim=1 HTTP/1.1\r\nHost: weir\r\nX-Slow: ",
		"POST /v1/take HTTP/1.1\r\nHost: weir\r\nContent-Length: 1000\r\n\r\n",
		"POST /v1/take HTTP/1.1\r\nHost: weir\r\nTransfer-Encoding: chunked\r\n\r\n",
	}
	var dripping sync.WaitGroup
	for i := range connections {
		conn := connect(s.t, s.addr)
		dripping.Go(func() { drip(s.t, conn, beginnings[i%len(beginnings)]) })
	}
	dripping.Wait()
}

// drip sends a beginning, and then a byte from time to time until the server closes the connection.
func drip(t *testing.T, conn net.Conn, beginning string) {
	defer conn.Close()
	_, _ = io.WriteString(conn, beginning)
	ended := make(chan bool, 1)
	go func() {
		_, ok := hungUp(conn)
		ended <- ok
	}()
	for {
		select {
		case ok := <-ended:
			if !ok {
				t.Errorf("%q was kept for %v", beginning, patience)
			}
			return
		case <-time.After(200 * time.Millisecond):
			if beginning != "" {
				_, _ = io.WriteString(conn, "1")
			}
		}
	}
}

// reset opens so many calls and resets each at once. If the server ends a connection, the next
// connection goes on.
func (s *siege) reset(calls int) {
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", rlsv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{"content-type", "application/grpc"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			s.t.Error(err)
		}
	}
	for sent := 0; sent < calls; {
		conn := connect(s.t, s.grpc)
		frames := http2.NewFramer(conn, conn)
		_, err := io.WriteString(conn, http2.ClientPreface)
		if err == nil {
			err = frames.WriteSettings()
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		for stream := uint32(1); sent < calls && err == nil; stream += 2 {
			sent++
			err = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header.Bytes(), EndHeaders: true})
			if err == nil {
				err = frames.WriteRSTStream(stream, http2.ErrCodeCancel)
			}
		}
		conn.Close()
	}
}
