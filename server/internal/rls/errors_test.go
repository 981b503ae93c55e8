package rls_test

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
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/server/internal/rls"
)

const wrongRules = `
domain: d
descriptors:
  - {key: h, rate_limit: {unit: hour, requests_per_unit: 8}}
  - {key: ours, rate_limit: {unit: hour, requests_per_unit: 8, algorithm: gcra}}
  - {key: seats, rate_limit: {unit: minute, requests_per_unit: 8, algorithm: concurrency}}
  - {key: free, rate_limit: {unlimited: true}}
`

// TestInvalid: what is outside the contract is named and charges nothing.
func TestInvalid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		request func(*testing.T) *rlsv3.RateLimitRequest
		field   string
	}{
		"no domain":      {one("h=1", in("")), "domain"},
		"no descriptors": {one("h=1", func(m *rlsv3.RateLimitRequest) { m.Descriptors = nil }), "descriptors"},
		"many descriptors": {
			one("h=1" + strings.Repeat("; h=1", 512)), "descriptors",
		},
		"long key":                    {one(long), "descriptors[0].entries[0].key"},
		"many entries":                {one("h=1; h=1" + strings.Repeat(",h=1", 16)), "descriptors[1].entries"},
		"unit not set":                {one("h=1; h=1 @5/UNKNOWN"), "descriptors[1].limit.unit"},
		"unit unheard of":             {one("h=1; h=1 @5/8"), "descriptors[1].limit.unit"},
		"unit below zero":             {one("h=1; h=1 @5/-1"), "descriptors[1].limit.unit"},
		"multiplier of zero":          {one("h=1; h=1 @5/MINUTE*0"), "descriptors[1].limit.unit_multiplier"},
		"multiplier too large":        {one("h=1; h=1 @5/YEAR*2"), "descriptors[1].limit.unit_multiplier"},
		"multiplier that would wrap":  {one("h=1; h=1 @5/DAY*4294967295"), "descriptors[1].limit.unit_multiplier"},
		"refund too large":            {one("h=1; h=1 -9007199254740992"), "descriptors[1].hits_addend"},
		"refund too large, algorithm": {one("h=1; ours=1 -1000000001"), "descriptors[1].hits_addend"},
		"refund of too many slots":    {one("h=1; seats=1 -1001"), "descriptors[1].hits_addend"},
		"slots that are settled":      {one("h=1; seats=1,weir=settle"), "descriptors[1].entries"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, wrongRules, rls.Mode{})
			_, err := b.call(c.request(t))
			if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), c.field+" is ") {
				t.Errorf("got %v, want INVALID_ARGUMENT that names %s", err, c.field)
			}
			var fields []string
			for _, d := range status.Convert(err).Details() {
				for _, v := range d.(*errdetails.BadRequest).GetFieldViolations() {
					fields = append(fields, v.GetField())
				}
			}
			if len(fields) != 1 || fields[0] != c.field {
				t.Errorf("violations of %q, want %s", fields, c.field)
			}
			b.want("OK | OK 8/HOUR 8 59m56s", "h=1 +0")
		})
	}
}

func one(descriptors string, changes ...change) func(*testing.T) *rlsv3.RateLimitRequest {
	return func(t *testing.T) *rlsv3.RateLimitRequest { return ask(t, descriptors, changes...) }
}

// taker is a store made of a function.
type taker func(context.Context, *weir.Act)

func (f taker) Take(ctx context.Context, acts []*weir.Act) {
	for _, a := range acts {
		f(ctx, a)
	}
}

// TestKeptRefund: a negative hit that will be delivered is OK.
func TestKeptRefund(t *testing.T) {
	t.Parallel()
	s := newService(t, wrongRules, rls.Options{
		Taker: taker(func(_ context.Context, a *weir.Act) {
			a.Err = &acts.KeptError{Kind: a.Kind, Reason: weir.ErrNotApplied}
		}),
	})
	if m, err := call(t.Context(), s, ask(t, "h=1 -1")); err != nil || m.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Errorf("%v, %v", m, err)
	}
}

