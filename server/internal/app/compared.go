package app

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/server/internal/compare"
	"github.com/weirlimit/weir/server/internal/frames"
)

// compared answers the calls of the rate limit service with another service's answers.
type compared struct {
	gatherer
	comparer *compare.Comparer
	timeout  time.Duration
}

// everyInstance spreads calls over the addresses of a name, as Envoy does.
const everyInstance = `{"loadBalancingConfig": [{"round_robin": {}}]}`

func (a *App) newCompared(own gatherer) (*compared, error) {
	conn, err := grpc.NewClient(a.options.RLSCompare, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(everyInstance))
	if err != nil {
		return nil, err
	}
	a.closers.add("the compared service", func(context.Context) error { return conn.Close() })
	a.options.Logger.Warn("another service answers Envoy's calls; Weir compares its own answers", "address", a.options.RLSCompare)
	count := func(r compare.Result) { a.telemetry.metrics.Compared(string(r)) }
	comparer := compare.New(compare.Options{Other: conn, Compared: count, Logger: a.options.Logger})
	return &compared{own, comparer, a.options.Timeout}, nil
}

func (c *compared) serve(call *frames.Call) {
	c.observe(call, func(ctx context.Context, call *frames.Call) error {
		ctx, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		answer, err := c.comparer.Answer(ctx, call.Message(), func(ctx context.Context) ([]byte, error) {
			return c.service.Answer(ctx, call, call.Message(), call.Buffer())
		})
		if err == nil {
			call.Reply(answer)
		}
		return err
	})
}
