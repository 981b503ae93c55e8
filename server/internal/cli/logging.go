package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
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
