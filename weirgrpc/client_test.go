package weirgrpc_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/weirgrpc"
)

// exhausted is a refusal with a delay.
func exhausted(delay time.Duration) error {
	s, err := status.New(codes.ResourceExhausted, "no").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		panic(err)
	}
	return s.Err()
}

// TestClientWaits plays answers to the interceptor and looks at when it asks.
func TestClientWaits(t *testing.T) {
	t.Parallel()
	plain, other := status.Error(codes.ResourceExhausted, "too large"), status.Error(codes.Unavailable, "away")
	for name, test := range map[string]struct {
		options  weirgrpc.ClientOptions
		answers  []error // the last again and again
		pushback []string
		deadline time.Duration
		asked    []time.Duration // since the first, at least; a tenth more at most
		code     codes.Code
	}{
		"granted":          {answers: []error{nil}, asked: []time.Duration{0}},
		"once":             {answers: []error{exhausted(10 * time.Second), nil}, asked: []time.Duration{0, 10 * time.Second}},
		"at once":          {answers: []error{exhausted(0), nil}, asked: []time.Duration{0, 0}},
		"below nothing":    {answers: []error{exhausted(-time.Hour), nil}, asked: []time.Duration{0, 0}},
		"too often":        {answers: []error{exhausted(time.Second)}, asked: []time.Duration{0, 1e9, 2e9, 3e9}, code: codes.ResourceExhausted},
		"never again":      {options: weirgrpc.ClientOptions{MaxRetries: -1}, answers: []error{exhausted(0)}, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"too long":         {answers: []error{exhausted(31 * time.Second)}, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"longer, but may":  {options: weirgrpc.ClientOptions{MaxWait: time.Minute}, answers: []error{exhausted(31 * time.Second), nil}, asked: []time.Duration{0, 31e9}},
		"all waits":        {answers: []error{exhausted(20 * time.Second)}, asked: []time.Duration{0, 20e9}, code: codes.ResourceExhausted},
		"deadline":         {answers: []error{exhausted(20 * time.Second)}, deadline: 15 * time.Second, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"no advice":        {answers: []error{plain}, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"another code":     {answers: []error{other}, asked: []time.Duration{0}, code: codes.Unavailable},
		"no status":        {answers: []error{errors.New("odd")}, asked: []time.Duration{0}, code: codes.Unknown},
		"pushback":         {answers: []error{plain, nil}, pushback: []string{"5000"}, asked: []time.Duration{0, 5e9}},
		"pushback, no":     {answers: []error{plain, nil}, pushback: []string{"-1"}, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"pushback, what":   {answers: []error{plain, nil}, pushback: []string{"soon"}, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"pushbacks":        {answers: []error{plain, nil}, pushback: []string{"1", "2"}, asked: []time.Duration{0}, code: codes.ResourceExhausted},
		"details go first": {answers: []error{exhausted(time.Second), nil}, pushback: []string{"-1"}, asked: []time.Duration{0, 1e9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				if test.deadline > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				begin := time.Now()
				var asked []time.Duration
				invoke := func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
					for _, o := range opts {
						if trailer, ok := o.(grpc.TrailerCallOption); ok && test.pushback != nil {
							*trailer.TrailerAddr = metadata.MD{"grpc-retry-pushback-ms": test.pushback}
						}
					}
					asked = append(asked, time.Since(begin))
					return test.answers[min(len(asked), len(test.answers))-1]
				}
				err := weirgrpc.UnaryClientInterceptor(test.options)(ctx, "/a/B", nil, nil, nil, invoke)
				late := func(got, want time.Duration) bool { return got >= want && got <= want+want/10 }
				if status.Code(err) != test.code || !slices.EqualFunc(asked, test.asked, late) {
					t.Errorf("%v, asked at %v, want %v and %v", err, asked, test.code, test.asked)
				}
			})
		})
	}
}

func TestClientIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		err := weirgrpc.UnaryClientInterceptor(weirgrpc.ClientOptions{})(ctx, "/a/B", nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				return exhausted(10 * time.Second)
			})
		if took := time.Since(begin); status.Code(err) != codes.Canceled || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
