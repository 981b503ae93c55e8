package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/lmittmann/tint"
	"go.opentelemetry.io/otel"

	"github.com/weirlimit/weir/server/internal/app"
)

// newLogger returns a logger that writes to w: in colour for people, as JSON for
// programs.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log-level is %q: want debug, info, warn or error", level)
	}
	if format == "auto" {
		format = "json"
		if isTerminal(w) {
			format = "text"
		}
	}
	switch format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: threshold, ReplaceAttr: readable})), nil
	case "text":
		return slog.New(tint.NewTextHandler(w, &tint.Options{
			Level:      threshold,
			TimeFormat: time.TimeOnly,
			NoColor:    !isTerminal(w) || os.Getenv("NO_COLOR") != "",
		})), nil
	}
	return nil, fmt.Errorf("log-format is %q: want auto, text or json", format)
}

// readable writes durations as 4s instead of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	if q, ok := w.(*queue); ok {
		w = q.to
	}
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// redisLog takes what the Redis client would write to stderr by itself. It is for
// debugging: the server logs failures in its own words.
type redisLog struct{ logger *slog.Logger }

// Printf logs one message of the client.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.logger.DebugContext(ctx, fmt.Sprintf(format, args...), "component", "redis")
}

// trace starts tracing if the environment asks for it. The function that it returns
// sends the spans that are left.
func (f *serveFlags) trace(ctx context.Context, o *app.Options) (stop func(), err error) {
	otel.SetLogger(logr.FromSlogHandler(wordless{o.Logger.Handler()}))
	otel.SetErrorHandler(lost{o.Logger})
	o.Telemetry.Tracing, err = app.NewTracing(ctx, thisBuild().version)
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
