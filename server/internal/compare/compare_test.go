package compare_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/server/internal/compare"
	"github.com/weirlimit/weir/server/internal/rls"
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
	rls     *rls.Service
	clock   *storetest.Clock
	log     testserver.Output
	results chan compare.Result
}

func newStage(t *testing.T, level slog.Level, other service) *stage {
	t.Helper()
	s := &stage{clock: storetest.NewClock(), results: make(chan compare.Result, 5000)}
	s.clock.Advance(10 * time.Second) // into the windows
	s.rls = newService(t, s.clock.Now)
	s.Comparer = compare.New(compare.Options{
		Other: other, Now: s.clock.Now, Compared: func(r compare.Result) { s.results <- r },
		Logger: slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: level})),
	})
	return s
}

// A request is decided by a test.
type request struct {
	*rls.Prepared
	decide func() ([]byte, error)
}

func (r *request) Decide(context.Context) ([]byte, error) { return r.decide() }

// prepare returns a request, encoded and as Weir reads it.
func (s *stage) prepare(t testing.TB, m *rlsv3.RateLimitRequest) ([]byte, *rls.Prepared) {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.rls.Prepare(t.Context(), nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	return raw, p
}

// begin asks for a descriptor, which Weir decides so, and waits for the answer alone.
func (s *stage) begin(t testing.TB, descriptor string, decide func() ([]byte, error)) ([]byte, error) {
	t.Helper()
	raw, p := s.prepare(t, asking(descriptor))
	return s.Answer(t.Context(), raw, &request{p, decide})
}

// ask asks for a descriptor, which Weir answers so, and waits for the result too.
func (s *stage) ask(t testing.TB, descriptor string, own *rlsv3.RateLimitResponse, failed error) ([]byte, compare.Result, error) {
	t.Helper()
	answer, err := s.begin(t, descriptor, func() ([]byte, error) {
		if failed != nil {
			return nil, failed
		}
		return proto.Marshal(own)
	})
	return answer, <-s.results, err
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
		"looser":      {answering(over, over, per(minute, 5)), answering(ok, ok, per(minute, 5)), nil, compare.Looser, "the counts differ domain=edge descriptor=user other=OVER_LIMIT, 5/minute, 0 remain weir=OK, 5/minute, 0 remain"},
		"stricter":    {answering(ok, ok, per(second, 5)), answering(over, over, per(second, 5)), nil, compare.Stricter, "the counts differ domain=edge"},
		"young":       {answering(over, over, per(hour, 5)), answering(ok, ok, per(hour, 5)), nil, compare.Looser, "Weir has not yet counted for a whole window of the limit"},
		"another":     {answering(over, over, per(minute, 5)), answering(ok, ok, per(minute, 6)), nil, compare.Looser, "the limits differ"},
		"unit":        {answering(ok, ok, per(minute, 5)), answering(ok, ok, per(hour, 5)), nil, compare.Limits, "the limits differ"},
		"no limit":    {answering(ok, ok, per(minute, 5)), answering(ok, ok, nil), nil, compare.Limits, "no rule of Weir has a limit for the descriptor"},
		"only weir":   {answering(ok, ok, nil), answering(over, over, per(minute, 5)), nil, compare.Stricter, "only Weir has a limit for the descriptor"},
		"modes":       {answering(over, over, per(minute, 5)), answering(ok, over, per(minute, 5)), nil, compare.Looser, "shadow mode or quota mode differs"},
		"no decision": {answering(ok, ok, nil), nil, errors.New("the store reached no decision"), compare.Failed, "the store reached no decision"},
		"invalid": {
			answering(ok, ok, nil), nil, &weir.InvalidError{Field: "descriptors[0].hits_addend", Value: "secret", Want: "less"},
			compare.Failed, "reason=descriptors[0].hits_addend: want less domain=edge",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return c.other, nil })
			s.clock.Advance(10 * time.Minute)
			answer, result, err := s.ask(t, "user=secret", c.own, c.failed)
			want, _ := proto.Marshal(c.other)
			if err != nil || !bytes.Equal(answer, want) {
				t.Errorf("got %x, %v: want the other service's answer", answer, err)
			}
			if line := strings.ReplaceAll(s.log.String(), `"`, ""); result != c.result || !strings.Contains(line, c.line) || (c.line == "") != (line == "") || strings.Contains(line, "secret") {
				t.Errorf("got %s, %q: want %s, %q", result, line, c.result, c.line)
			}
		})
	}
}

// TestOtherFails passes the other service's error on, compares nothing, and says so. Its own
// errors may show values: their words are not logged, and do not count as silence.
func TestOtherFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failed error
		line   string
		away   bool
	}{
		"unreachable": {status.Error(codes.Unavailable, "stopped"), `code=Unavailable error=stopped domain=edge number=1`, true},
		"silent":      {status.Error(codes.DeadlineExceeded, "late"), `code=DeadlineExceeded error=late domain=edge number=1`, true},
		"broken":      {status.Error(codes.Unknown, "user=secret"), `code=Unknown error="one of its own" domain=edge number=1`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := c.failed
			s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(ok, ok, nil), failed })
			for i := range 3 {
				if err := s.Trouble(); err != nil {
					t.Errorf("%d calls failed: %v", i, err)
				}
				answer, result, err := s.ask(t, "user=secret", answering(ok, ok, nil), nil)
				if answer != nil || !errors.Is(err, c.failed) || result != compare.Absent {
					t.Errorf("got %x, %v, %s", answer, err, result)
				}
			}
			if text := s.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, c.line) || strings.Contains(text, "secret") {
				t.Errorf("%s: want one line with %s", text, c.line)
			}
			if err := s.Trouble(); (err != nil) != c.away {
				t.Errorf("3 calls failed: %v", err)
			}
			failed = nil
			if _, _, err := s.ask(t, "user=secret", answering(ok, ok, nil), nil); err != nil || s.Trouble() != nil {
				t.Errorf("it answers again: %v, %v", err, s.Trouble())
			}
		})
	}
}

