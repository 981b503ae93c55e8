package app

import (
	"context"
	"time"

	"github.com/weirlimit/weir/server/internal/frames"
	"github.com/weirlimit/weir/server/internal/rls"
)

// A gatherer answers the calls of the rate limit service. It plans each by itself, under its
// own caller, and answers at once what memory decides; the others of a connection that have
// come together ask the store together.
type gatherer struct {
	*method
	service *rls.Service
}

// A waiting call is planned and not decided.
type waiting struct {
	planned *rls.Planned
	begun   time.Time
}

func (g *gatherer) serve(c *frames.Call) {
	if !c.Later() {
		g.observe(c, g.answer)
		return
	}
	ctx, begun := identified(c), g.counters.Begin()
	c.SetValue(nil)
	err := g.rescued(ctx, c, g.begin)
	if w, waits := c.Value().(*waiting); waits && err == nil {
		w.begun = begun
		return
	}
	g.end(c, begun, err)
}

func (g *gatherer) answer(ctx context.Context, c *frames.Call) error {
	b, err := g.service.Answer(ctx, c, c.Message(), c.Buffer())
	if err == nil {
		c.Reply(b)
	}
	return err
}

func (g *gatherer) begin(ctx context.Context, c *frames.Call) error {
	p, b, err := g.service.Begin(ctx, c, c.Message(), c.Buffer())
	switch {
	case err != nil:
		return err
	case p != nil:
		c.SetValue(&waiting{planned: p})
	default:
		c.Reply(b)
	}
	return nil
}

// gather has the store decide calls together. If that panics, all of them fail.
func (g *gatherer) gather(calls []*frames.Call) {
	planned := make([]*rls.Planned, len(calls))
	for i, c := range calls {
		planned[i] = c.Value().(*waiting).planned
	}
	err := g.rescued(calls[0].Context(), calls[0], func(ctx context.Context, _ *frames.Call) error {
		g.service.Take(ctx, planned)
		return nil
	})
	for _, c := range calls {
		failed := err
		if failed == nil {
			failed = g.rescued(c.Context(), c, g.conclude)
		}
		g.end(c, c.Value().(*waiting).begun, failed)
	}
}

func (g *gatherer) conclude(ctx context.Context, c *frames.Call) error {
	b, err := g.service.End(ctx, c.Value().(*waiting).planned, c.Buffer())
	if err == nil {
		c.Reply(b)
	}
	return err
}
