package trace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/storetest"
	"github.com/weirlimit/weir/trace"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(_ testing.TB, clock *storetest.Clock) weir.Taker {
		return trace.Wrap(memstore.New(memstore.Options{Now: clock.Now}), trace.Options{})
	})
}

// failing reaches no decision.
type failing struct{}

func (failing) Take(_ context.Context, acts []*weir.Act) {
	for _, a := range acts {
		a.Err = fmt.Errorf("secret address: %w", weir.ErrAmbiguous)
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	limit := weir.PerMinute(1)
	limit.Name = "logins"
	compiled := limit.MustCompile()
	for name, tc := range map[string]struct {
		next    weir.Taker
		cost    int64
		outcome string
		sources []string
		status  codes.Code
	}{
		"granted": {memstore.New(memstore.Options{}), 1, "granted", []string{"store"}, codes.Unset},
		"refused": {memstore.New(memstore.Options{}), 2, "refused", []string{"store"}, codes.Unset},
		"error":   {failing{}, 1, "error", nil, codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := tracetest.NewSpanRecorder()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
			ctx, parent := provider.Tracer("test").Start(context.Background(), "caller")
			acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: "user=secret", Limit: compiled, Cost: tc.cost})}
			trace.Wrap(tc.next, trace.Options{}).Take(ctx, acts)
			ended := recorder.Ended()
			if len(ended) != 1 {
				t.Fatalf("%d spans", len(ended))
			}
			span := ended[0]
			if span.Name() != "weir.take" || span.Parent().SpanID() != parent.SpanContext().SpanID() || span.Status().Code != tc.status {
				t.Errorf("span %q below %v, status %v", span.Name(), span.Parent(), span.Status())
			}
			got := attribute.NewSet(span.Attributes()...)
			want := attribute.NewSet(
				attribute.StringSlice(trace.Limits, []string{"logins"}), attribute.String(trace.Outcome, tc.outcome),
				attribute.StringSlice(trace.Sources, tc.sources), attribute.Int(trace.Acts, 1),
			)
			if !got.Equals(&want) {
				t.Errorf("attributes %v, want %v", got.ToSlice(), want.ToSlice())
			}
			if text := fmt.Sprint(span.Attributes(), span.Status()); strings.Contains(text, "secret") {
				t.Errorf("the span tells too much: %s", text)
			}
		})
	}
}

func TestWithoutParentThereIsNoSpan(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.NeverSample()))
	unsampled, _ := provider.Tracer("test").Start(context.Background(), "caller")
	for _, ctx := range []context.Context{context.Background(), unsampled} {
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: weir.PerMinute(1).MustCompile(), Cost: 1})
		trace.Wrap(failing{}, trace.Options{}).Take(ctx, []*weir.Act{a})
		if !errors.Is(a.Err, weir.ErrAmbiguous) {
			t.Errorf("got %v", a.Err)
		}
	}
	if n := len(recorder.Ended()); n != 0 {
		t.Errorf("%d spans", n)
	}
}
