// Package panics answers for calls that panic: each is counted, logged with the
// beginning of its stack, and answered in its protocol, so that one call cannot end
// the process.
package panics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/weirlimit/weir/internal/logs"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/recorder"
)

const (
	// maxStack and maxCause bound a line of the log, in bytes.
	maxStack = 4 << 10
	maxCause = 1 << 10
)

// Answer is the text that callers receive; the log has more.
const Answer = "the call failed; the log says why"

// A Reporter reports the panics of one listener's calls. Its fields are not to be
// changed. It is safe for concurrent use.
type Reporter struct {
	// Listener names the listener: "http".
	Listener string
	// Logger gets a line for a panic, at most one a second. Nil: nothing is logged.
	Logger *slog.Logger
	// Count, if not nil, is called for each panic.
	Count func()

	logged logs.Seldom
}

// Report reports what a call died of. It has to be called by the function that
// recovered, which the stack is of.
func (r *Reporter) Report(ctx context.Context, call string, cause any) {
	if r.Count != nil {
		r.Count()
	}
	if r.Logger == nil {
		return
	}
	if _, due := r.logged.Due(); !due {
		return
	}
	stack := make([]byte, maxStack)
	stack = stack[:runtime.Stack(stack, false)]
	text := fmt.Sprint(cause)
	r.Logger.ErrorContext(ctx, "a call panicked", "listener", r.Listener, "call", call, "panic", text[:min(len(text), maxCause)], "stack", string(stack))
}

// HTTP answers calls of a handler that panic with 500 and a problem document, or hangs
// up if an answer has begun.
func (r *Reporter) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rec := recorder.Of(w)
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(http.ErrAbortHandler)
			}
			r.Report(req.Context(), req.URL.Path, cause)
			if rec.Begun() {
				panic(http.ErrAbortHandler)
			}
			clear(w.Header())
			w.Header().Set("Cache-Control", "no-store")
			(&problem.Document{Status: http.StatusInternalServerError, Detail: Answer}).Write(w, req)
		}()
		next.ServeHTTP(rec, req)
	})
}

// Rescue recovers a panic of a gRPC call, whose error becomes INTERNAL. The call's handler
// defers it.
func (r *Reporter) Rescue(ctx context.Context, method string, err *error) {
	if cause := recover(); cause != nil {
		r.Report(ctx, method, cause)
		*err = status.Error(codes.Internal, Answer)
	}
}

// Background calls f, and reports it if it panics, so that a goroutine that belongs to
// no call goes on.
func (r *Reporter) Background(what string, f func()) {
	defer func() {
		if cause := recover(); cause != nil {
			r.Report(context.Background(), what, cause)
		}
	}()
	f()
}
