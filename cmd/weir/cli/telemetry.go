package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"

	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/server/tracing"
	"github.com/weirlimit/weir/server/traffic"
)

func defineTelemetry(flags *pflag.FlagSet, o *server.TelemetryOptions) {
	flags.BoolVar(&o.EnvoyproxyMetrics, "envoyproxy-metrics", false, "add the metrics of envoyproxy/ratelimit to /metrics")
	flags.Float64Var(&o.NearLimitRatio, "near-limit-ratio", traffic.DefaultNearLimitRatio, "share of a limit from which on a grant counts as near it")
	flags.BoolVar(&o.LogRefusals, "log-refusals", true, "log refusals, for each limit at most one in its period, with a hash of the key")
}

// trace begins tracing where the environment asks for it. The function that it
// returns sends what is left.
func (f *serveFlags) trace(ctx context.Context, o *server.Options) (stop func(), err error) {
	o.Telemetry.Tracing, err = tracing.New(ctx, moduleVersion())
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(lost{o.Logger})
	return func() { o.Telemetry.Tracing.Stop(context.WithoutCancel(ctx), o.Logger) }, nil
}

// lost logs what the exporter would write to stderr by itself.
type lost struct{ logger *slog.Logger }

// Handle logs a failure.
func (l lost) Handle(err error) { l.logger.Warn("spans are not sent", "error", err) }
