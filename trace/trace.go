// Package trace records each call of a Taker as an OpenTelemetry span, if the caller's span
// is recorded. The program chooses the exporter.
package trace

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir"
)

// The attributes of a span. None of them contains a key.
const (
	// Limits are the names of the limits that were charged, each once, at most 16.
	Limits = "weir.limits"
	// Outcome is granted, refused or error: the worst of the call's acts, without those
	// whose outcome the caller does not see.
	Outcome = "weir.outcome"
	// ShadowOutcome is the worst outcome of acts whose limits are not enforced; absent if
	// there are none.
	ShadowOutcome = "weir.shadow_outcome"
	// Sources are the sources of the decisions, each once.
	Sources = "weir.sources"
	// Acts is the number of acts that were decided together.
	Acts = "weir.acts"
)

const (
	scope     = "github.com/weirlimit/weir/trace"
	spanName  = "weir.take"
	maxLimits = 16
)

// A Standing says which part of a limit's outcome its callers see.
type Standing uint8

// The standings.
const (
	// Enforced limits refuse. The zero value.
	Enforced Standing = iota
	// Shadow limits refuse nobody.
	Shadow
	// Trial limits refuse nobody, and hide their errors.
	Trial
)

// Options are the settings of a [Layer]. The zero value is ready for use.
type Options struct {
	// Name is the name of the spans. Empty: weir.take.
	Name string
	// Standing returns the standing of a limit that is charged. All limits of an act have
	// the same. Nil: all are Enforced.
	Standing func(*weir.Limit) Standing
}

// A Layer calls the next Taker and records the call as a span, with the tracer provider
// of the span in the context. If there is no span, or it is not recorded, the Layer only
// calls. It is safe for concurrent use. Create it with Wrap.
type Layer struct {
	next weir.Taker
	Options
}

// Wrap returns a Layer that calls next.
func Wrap(next weir.Taker, o Options) *Layer {
	if o.Name == "" {
		o.Name = spanName
	}
	if o.Standing == nil {
		o.Standing = func(*weir.Limit) Standing { return Enforced }
	}
	return &Layer{next, o}
}

// Unwrap returns the next Taker.
func (l *Layer) Unwrap() weir.Taker { return l.next }

// Take calls the next Taker.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		l.next.Take(ctx, acts)
		return
	}
	// Afterwards, a charge may name another limit than it was asked for.
	limits, standings := names(acts), l.standings(acts)
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, l.Name)
	defer span.End()
	l.next.Take(ctx, acts)
	seen, shadow := outcomesOf(acts, standings)
	span.SetAttributes(
		attribute.StringSlice(Limits, limits), attribute.String(Outcome, seen.String()),
		attribute.StringSlice(Sources, sources(acts)), attribute.Int(Acts, len(acts)),
	)
	if shadow != none {
		span.SetAttributes(attribute.String(ShadowOutcome, shadow.String()))
	}
	if seen == failed {
		// The message of the error may contain addresses.
		span.SetStatus(codes.Error, "no decision")
	}
}

// names returns the names of the limits that are asked for.
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

// standings returns the standings of the acts.
func (l *Layer) standings(acts []*weir.Act) []Standing {
	all := make([]Standing, len(acts))
	for i, a := range acts {
		if len(a.Charges) > 0 && a.Charges[0].Limit != nil {
			all[i] = l.Standing(a.Charges[0].Limit)
		}
	}
	return all
}

// An outcome is the result of acts, the worst last.
type outcome uint8

const (
	none outcome = iota
	granted
	refused
	failed
)

// String returns the outcome as spans record it.
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

// outcomesOf returns the worst outcome that callers see, and the worst of acts whose limits
// are not enforced.
func outcomesOf(acts []*weir.Act, standings []Standing) (seen, shadow outcome) {
	seen = granted
	for i, a := range acts {
		o := outcomeOf(a)
		if standings[i] == Enforced {
			seen = max(seen, o)
			continue
		}
		shadow = max(shadow, o)
		if standings[i] == Shadow && o == failed {
			seen = failed
		}
	}
	return seen, shadow
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
