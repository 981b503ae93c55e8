package app

import (
	"context"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rlqs"
)

// newQuotas returns Envoy's rate limit quota service; nil if it is off.
func (a *App) newQuotas() *rlqs.Service {
	o, t := &a.options, a.telemetry
	if !o.RLQS || o.GRPC == Off {
		return nil
	}
	return rlqs.New(rlqs.Options{
		Rules: a.rules.Load, Taker: t.frontEnd("rlqs", a.engine), Buckets: o.RLQSBuckets, Timeout: o.Timeout,
		Unmatched: t.unmatched, Logger: o.Logger,
	})
}

// serveQuotas adds the quota service's stream, and the method that guards it.
func (a *App) serveQuotas(o *frames.Options, listed names, guarded map[string]*method) {
	if a.quotas == nil {
		return
	}
	m := a.method(quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName)
	guarded[m.name], listed[quotav3.RateLimitQuotaService_ServiceDesc.ServiceName] = m, grpc.ServiceInfo{}
	o.StreamMessages = map[string]int{m.name: rlqs.MaxMessageBytes}
	o.Streams[m.name] = func(s *frames.Stream) {
		client := s.RemoteAddr().String()
		m.observe(s.Call, func(ctx context.Context, _ *frames.Call) error { return a.quotas.Serve(ctx, s, client) })
	}
}
