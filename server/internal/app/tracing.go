package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/recorder"
)

// collectorTimeout bounds how long Tracing.Stop waits for a collector.
const collectorTimeout = 2 * time.Second

// Tracing sends spans of calls by OTLP over HTTP. No call waits for a collector: spans that
// it does not accept are dropped. It is safe for concurrent use. A nil *Tracing makes none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	callers  propagation.TraceContext
}

// tracesWanted reports whether variables of OpenTelemetry ask for traces.
func tracesWanted(get func(string) string) bool {
	if off, err := strconv.ParseBool(get("OTEL_SDK_DISABLED")); err == nil && off {
		return false
	}
	switch exporter := get("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false
	case "":
		return get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	default:
		return exporter == "otlp"
	}
}

// NewTracing returns the tracing that the environment asks for: OTEL_EXPORTER_OTLP_ENDPOINT and
// the other variables of OpenTelemetry name the collector. It is nil without them. NewTracing
// connects to nothing; sending begins with the first span.
func NewTracing(ctx context.Context, version string) (*Tracing, error) {
	if !tracesWanted(os.Getenv) {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME beat what stands here.
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "weir"), attribute.String("service.version", version)),
		resource.WithFromEnv(), resource.WithTelemetrySDK())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, errors.Join(fmt.Errorf("tracing: %w", err), exporter.Shutdown(ctx))
	}
	return exportedBy(exporter, sdktrace.WithResource(about)), nil
}

// exportedBy returns tracing whose spans an exporter sends in the background.
func exportedBy(exporter sdktrace.SpanExporter, options ...sdktrace.TracerProviderOption) *Tracing {
	return tracingBy(sdktrace.NewTracerProvider(append(options, sdktrace.WithBatcher(exporter))...))
}

// tracingBy returns tracing by a provider, which Stop shuts down.
func tracingBy(provider *sdktrace.TracerProvider) *Tracing {
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/weirlimit/weir/server/internal/app")}
}

// HTTP makes a span of each call of the handler below the caller's, whose traceparent
// header names it. Paths that are not named make none.
func (t *Tracing) HTTP(next http.Handler, paths ...string) http.Handler {
	if t == nil {
		return next
	}
	known := make(map[string]bool, len(paths))
	for _, p := range paths {
		known[p] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		ctx := t.callers.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, routedMethod(r.Method)+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", routedMethod(r.Method)), attribute.String("http.route", r.URL.Path)))
		defer span.End()
		rec := recorder.Of(w)
		next.ServeHTTP(rec, r.WithContext(ctx))
		span.SetAttributes(attribute.Int("http.response.status_code", rec.Status()))
		if rec.Status() >= http.StatusInternalServerError {
			span.SetStatus(otelcodes.Error, "")
		}
	})
}

// routedMethod returns a method by which there are routes; others are as semantic conventions
// call them.
func routedMethod(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return name
	}
	return "_OTHER"
}

// Call makes a span of a gRPC call below the caller's, which a header names.
func (t *Tracing) Call(ctx context.Context, method string, header func(name string) string, handle func(context.Context) error) error {
	headers := propagation.MapCarrier{}
	for _, name := range t.callers.Fields() {
		headers[name] = header(name)
	}
	name := strings.TrimPrefix(method, "/")
	ctx, span := t.tracer.Start(t.callers.Extract(ctx, headers), name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("rpc.system", "grpc"), attribute.String("rpc.method", name)))
	defer span.End()
	err := handle(ctx)
	code := status.Code(err)
	span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(code)))
	if err != nil {
		span.SetStatus(otelcodes.Error, code.String())
	}
	return err
}

// Stop sends what waits to be sent, for two seconds at most, and ends the rest.
func (t *Tracing) Stop(ctx context.Context, logger *slog.Logger) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, collectorTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		logger.Warn("spans were lost", "error", err)
	}
}
