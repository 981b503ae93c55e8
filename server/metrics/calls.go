package metrics

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// HTTP counts the answers of a handler. Paths that are not named are one.
func (m *Metrics) HTTP(next http.Handler, paths ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := "other"
		if slices.Contains(paths, r.URL.Path) {
			path = r.URL.Path
		}
		answer := &answer{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(answer, r)
		m.requests.WithLabelValues(path, strconv.Itoa(answer.status)).Inc()
	})
}

// answer notes the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Unary counts the calls of a gRPC server, whose methods are those that it has:
// others never come here.
func (m *Metrics) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start := time.Now()
	answer, err := handle(ctx, req)
	code := status.Code(err)
	m.calls.WithLabelValues(info.FullMethod, code.String()).Inc()
	if m.envoy != nil {
		m.envoy.called(info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:], code, time.Since(start))
	}
	return answer, err
}

// errorTypes are what envoyproxy/ratelimit calls its errors.
var errorTypes = map[codes.Code]string{codes.Unavailable: "redis_error", codes.InvalidArgument: "service_error"}

// text is a name as a label may be: Prometheus takes nothing but UTF-8.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
