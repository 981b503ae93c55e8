package compare_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/server/internal/compare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ok   = rlsv3.RateLimitResponse_OK
	over = rlsv3.RateLimitResponse_OVER_LIMIT
)

// answering is an answer with one descriptor.
func answering(overall, code rlsv3.RateLimitResponse_Code, limit *rlsv3.RateLimitResponse_RateLimit) *rlsv3.RateLimitResponse {
	return &rlsv3.RateLimitResponse{OverallCode: overall, Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{{Code: code, CurrentLimit: limit}}}
}

func per(unit rlsv3.RateLimitResponse_RateLimit_Unit, requests uint32) *rlsv3.RateLimitResponse_RateLimit {
	return &rlsv3.RateLimitResponse_RateLimit{Unit: unit, RequestsPerUnit: requests}
}

// A service gives one answer, and a stage compares Weir's with it.
type service func(context.Context) (*rlsv3.RateLimitResponse, error)

func (s service) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	m, err := s(ctx)
	if err == nil {
		*reply.(*[]byte), err = proto.Marshal(m)
	}
	return err
}

func (service) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	panic("not called")
}

type stage struct {
	*compare.Comparer
	clock  *storetest.Clock
	log    bytes.Buffer
	result compare.Result
}

func newStage(t *testing.T, level slog.Level, other service) *stage {
	t.Helper()
	s := &stage{clock: storetest.NewClock()}
	s.clock.Advance(10 * time.Second) // into the windows
	c := compare.New(compare.Options{
		Other: other, Now: s.clock.Now, Compared: func(r compare.Result) { s.result = r },
		Logger: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: level})),
	})
	s.Comparer = c
	return s
}

// ask asks for a descriptor, which Weir answers so.
func (s *stage) ask(t *testing.T, descriptor string, own *rlsv3.RateLimitResponse, failed error) ([]byte, error) {
	t.Helper()
	raw, err := proto.Marshal(asking(descriptor))
	if err != nil {
		t.Fatal(err)
	}
	return s.Answer(t.Context(), raw, func(context.Context) ([]byte, error) {
		if failed != nil {
			return nil, failed
		}
		return proto.Marshal(own)
	})
}

// TestReasons compares answers one by one.
func TestReasons(t *testing.T) {
	t.Parallel()
	const second, minute, hour = rlsv3.RateLimitResponse_RateLimit_SECOND, rlsv3.RateLimitResponse_RateLimit_MINUTE, rlsv3.RateLimitResponse_RateLimit_HOUR
	for name, c := range map[string]struct {
		other, own *rlsv3.RateLimitResponse
		failed     error
		result     compare.Result
		line       string
	}{
		"same":        {answering(over, over, per(minute, 5)), answering(over, over, per(minute, 5)), nil, compare.Same, ""},
		"looser":      {answering(over, over, per(minute, 5)), answering(ok, ok, per(minute, 5)), nil, compare.Looser, "the counts differ domain=edge descriptor=user=1 other=OVER_LIMIT, 5/minute, 0 remain weir=OK, 5/minute, 0 remain"},
		"stricter":    {answering(ok, ok, per(second, 5)), answering(over, over, per(second, 5)), nil, compare.Stricter, "the counts differ domain=edge"},
		"young":       {answering(over, over, per(hour, 5)), answering(ok, ok, per(hour, 5)), nil, compare.Looser, "Weir has not yet counted for a whole window of the limit"},
		"another":     {answering(over, over, per(minute, 5)), answering(ok, ok, per(minute, 6)), nil, compare.Looser, "the limits differ"},
		"unit":        {answering(ok, ok, per(minute, 5)), answering(ok, ok, per(hour, 5)), nil, compare.Limits, "the limits differ"},
		"no limit":    {answering(ok, ok, per(minute, 5)), answering(ok, ok, nil), nil, compare.Limits, "no rule of Weir has a limit for the descriptor"},
		"only weir":   {answering(ok, ok, nil), answering(over, over, per(minute, 5)), nil, compare.Stricter, "only Weir has a limit for the descriptor"},
		"modes":       {answering(over, over, per(minute, 5)), answering(ok, over, per(minute, 5)), nil, compare.Looser, "shadow mode or quota mode differs"},
		"no decision": {answering(ok, ok, nil), nil, errors.New("the store reached no decision"), compare.Failed, "the store reached no decision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return c.other, nil })
			s.clock.Advance(10 * time.Minute)
			answer, err := s.ask(t, "user=1", c.own, c.failed)
			want, _ := proto.Marshal(c.other)
			if err != nil || !bytes.Equal(answer, want) {
				t.Errorf("got %x, %v: want the other service's answer", answer, err)
			}
			if line := strings.ReplaceAll(s.log.String(), `"`, ""); s.result != c.result || !strings.Contains(line, c.line) || (c.line == "") != (line == "") {
				t.Errorf("got %s, %q: want %s, %q", s.result, line, c.result, c.line)
			}
		})
	}
}

// TestOtherFails passes the other service's error on, and compares nothing.
func TestOtherFails(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelDebug, func(context.Context) (*rlsv3.RateLimitResponse, error) {
		return nil, status.Error(codes.Unavailable, "stopped")
	})
	answer, err := s.ask(t, "user=1", answering(ok, ok, nil), nil)
	if answer != nil || status.Code(err) != codes.Unavailable || s.result != compare.Absent || s.log.Len() > 0 {
		t.Errorf("got %x, %v, %s, %q", answer, err, s.result, s.log.String())
	}
}

// TestGrace ends a decision that takes longer than the other service's answer.
func TestGrace(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(ok, ok, nil), nil })
	raw, err := proto.Marshal(asking("user=1"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Answer(t.Context(), raw, func(ctx context.Context) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if err != nil || s.result != compare.Failed || !strings.Contains(s.log.String(), "Weir had not decided 20 ms after") {
		t.Errorf("got %v, %s, %s", err, s.result, &s.log)
	}
}

// TestOneLineAMinute logs a kind of difference once a minute, each kind by itself, and no
// more kinds than there is room for.
func TestOneLineAMinute(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(over, over, nil), nil })
	lines := func(descriptor string) int {
		s.log.Reset()
		if _, err := s.ask(t, descriptor, answering(ok, ok, nil), nil); err != nil {
			t.Fatal(err)
		}
		return strings.Count(s.log.String(), "\n")
	}
	for i, c := range []struct {
		descriptor string
		wait       time.Duration
		want       int
	}{
		{"user=1", 0, 1},
		{"user=2", 0, 0},
		{"path=/", 0, 1},
		{"user=3", 59 * time.Second, 0},
		{"user=4", time.Second, 1},
	} {
		s.clock.Advance(c.wait)
		if n := lines(c.descriptor); n != c.want {
			t.Errorf("ask %d, %s: %d lines, want %d", i, c.descriptor, n, c.want)
		}
	}
	if !strings.Contains(s.log.String(), "number=4") {
		t.Errorf("%s: want the number of differences", &s.log)
	}
	n := 0
	for i := range 1000 {
		n += lines(fmt.Sprintf("made_up_%d=1", i))
	}
	if n < 100 || n > 201 {
		t.Errorf("%d lines for 1000 kinds", n)
	}
}

// TestLongRequests: a caller does not choose how long a line of the log is.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(over, over, nil), nil })
	if _, err := s.ask(t, strings.Repeat("k", 100_000)+"="+strings.Repeat("v", 100_000), answering(ok, ok, nil), nil); err != nil {
		t.Fatal(err)
	}
	if n := s.log.Len(); n == 0 || n > 1500 {
		t.Errorf("%d bytes were logged", n)
	}
}
