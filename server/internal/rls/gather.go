package rls

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A Planned is a request whose acts are not decided yet.
type Planned struct {
	message *message
	call    *call
}

// Begin is like Answer if memory decides the request, or if its acts have to be taken alone.
// Otherwise it returns what Take and then End need. The caller, its rights and its deadline
// are those of ctx.
func (s *Service) Begin(ctx context.Context, call Charger, raw, b []byte) (p *Planned, answer []byte, err error) {
	one, err := s.begin(ctx, call, raw)
	if err != nil {
		return nil, nil, err
	}
	if s.gathers(one.call) {
		return &Planned{one.message, one.call}, nil, nil
	}
	b, err = s.decideOne(ctx, one, b)
	return nil, b, err
}

// Take takes the acts of several requests together. The context has the deadline of their
// callers, and nothing else of them.
func (s *Service) Take(ctx context.Context, all []*Planned) {
	callers := make([][]*weir.Act, len(all))
	for i, p := range all {
		callers[i] = p.call.plan.Acts
	}
	observe.TakeEach(s.within(ctx), s.options.Taker, callers)
	for _, p := range all {
		p.call.plan.Taken()
	}
}

// End appends the encoded answer to a request whose acts were taken to b. The error is a
// status.
func (s *Service) End(ctx context.Context, p *Planned, b []byte) ([]byte, error) {
	if err := s.failed(ctx, p.call.plan); err != nil {
		p.free()
		return nil, statusOf(err)
	}
	if s.options.Decided != nil {
		s.options.Decided(p.call.asked, p.call.plan)
	}
	s.judge(&p.message.request, p.call)
	p.call.plan.Free()
	b, err := appendAnswer(b, &p.call.answer)
	p.free()
	if err != nil {
		return nil, status.Error(codes.Internal, "the rules' metadata fits no message: "+err.Error())
	}
	return b, nil
}

// begin decodes and plans a request. The error is a status, or that of call.
func (s *Service) begin(ctx context.Context, call Charger, raw []byte) (Planned, error) {
	set := s.options.Rules()
	known, at := s.memo.find(set, raw)
	if known != nil {
		return at.recall(ctx, call, known)
	}
	m := messages.Get().(*message)
	m.bounds, m.call = s.options.Bounds, call
	c, err := s.received(ctx, set, m, raw)
	if err != nil {
		m.free()
		return Planned{}, err
	}
	if c.repeats() && at.elects() {
		s.remember(set, at, raw, c)
	}
	return Planned{m, c}, nil
}

func (s *Service) received(ctx context.Context, set *rules.Set, m *message, raw []byte) (*call, error) {
	if err := m.receive(ctx, raw); err != nil {
		return nil, err
	}
	c, err := s.plan(ctx, set, &m.request)
	if err != nil {
		return nil, statusOf(err)
	}
	return c, nil
}

// receive decodes a message. The error is a status, or that of the call.
func (m *message) receive(ctx context.Context, raw []byte) error {
	switch err := m.unmarshal(raw); {
	case errors.Is(err, errMalformed):
		return status.Errorf(codes.Internal, "grpc: failed to unmarshal the received message: %v", err)
	case err != nil:
		return err
	case m.refused != nil:
		return statusOf(m.refused)
	}
	return awaited(ctx)
}

// awaited returns the status of a call whose client waits for no answer any more; nil if it
// does.
func awaited(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// decideOne decides a planned request by itself. A store that panics may still use the memory:
// nothing is freed then.
func (s *Service) decideOne(ctx context.Context, p Planned, b []byte) ([]byte, error) {
	if err := s.take(ctx, p.call); err != nil {
		p.free()
		return nil, statusOf(err)
	}
	return s.End(ctx, &p, b)
}

// gathers reports whether the acts of a request wait for the store, together with others:
// plain takes that one call decides.
func (s *Service) gathers(c *call) bool {
	if s.options.Gather == nil || len(c.plan.Acts) == 0 || stepsFor(c.plan, c) != nil {
		return false
	}
	for _, a := range c.plan.Acts {
		if a.Kind != acts.KindTake || a.ID != "" || a.Hold != 0 || a.MaxWait != 0 || !s.options.Gather(a) {
			return false
		}
	}
	return true
}

func (p Planned) free() {
	p.message.free()
	p.call.free()
}