// TestNobodyWaits: the other service's answer does not wait for a decision that never comes. When
// it comes after all, it is late.
func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(ok, ok, nil), nil })
	decided := make(chan struct{})
	answer, err := s.begin(t, "user=1", func() ([]byte, error) {
		<-decided
		return proto.Marshal(answering(ok, ok, nil))
	})
	if want, _ := proto.Marshal(answering(ok, ok, nil)); err != nil || !bytes.Equal(answer, want) {
		t.Errorf("got %x, %v", answer, err)
	}
	s.clock.Advance(21 * time.Millisecond)
	close(decided)
	if result := <-s.results; result != compare.Failed || !strings.Contains(s.log.String(), "Weir decided more than 20 ms after the other service") {
		t.Errorf("got %s, %s", result, &s.log)
	}
}

// TestDecisionsAreBounded: decisions that never come leave no more than so many goroutines and
// bytes behind. Answers do not depend on it.
func TestDecisionsAreBounded(t *testing.T) {
	t.Parallel()
	for name, descriptor := range map[string]string{"calls": "user=1", "bytes": "user=" + strings.Repeat("v", 16<<10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(ok, ok, nil), nil })
			released := make(chan struct{})
			var deciding atomic.Int64
			ask := func() {
				t.Helper()
				if _, err := s.begin(t, descriptor, func() ([]byte, error) {
					deciding.Add(1)
					<-released
					return proto.Marshal(answering(ok, ok, nil))
				}); err != nil {
					t.Fatal(err)
				}
			}
			for range 1500 {
				ask()
			}
			most := 1024
			if name == "bytes" {
				most = 16 << 20 / (16 << 10)
			}
			left := 1500 - len(s.results)
			if left > most || left < most/2 || !strings.Contains(s.log.String(), "too many requests wait for a decision of Weir") {
				t.Errorf("%d decisions were left behind, %s", left, &s.log)
			}
			close(released)
			for range 1500 {
				<-s.results
			}
			if int(deciding.Load()) != left {
				t.Errorf("%d decisions began, %d were left behind", deciding.Load(), left)
			}
			if _, result, err := s.ask(t, "user=1", answering(ok, ok, nil), nil); err != nil || result != compare.Same {
				t.Errorf("afterwards: %s, %v", result, err)
			}
		})
	}
}

// TestStop waits for decisions as long as it may. Calls are answered meanwhile, and not decided.
func TestStop(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(ok, ok, nil), nil })
	released := make(chan struct{})
	if _, err := s.begin(t, "user=1", func() ([]byte, error) {
		<-released
		return proto.Marshal(answering(ok, ok, nil))
	}); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped beside a decision: %v", err)
	}
	if _, result, err := s.ask(t, "user=1", answering(ok, ok, nil), nil); err != nil || result != compare.Failed || !strings.Contains(s.log.String(), "the server is about to stop") {
		t.Errorf("got %s, %v, %s", result, err, &s.log)
	}
	close(released)
	for range 2 {
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestPanics: a decision that panics is none.
func TestPanics(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, nil)
	s.Comparer = compare.New(compare.Options{
		Other:    service(func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(ok, ok, nil), nil }),
		Compared: func(r compare.Result) { s.results <- r }, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		Background: func(f func()) {
			defer func() { _ = recover() }()
			f()
		},
	})
	if _, err := s.begin(t, "user=1", func() ([]byte, error) { panic("for a test") }); err != nil {
		t.Error(err)
	}
	if result := <-s.results; result != compare.Failed || !strings.Contains(s.log.String(), "the decision panicked") {
		t.Errorf("got %s, %s", result, &s.log)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRejects reports calls that Weir answers with an error, except those whose callers left.
func TestRejects(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, nil)
	s.Reject(status.Error(codes.Canceled, "left"))
	s.Reject(status.Error(codes.PermissionDenied, "the caller may not"))
	s.Reject(status.Error(codes.PermissionDenied, "the caller may not"))
	want := `level=WARN msg="Weir rejects a call; the compared service was not asked" code=PermissionDenied error="the caller may not" number=1`
	if len(s.results) != 2 || <-s.results != compare.Rejected || strings.Count(s.log.String(), "\n") != 1 || !strings.Contains(s.log.String(), want) {
		t.Errorf("%d results, %s", len(s.results), &s.log)
	}
}

// TestOneLineAMinute logs a kind of difference once a minute, each kind by itself, and no
// more kinds than there is room for.
func TestOneLineAMinute(t *testing.T) {
	t.Parallel()
	s := newStage(t, slog.LevelInfo, func(context.Context) (*rlsv3.RateLimitResponse, error) { return answering(over, over, nil), nil })
	before := 0
	lines := func(descriptor string) int {
		if _, _, err := s.ask(t, descriptor, answering(ok, ok, nil), nil); err != nil {
			t.Fatal(err)
		}
		last := before
		before = strings.Count(s.log.String(), "\n")
		return before - last
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
	if _, _, err := s.ask(t, strings.Repeat("k", 100_000)+"="+strings.Repeat("v", 100_000), answering(ok, ok, nil), nil); err != nil {
		t.Fatal(err)
	}
	if n := len(s.log.String()); n == 0 || n > 1500 {
		t.Errorf("%d bytes were logged", n)
	}
}
