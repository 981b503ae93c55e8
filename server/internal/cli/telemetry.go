package cli

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/tracing"
	"github.com/weirlimit/weir/server/internal/traffic"
)

func defineTelemetry(flags *pflag.FlagSet, o *app.TelemetryOptions) {
	flags.BoolVar(&o.EnvoyproxyMetrics, "envoyproxy-metrics", false, "add the metrics of envoyproxy/ratelimit to /metrics")
	flags.Float64Var(&o.NearLimitRatio, "near-limit-ratio", traffic.DefaultNearLimitRatio, "share of a limit from which on a grant counts as near it")
	flags.BoolVar(&o.LogRefusals, "log-refusals", true, "log refusals, for each limit at most one in its period, with a hash of the key")
}

// trace begins tracing where the environment asks for it. The function that it
// returns sends what is left.
func (f *serveFlags) trace(ctx context.Context, o *app.Options) (stop func(), err error) {
	otel.SetLogger(logr.FromSlogHandler(wordless{o.Logger.Handler()}))
	otel.SetErrorHandler(lost{o.Logger})
	o.Telemetry.Tracing, err = tracing.New(ctx, moduleVersion())
	if err != nil {
		return nil, err
	}
	return func() { o.Telemetry.Tracing.Stop(context.WithoutCancel(ctx), o.Logger) }, nil
}

// lost logs what the exporter would write to stderr by itself.
type lost struct{ logger *slog.Logger }

// Handle logs a failure.
func (l lost) Handle(err error) { l.logger.Warn("spans are not sent", "error", err) }

// wordless logs what the library of OpenTelemetry would write to stderr by itself, such
// as that a variable is wrong, but no values: the variables hold what a collector
// wants to hear.
type wordless struct{ slog.Handler }

// leastWarning is the level at which the library warns.
const leastWarning = slog.LevelInfo - 1

// Enabled lets warnings and errors through.
func (w wordless) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= leastWarning && w.Handler.Enabled(ctx, slog.LevelWarn)
}

// Handle logs the message alone.
func (w wordless) Handle(ctx context.Context, r slog.Record) error {
	return w.Handler.Handle(ctx, slog.NewRecord(r.Time, slog.LevelWarn, "OpenTelemetry says: "+r.Message, r.PC))
}

// WithAttrs takes nothing along.
func (w wordless) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup takes nothing along.
func (w wordless) WithGroup(string) slog.Handler { return w }