// TestStoreFailure: the class is told, what the driver says is logged.
func TestStoreFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		code    codes.Code
		message string
	}{
		"not applied":   {fmt.Errorf("dial secret: %w", weir.ErrNotApplied), codes.Unavailable, "the store reached no decision: not applied"},
		"ambiguous":     {fmt.Errorf("read secret: %w", weir.ErrAmbiguous), codes.Unavailable, "the store reached no decision: outcome unknown"},
		"misconfigured": {fmt.Errorf("auth secret: %w", weir.ErrMisconfigured), codes.Unavailable, "the store reached no decision: store misconfigured"},
		"backend":       {fmt.Errorf("odd secret: %w", weir.ErrBackend), codes.Unavailable, "the store reached no decision: unexpected answer of the store"},
		"no class":      {errors.New("secret"), codes.Unavailable, "the store reached no decision"},
		"invalid":       {fmt.Errorf("%w: this", weir.ErrInvalid), codes.InvalidArgument, "weir: invalid request: this"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			s := newService(t, wrongRules, rls.Options{
				Taker:  taker(func(_ context.Context, a *weir.Act) { a.Err = c.err }),
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			for _, descriptors := range []string{"h=1", "h=1 -1"} {
				_, err := call(t.Context(), s, ask(t, descriptors))
				if got := status.Convert(err); got.Code() != c.code || got.Message() != c.message {
					t.Errorf("%s: got %v: %s, want %v: %s", descriptors, got.Code(), got.Message(), c.code, c.message)
				}
			}
			if logged := strings.Contains(log.String(), "secret"); logged != (c.code == codes.Unavailable) {
				t.Errorf("logged: %s", &log)
			}
			if m, err := call(t.Context(), s, ask(t, "free=1; none=1")); err != nil || m.GetOverallCode() != rlsv3.RateLimitResponse_OK {
				t.Errorf("what needs no store: %v %v", m, err)
			}
		})
	}
}

// TestDeadline: the server's own time runs out, not the caller's patience.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := newService(t, wrongRules, rls.Options{Timeout: 1, Taker: taker(func(ctx context.Context, a *weir.Act) {
		<-ctx.Done()
		a.Err = fmt.Errorf("%w: %w", weir.ErrAmbiguous, ctx.Err())
	})})
	if _, err := call(t.Context(), s, ask(t, "h=1")); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

// TestClientLeaves: a decision goes on without its client, for as long as that would have
// waited, or else for the service's time.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for _, patience := range []time.Duration{10 * time.Minute, 0} {
		ctx, leave := context.WithCancel(t.Context())
		if patience > 0 {
			var end func()
			ctx, end = context.WithTimeout(ctx, patience)
			defer end()
		}
		s := newService(t, wrongRules, rls.Options{Timeout: time.Minute, Taker: taker(func(ctx context.Context, a *weir.Act) {
			leave()
			until, _ := ctx.Deadline()
			if left := time.Until(until); ctx.Err() != nil || left < time.Second || left > max(patience, time.Minute) || left < patience/2 {
				t.Errorf("with %v to wait: %v, ends in %v", patience, ctx.Err(), left)
			}
			a.Decisions[0].Outcome = weir.Granted
		})})
		if _, err := call(ctx, s, ask(t, "h=1")); err != nil {
			t.Error(err)
		}
	}
}

// TestLateCall: a call that has ended before it is decided charges nothing.
func TestLateCall(t *testing.T) {
	t.Parallel()
	s := newService(t, wrongRules, rls.Options{Taker: taker(func(context.Context, *weir.Act) { t.Error("it was charged") })})
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for ctx, want := range map[context.Context]codes.Code{late: codes.DeadlineExceeded, left: codes.Canceled} {
		if _, err := call(ctx, s, ask(t, "h=1")); status.Code(err) != want {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
