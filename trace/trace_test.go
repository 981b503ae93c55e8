package trace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/trace"
)

// memory returns a bare store.
func memory(_ testing.TB, clock *storetest.Clock) weir.Taker {
	return memstore.New(memstore.Options{Now: clock.Now})
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.RunBeside(t, memory, func(t testing.TB, clock *storetest.Clock) weir.Taker {
		return trace.Wrap(memory(t, clock), trace.Options{})
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
				attribute.StringSlice("weir.limits", []string{"logins"}), attribute.String("weir.outcome", tc.outcome),
				attribute.StringSlice("weir.sources", tc.sources), attribute.Int("weir.acts", 1),
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

// TestWatchedLimits: what callers are told is one thing, what the limits say that
// only watch is another.
func TestWatchedLimits(t *testing.T) {
	t.Parallel()
	live, shadow, trial := weir.PerMinute(10), weir.PerMinute(1), weir.PerMinute(1)
	live.Name, shadow.Name, trial.Name = "live", "shadow", "trial"
	compiled := map[string]*weir.Limit{"live": live.MustCompile(), "shadow": shadow.MustCompile(), "trial": trial.MustCompile()}
	seen := func(l *weir.Limit) (refusals, errors bool) {
		return l.Name != "shadow" && l.Name != "trial", l.Name != "trial"
	}
	type asked map[string]int64 // the cost under each limit
	for name, tc := range map[string]struct {
		next          weir.Taker
		asked         asked
		told, watched string
		status        codes.Code
	}{
		"shadow would refuse": {memstore.New(memstore.Options{}), asked{"live": 2, "shadow": 2}, "granted", "refused", codes.Unset},
		"trial would refuse":  {memstore.New(memstore.Options{}), asked{"live": 1, "shadow": 1, "trial": 2}, "granted", "refused", codes.Unset},
		"only shadow":         {memstore.New(memstore.Options{}), asked{"shadow": 2}, "granted", "refused", codes.Unset},
		"live refuses":        {memstore.New(memstore.Options{}), asked{"live": 11, "trial": 1}, "refused", "granted", codes.Unset},
		"nothing watches":     {memstore.New(memstore.Options{}), asked{"live": 1}, "granted", "", codes.Unset},
		"shadow fails":        {failing{}, asked{"shadow": 1}, "error", "error", codes.Error},
		"trial fails":         {failing{}, asked{"trial": 1}, "granted", "error", codes.Unset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := tracetest.NewSpanRecorder()
			ctx, _ := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test").Start(context.Background(), "caller")
			var acts []*weir.Act
			for limit, cost := range tc.asked {
				acts = append(acts, storetest.NewAct(weir.Charge{Key: limit, Limit: compiled[limit], Cost: cost}))
			}
			trace.Wrap(tc.next, trace.Options{Seen: seen}).Take(ctx, acts)
			span := recorder.Ended()[0]
			got := attribute.NewSet(span.Attributes()...)
			told, _ := got.Value("weir.outcome")
			watched, found := got.Value("weir.shadow_outcome")
			if told.AsString() != tc.told || found != (tc.watched != "") || watched.AsString() != tc.watched || span.Status().Code != tc.status {
				t.Errorf("told %q, watched %q, status %v; want %q, %q, %v", told.AsString(), watched.AsString(), span.Status(), tc.told, tc.watched, tc.status)
			}
		})
	}
}

// TestKeepsOverrides: a limiter over a store that is wrapped for spans sets its overrides.
func TestKeepsOverrides(t *testing.T) {
	t.Parallel()
	limiter, err := weir.NewLimiter(trace.Wrap(memstore.New(memstore.Options{}), trace.Options{}), "api", weir.PerDay(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := limiter.SetOverride("k", weir.Override{Until: time.Now().Add(time.Hour)}); err != nil {
		t.Error(err)
	}
}
