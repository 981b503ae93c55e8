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
	// Outcome is granted, refused or error: the worst of the call's acts, as far as
	// the caller is told of them.
	Outcome = "weir.outcome"
	// ShadowOutcome is the same of the acts whose limits only watch; absent where
	// there is none.
	ShadowOutcome = "weir.shadow_outcome"
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

// A Standing is how much callers are told of what a limit says.
type Standing uint8

// The standings.
const (
	// Enforced limits are told as they are. The zero value.
	Enforced Standing = iota
	// Shadow limits refuse nobody.
	Shadow
	// Trial limits refuse nobody, and nobody hears that they reached no decision.
	Trial
)

// Options are the settings of a [Taker]. The zero value is a good one.
type Options struct {
	// Name is what spans are called. Empty: weir.take.
	Name string
	// Standing says of a limit that is asked for how much callers are told of it;
	// the limits of an act are alike. Nil: all are Enforced.
	Standing func(*weir.Limit) Standing
}

// A Taker asks another one and makes a span of it, with the provider of the span in
// the context; without one that is recorded there it only asks. It is safe for
// concurrent use. Create it with Wrap.
type Taker struct {
	next weir.Taker
	Options
}

// Wrap returns a Taker that asks next. The zero Options are good ones.
func Wrap(next weir.Taker, o Options) *Taker {
	if o.Name == "" {
		o.Name = spanName
	}
	if o.Standing == nil {
		o.Standing = func(*weir.Limit) Standing { return Enforced }
	}
	return &Taker{next, o}
}

// Take asks the wrapped Taker.
func (t *Taker) Take(ctx context.Context, acts []*weir.Act) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		t.next.Take(ctx, acts)
		return
	}
	// A charge may come under another limit than it was asked for.
	limits, standings := names(acts), t.standings(acts)
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, t.Name)
	defer span.End()
	t.next.Take(ctx, acts)
	told, watched := outcomesOf(acts, standings)
	span.SetAttributes(
		attribute.StringSlice(Limits, limits), attribute.String(Outcome, told.String()),
		attribute.StringSlice(Sources, sources(acts)), attribute.Int(Acts, len(acts)),
	)
	if watched != none {
		span.SetAttributes(attribute.String(ShadowOutcome, watched.String()))
	}
	if told == failed {
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

// standings are those of the acts.
func (t *Taker) standings(acts []*weir.Act) []Standing {
	all := make([]Standing, len(acts))
	for i, a := range acts {
		if len(a.Charges) > 0 && a.Charges[0].Limit != nil {
			all[i] = t.Standing(a.Charges[0].Limit)
		}
	}
	return all
}

// An outcome is what acts came to, the worst last.
type outcome uint8

const (
	none outcome = iota
	granted
	refused
	failed
)

// String returns the outcome as spans have it.
func (o outcome) String() string { return [...]string{"", "granted", "refused", "error"}[o] }

func outcomeOf(a *weir.Act) outcome {
	switch {
	case a.Err != nil:
		return failed
	case a.Allowed():
		return granted
	}
	return refused
}

// outcomesOf returns the worst that callers are told of, and the worst of what only
// watches.
func outcomesOf(acts []*weir.Act, standings []Standing) (told, watched outcome) {
	told = granted
	for i, a := range acts {
		o := outcomeOf(a)
		if standings[i] == Enforced {
			told = max(told, o)
			continue
		}
		watched = max(watched, o)
		if standings[i] == Shadow && o == failed {
			told = failed
		}
	}
	return told, watched
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
