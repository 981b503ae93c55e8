package weirgrpc

import (
	"context"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/clientip"
	"github.com/weirlimit/weir/internal/gate"
)

// door is what all of them ask.
type door struct {
	Options
	limiter *weir.Limiter
	places  bool // the limiter has some to hold
	gate    gate.Gate
}

func newDoor(limiter *weir.Limiter, o Options) *door {
	if limiter == nil {
		panic("weirgrpc: no limiter")
	}
	if o.Key == nil {
		o.Key = KeyByIP(clientip.RemoteAddr())
	}
	if o.Cost == nil {
		o.Cost = func(context.Context, string, any) int64 { return 1 }
	}
	if o.Skip == nil {
		o.Skip = func(context.Context, string) bool { return false }
	}
	if o.OnError == nil {
		o.OnError = func(context.Context, string, error) {}
	}
	return &door{
		Options: o, limiter: limiter, places: gate.Places(limiter),
		gate: gate.Gate{Prefix: o.Prefix, Timeout: o.Timeout, Logger: o.Logger},
	}
}

// key is whose budget a call is charged to.
func (d *door) key(ctx context.Context, method string) string {
	key, err := d.Key(ctx, method)
	if err != nil {
		d.OnError(ctx, method, err)
		return gate.Unknown
	}
	return key
}

// enter charges a call, which has to leave if it gets a visit. The error is the
// status that refuses it. A call that is let in without a decision gets neither.
func (d *door) enter(ctx context.Context, method string, message any) (*gate.Visit, error) {
	return d.visit(ctx, method, gate.Request{Cost: d.Cost(ctx, method, message), Later: d.Charge != nil})
}

// open is enter for a stream. One whose messages are charged pays nothing to be
// opened, but it takes its place.
func (d *door) open(ctx context.Context, method string) (*gate.Visit, error) {
	switch {
	case !d.PerMessage:
		return d.enter(ctx, method, nil)
	case d.places:
		return d.visit(ctx, method, gate.Request{})
	}
	return nil, nil
}

func (d *door) visit(ctx context.Context, method string, r gate.Request) (*gate.Visit, error) {
	if d.Skip(ctx, method) {
		return nil, nil
	}
	r.Limiter, r.Key = d.limiter, d.key(ctx, method)
	r.Failed = func(err error) { d.OnError(ctx, method, err) }
	v := d.gate.Enter(ctx, r)
	if err := d.verdict(ctx, method, v.Act); err != nil || v.Act.Err != nil {
		return nil, err
	}
	return v, nil
}

// receive charges a message of a stream that is open.
func (d *door) receive(ctx context.Context, method string, message any) error {
	if d.Skip(ctx, method) {
		return nil
	}
	act := d.gate.Charge(ctx, d.limiter, d.key(ctx, method), d.Cost(ctx, method, message))
	if len(act.Charges) == 0 {
		return nil
	}
	return d.verdict(ctx, method, act)
}

// verdict tells what has been decided. The error is the status that refuses.
func (d *door) verdict(ctx context.Context, method string, act *weir.Act) error {
	if act.Err != nil {
		d.OnError(ctx, method, act.Err)
		return d.failure(act.Err)
	}
	return d.answer(ctx, act)
}

// leave lets a call go that was let in, and corrects what it was charged.
func (d *door) leave(ctx context.Context, v *gate.Visit, r Response) {
	if v == nil {
		return
	}
	leave := v.Leave
	if d.Charge != nil && !r.charged {
		leave = func(ctx context.Context) error { return v.LeaveAt(ctx, d.Charge(ctx, r)) }
	}
	if err := leave(ctx); err != nil {
		d.OnError(ctx, r.Method, err)
	}
}
