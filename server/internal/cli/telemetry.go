package cli

import (
	"context"
	"log/slog"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/tracing"
)

// trace starts tracing if the environment asks for it. The function that it returns
// sends the spans that are left.
func (f *serveFlags) trace(ctx context.Context, o *app.Options) (stop func(), err error) {
	otel.SetLogger(logr.FromSlogHandler(wordless{o.Logger.Handler()}))
	otel.SetErrorHandler(lost{o.Logger})
	o.Telemetry.Tracing, err = tracing.New(ctx, moduleVersion())
	if err != nil {
		return nil, err
	}
	return func() { o.Telemetry.Tracing.Stop(context.WithoutCancel(ctx), o.Logger) }, nil
}

// lost logs the errors that the exporter would write to stderr.
type lost struct{ logger *slog.Logger }

// Handle logs a failure.
func (l lost) Handle(err error) { l.logger.Warn("spans are not sent", "error", err) }

// wordless logs the messages that OpenTelemetry's library would write to stderr, such as
// that a variable is wrong, without values: the variables hold credentials.
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

// WithAttrs drops the attributes.
func (w wordless) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup drops the group.
func (w wordless) WithGroup(string) slog.Handler { return w }
