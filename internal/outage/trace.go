package outage

import "context"

// A Trace hears which nodes a call of a store asks, where these may be several.
type Trace interface {
	// Asked is called when a script call is about to be sent to a node.
	Asked(node string)
	// Answered is called when it has returned: with nil if the node decided, or with
	// an error as a [weir.Taker] has it.
	Answered(node string, err error)
}

type traceKey struct{}

// With returns a context under which a store tells a trace.
func With(ctx context.Context, t Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// Of returns the trace of a context; nil if it has none.
func Of(ctx context.Context) Trace {
	t, _ := ctx.Value(traceKey{}).(Trace)
	return t
}
