package weirgrpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/weirgrpc"
)

// places is a limit of so many calls at a time.
func places(n int64) weir.Limit {
	return weir.Limit{Name: "places", Algorithm: weir.Concurrency, Count: n, Period: 30 * time.Second}
}

func byName(context.Context, string) (string, error) { return "k", nil }

// left is how many units of the first limit and places of the last are left.
func left(t *testing.T, l *weir.Limiter) (units, places int64) {
	t.Helper()
	act := l.Act(acts.KindTake, "k", 0)
	if l.Take(context.Background(), []*weir.Act{act}); act.Err != nil {
		t.Fatal(act.Err)
	}
	return act.Decisions[0].Remaining, act.Decisions[len(act.Decisions)-1].Remaining
}

// TestStreamHoldsPlace: while it is open, and no longer.
func TestStreamHoldsPlace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		perMessage  bool
		first, both int64 // units left with the first stream open, and at the end
	}{
		"opening":     {false, 99, 98},
		"per message": {true, 99, 96},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLimiter(t, frozen(), weir.PerDay(100), places(1))
			client := serve(t, l, weirgrpc.Options{Key: byName, PerMessage: test.perMessage})
			stream, err := client.FullDuplexCall(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(&grpc_testing.StreamingOutputCallRequest{})
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			if units, free := left(t, l); units != test.first || free != 0 {
				t.Errorf("with one open: %d units and %d places left", units, free)
			}
			if n := exchange(t, client, 1); n != 0 {
				t.Errorf("a second at the same time gets %d messages", n)
			}
			if err := call(client); status.Code(err) != codes.ResourceExhausted {
				t.Errorf("a call at the same time: %v", err)
			}
			_ = stream.CloseSend()
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("the end: %v", err)
			}
			if n := exchange(t, client, 3); n != 3 {
				t.Errorf("afterwards: %d messages, want 3", n)
			}
			if units, free := left(t, l); units != test.both || free != 1 {
				t.Errorf("at the end: %d units and %d places left, want %d and 1", units, free, test.both)
			}
		})
	}
}

// TestOnlyPlaces: messages of streams that only hold a place are free.
func TestOnlyPlaces(t *testing.T) {
	t.Parallel()
	client := serve(t, newLimiter(t, frozen(), places(1)), weirgrpc.Options{Key: byName, PerMessage: true})
	if n := exchange(t, client, 10); n != 10 {
		t.Errorf("%d messages, want 10", n)
	}
}

// lost is a store that fails after its first answer.
type lost struct {
	weir.Taker
	answered bool
}

func (l *lost) Take(ctx context.Context, acts []*weir.Act) {
	if l.answered {
		broken{weir.ErrNotApplied}.Take(ctx, acts)
		return
	}
	l.answered = true
	l.Taker.Take(ctx, acts)
}

// TestErrorsOfSlotsAreReported: a call goes on though its slot can be neither renewed, thrice in
// a lease, nor released.
func TestErrorsOfSlotsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		intercept := weirgrpc.UnaryServerInterceptor(newLimiter(t, &lost{Taker: frozen()}, places(1)), weirgrpc.Options{
			Key: byName, OnError: func(_ context.Context, method string, err error) {
				if reported++; method != "/a/B" || !errors.Is(err, weir.ErrNotApplied) {
					t.Errorf("reported %s: %v", method, err)
				}
			},
		})
		_, err := intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) {
			time.Sleep(35 * time.Second)
			return nil, nil
		})
		if err != nil || reported != 4 {
			t.Errorf("reported %d times, %v", reported, err)
		}
	})
}

func TestCharge(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.PermissionDenied, "no")
	reply := &grpc_testing.SimpleResponse{Username: "someone"} // 2 bytes and 7
	for name, test := range map[string]struct {
		charge  func(weirgrpc.Response) int64
		handler grpc.UnaryHandler
		used    int64
	}{
		"bytes":       {func(r weirgrpc.Response) int64 { return r.Bytes }, answers(reply, nil), 9},
		"messages":    {func(r weirgrpc.Response) int64 { return r.Messages }, answers(reply, nil), 1},
		"none":        {func(r weirgrpc.Response) int64 { return r.Messages }, answers(nil, refused), 0},
		"no protobuf": {func(r weirgrpc.Response) int64 { return r.Bytes }, answers("text", nil), 0},
		"code":        {func(r weirgrpc.Response) int64 { return int64(r.Code) }, answers(nil, refused), 7},
		"panics": {func(r weirgrpc.Response) int64 { return int64(r.Code) }, func(context.Context, any) (any, error) {
			panic("over")
		}, 2},
		"method":         {func(r weirgrpc.Response) int64 { return int64(len(r.Method)) }, answers(nil, nil), 4},
		"more than fits": {func(weirgrpc.Response) int64 { return 5000 }, answers(nil, nil), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for cost := range int64(2) {
				l := newLimiter(t, frozen(), weir.PerHour(1000))
				intercept := weirgrpc.UnaryServerInterceptor(l, weirgrpc.Options{
					Key:    byName,
					Cost:   func(context.Context, string, any) int64 { return cost },
					Charge: func(_ context.Context, r weirgrpc.Response) int64 { return test.charge(r) },
				})
				func() {
					defer func() { _ = recover() }()
					_, _ = intercept(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, test.handler)
				}()
				if units, _ := left(t, l); units != 1000-test.used {
					t.Errorf("charged %d before: %d units left, want %d used", cost, units, test.used)
				}
			}
		})
	}
}

func answers(reply any, err error) grpc.UnaryHandler {
	return func(context.Context, any) (any, error) { return reply, err }
}

// TestChargeStream charges what a stream has sent, once it is closed.
func TestChargeStream(t *testing.T) {
	t.Parallel()
	for perMessage, used := range map[bool]int64{false: 500, true: 5} {
		l := newLimiter(t, frozen(), weir.PerDay(1000))
		client := serve(t, l, weirgrpc.Options{
			Key: byName, PerMessage: perMessage,
			Charge: func(_ context.Context, r weirgrpc.Response) int64 { return 100 * r.Messages },
		})
		exchange(t, client, 5)
		if units, _ := left(t, l); units != 1000-used {
			t.Errorf("per message %v: %d units left, want %d used", perMessage, units, used)
		}
	}
}

// TestCheckerHoldsNothing: it does not know when a call is done.
func TestCheckerHoldsNothing(t *testing.T) {
	t.Parallel()
	var told error
	checker := weirgrpc.NewChecker(newLimiter(t, frozen(), places(1)), weirgrpc.Options{
		Key: byName, OnError: func(_ context.Context, _ string, err error) { told = err },
	})
	if err := checker.Limit(context.Background()); status.Code(err) != codes.Internal || !errors.Is(told, weir.ErrInvalid) {
		t.Errorf("got %v, told %v", err, told)
	}
}
