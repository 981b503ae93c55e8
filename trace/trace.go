// Package trace makes a span of each call of a Taker, where the caller has one that
// is recorded, through OpenTelemetry's interface: which exporter gets it is the
// program's to say. It wraps any [weir.Taker].
package trace

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir"
)

// The attributes of a span. None of them holds a key.
const (
	// Limits are the names of the limits that were asked, each once, at most 16.
	Limits = "weir.limits"
	// Outcome is granted, refused or error: the worst of the call's acts.
	Outcome = "weir.outcome"
	// Sources are who decided, each once.
	Sources = "weir.sources"
	// Acts is how many acts were decided together.
	Acts = "weir.acts"
)

const (
	scope     = "github.com/weirlimit/weir/trace"
	spanName  = "weir.take"
	maxLimits = 16
)

// Options are the settings of a [Taker]. The zero value is a good one.
type Options struct {
	// Name is what spans are called. Empty: weir.take.
	Name string
}

// A Taker asks another one and makes a span of it, with the provider of the span in
// the context; without one that is recorded there it only asks. It is safe for
// concurrent use. Create it with Wrap.
type Taker struct {
	next weir.Taker
	name string
}

// Wrap returns a Taker that asks next. The zero Options are good ones.
func Wrap(next weir.Taker, o Options) *Taker {
	if o.Name == "" {
		o.Name = spanName
	}
	return &Taker{next, o.Name}
}

// Take asks the wrapped Taker.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		t.next.Take(ctx, acts)
		return
	}
	limits := names(acts)
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, t.name)
	defer span.End()
	t.next.Take(ctx, acts)
	outcome, err := outcomeOf(acts)
	span.SetAttributes(
		attribute.StringSlice(Limits, limits), attribute.String(Outcome, outcome),
		attribute.StringSlice(Sources, sources(acts)), attribute.Int(Acts, len(acts)),
	)
	if err != nil {
		// What a store's driver says may hold addresses; the class tells enough.
		span.SetStatus(codes.Error, "no decision")
	}
}

// names are those of the limits that are asked for.
func names(acts []*weir.Act) []string {
	var all []string
	for _, a := range acts {
		for i := range a.Charges {
			if l := a.Charges[i].Limit; l != nil && len(all) < maxLimits && !slices.Contains(all, l.Name) {
				all = append(all, l.Name)
			}
		}
	}
	return all
}

func outcomeOf(acts []*weir.Act) (outcome string, err error) {
	outcome = weir.Granted.String()
	for _, a := range acts {
		switch {
		case a.Err != nil:
			return "error", a.Err
		case !a.Allowed():
			outcome = weir.Refused.String()
		}
	}
	return outcome, nil
}

func sources(acts []*weir.Act) []string {
	var all []string
	for _, a := range acts {
		for _, d := range a.Decisions {
			if name := d.Source.String(); d.Source != weir.SourceNone && a.Err == nil && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}
