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
	"github.com/weirlimit/weir/internal/acts"
)

// The attributes of a span. None of them contains a key.
const (
	// limitNames are the names of the limits that were charged, each once, at most 16.
	limitNames = "weir.limits"
	// seenOutcome is granted, refused or error: the worst of the call's acts, without those
	// whose outcome the caller does not see.
	seenOutcome = "weir.outcome"
	// shadowOutcome is the worst outcome of acts whose limits are not enforced; absent if
	// there are none.
	shadowOutcome = "weir.shadow_outcome"
	// sourceNames are the sources of the decisions, each once.
	sourceNames = "weir.sources"
	// actCount is the number of acts that were decided together.
	actCount = "weir.acts"
)

const (
	scope     = "github.com/weirlimit/weir/trace"
	spanName  = "weir.take"
	maxLimits = 16
)

// Options are the settings of [Wrap]. The zero value is ready for use.
type Options struct {
	// Name is the name of the spans. Empty: weir.take.
	Name string
	// Seen reports whether callers see the refusals of a limit that is charged, and whether
	// they see its errors. It is the same for all limits of an act. Nil: they see both.
	Seen func(*weir.Limit) (refusals, errors bool)
}

// A layer calls the next Taker and records the call.
type layer struct {
	next weir.Taker
	Options
}

// Wrap returns a Taker that calls next and records the call as a span, with the tracer
// provider of the span in the context. If there is no span, or it is not recorded, the
// Taker only calls. It is safe for concurrent use. A limiter over it can set overrides if one
// over next can.
func Wrap(next weir.Taker, o Options) weir.Taker {
	if o.Name == "" {
		o.Name = spanName
	}
	if o.Seen == nil {
		o.Seen = func(*weir.Limit) (refusals, errors bool) { return true, true }
	}
	l := &layer{next, o}
	if below, has := next.(overrider); has {
		return &aboveOverrider{l, below}
	}
	return l
}

// The overrides of a store, which its span must not hide from a limiter.
type (
	overrider interface {
		ChangeOverride(key string, o *weir.Override) (had bool, err error)
	}
	aboveOverrider struct {
		*layer
		overrider
	}
)

// Take calls the next Taker.
func (l *layer) Take(ctx context.Context, acts []*weir.Act) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		l.next.Take(ctx, acts)
		return
	}
	// Afterwards, a charge may name another limit than it was asked for.
	limits, visible := names(acts), l.visible(acts)
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, l.Name)
	defer span.End()
	l.next.Take(ctx, acts)
	seen, shadow := outcomesOf(acts, visible)
	span.SetAttributes(
		attribute.StringSlice(limitNames, limits), attribute.String(seenOutcome, seen.String()),
		attribute.StringSlice(sourceNames, sources(acts)), attribute.Int(actCount, len(acts)),
	)
	if shadow != none {
		span.SetAttributes(attribute.String(shadowOutcome, shadow.String()))
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

// A sight says what callers see of an act.
type sight struct{ refusals, errors bool }

// visible returns what callers see of the acts.
func (l *layer) visible(acts []*weir.Act) []sight {
	all := make([]sight, len(acts))
	for i, a := range acts {
		all[i] = sight{true, true}
		if len(a.Charges) > 0 && a.Charges[0].Limit != nil {
			all[i].refusals, all[i].errors = l.Seen(a.Charges[0].Limit)
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
func outcomesOf(acts []*weir.Act, visible []sight) (seen, shadow outcome) {
	seen = granted
	for i, a := range acts {
		o := outcomeOf(a)
		if !visible[i].refusals {
			shadow = max(shadow, o)
		}
		if visible[i].refusals || visible[i].errors && o == failed {
			seen = max(seen, o)
		}
	}
	return seen, shadow
}

func sources(list []*weir.Act) []string {
	var all []string
	for _, a := range list {
		for _, d := range a.Decisions {
			if name := d.Source.String(); d.Source != acts.SourceNone && a.Err == nil && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}
