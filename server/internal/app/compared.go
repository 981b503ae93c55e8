package app

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/server/internal/compare"
	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/httpapi"
	"github.com/weirlimit/weir/server/internal/rls"
)

// compared answers the calls of the rate limit service with another service's answers.
type compared struct {
	service  *rls.Service
	comparer *compare.Comparer
	conn     *grpc.ClientConn
	timeout  time.Duration
}

// everyInstance spreads calls over the addresses of a name, as Envoy does.
const everyInstance = `{"loadBalancingConfig": [{"round_robin": {}}]}`

// newCompared returns nil if Weir's own answers count.
func (a *App) newCompared(service *rls.Service) (*compared, error) {
	if a.options.RLSCompare == "" {
		return nil, nil
	}
	conn, err := grpc.NewClient(a.options.RLSCompare, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(everyInstance))
	if err != nil {
		return nil, err
	}
	a.options.Logger.Warn("another service answers Envoy's calls; Weir compares its own answers", "address", a.options.RLSCompare)
	background := a.telemetry.panics("background")
	comparer := compare.New(compare.Options{
		Other:      conn,
		Compared:   func(r compare.Result) { a.telemetry.metrics.Compared(string(r)) },
		Logger:     a.options.Logger,
		Background: func(work func()) { background.Background("compare", work) },
	})
	a.closers.add("the compared service", func(ctx context.Context) error { return errors.Join(comparer.Stop(ctx), conn.Close()) })
	c := &compared{service, comparer, conn, a.options.Timeout}
	a.health.compared = c.check
	return c, nil
}

// serve answers a call over gRPC.
func (c *compared) serve(ctx context.Context, call *frames.Call) error {
	answer, err := c.answer(ctx, call, call.Message())
	if err == nil {
		call.Reply(answer)
	}
	return err
}

// serveJSON answers an encoded request that came over HTTP.
func (c *compared) serveJSON(ctx context.Context, raw []byte) ([]byte, error) {
	return c.answer(ctx, nil, raw)
}

// answer has the other service answer what Weir lets pass.
func (c *compared) answer(ctx context.Context, call rls.Charger, raw []byte) ([]byte, error) {
	request, err := c.service.Prepare(ctx, call, raw)
	if err != nil {
		c.comparer.Reject(err)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.comparer.Answer(ctx, raw, request)
}

// check is the part of readiness about the other service. Weir stays ready without it: no other
// instance of Weir could answer.
func (c *compared) check(ctx context.Context) httpapi.Check {
	err := c.comparer.Trouble()
	if err == nil {
		err = c.connected(ctx)
	}
	return httpapi.Check{Name: "compared service", Err: err, Brief: "it does not answer, so Envoy's calls fail", Bearable: true}
}

// connected connects to the other service, and returns why it cannot.
func (c *compared) connected(ctx context.Context) error {
	for {
		switch state := c.conn.GetState(); state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("cannot connect to " + c.conn.Target())
		default:
			c.conn.Connect()
			if !c.conn.WaitForStateChange(ctx, state) {
				return errors.New("cannot connect yet to " + c.conn.Target())
			}
		}
	}
}
