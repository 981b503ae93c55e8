package stacktest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// did notes what a step does.
func (h *history) did(format string, args ...any) {
	at := slices.Index(h.instances[:], h.router.instance)
	h.step = fmt.Sprintf("at instance %d, after %v: ", at, h.clock.Now().Sub(begin)) + fmt.Sprintf(format, args...)
}

// inForce returns the override of a key in the store at the current instance.
func (h *history) inForce(own string) (o over, found bool) {
	o, found = h.router.overrides[own]
	return o, found && h.clock.Now().Before(o.until)
}

// limitOf returns the limit that decides about a part; nil if the key has none.
func (h *history) limitOf(p *part) *weir.Limit {
	if o, found := h.inForce(p.own); found {
		return o.limit
	}
	return p.limit
}

// parts are what a take charges, and of which budgets at the current instance.
func (h *history) parts(l *limiter, key string, units int64) []part {
	var all []part
	for _, c := range l.Act(acts.KindTake, key, units).Charges {
		p := part{own: c.Key, budget: c.Key, limit: c.Limit, units: units, alt: c.Alt}
		if algo.TraitsOf(c.Limit.Algorithm).HoldsSlots && !l.conns {
			p.units = min(units, 1)
		}
		p.free, h.tags[c.Key] = h.limitOf(&p) == nil, c.HashTag
		all = append(all, p)
	}
	return all
}

// put finds the budgets that the parts of an act are charged to. If the act is granted without
// asking, because no key has a limit, no key is tracked.
func (h *history) put(parts []part, named, record bool) {
	free := true
	for i := range parts {
		h.limits[parts[i].own] = parts[i].limit
		free = free && parts[i].free
	}
	if !h.bounded || free && !named && parts[0].units > 0 {
		return
	}
	for i := range parts {
		p := &parts[i]
		if l := h.limitOf(p); l != nil && l.Count == 0 && !record {
			continue // nothing is stored under it
		}
		if o := overflow(p.limit); !h.admit(o, p.own, p.units > 0 && !p.free) {
			p.budget, h.limits[o] = o, p.limit
		}
	}
}

// admit reports whether the current instance tracks a key, now or from now on.
func (h *history) admit(overflow, own string, charged bool) bool {
	all := h.router.tracked[overflow]
	if all == nil {
		all = map[string]bool{}
		h.router.tracked[overflow] = all
	}
	if all[own] {
		return true
	}
	if len(all) >= maxKeys {
		return false
	}
	if charged {
		all[own] = true
	}
	return true
}

// fits reports whether a part has room, as far as its callers know.
func (h *history) fits(p *part) bool {
	l := h.limitOf(p)
	return p.free || p.units == 0 || !h.blocked[p.budget] && h.used[p.budget]+p.units <= l.Capacity()
}

// block notes the keys that a refused take has blocked: those whose limits have refused it, unless
// an override has before anything was evaluated. The key that further keys share is not blocked.
func (h *history) block(parts []part) {
	denied := true
	for from := 0; from < len(parts); {
		any, alt := false, parts[from].alt
		for ; from < len(parts) && parts[from].alt == alt; from++ {
			l := h.limitOf(&parts[from])
			any = any || l != nil && l.Count == 0 && parts[from].units > 0
		}
		denied = denied && any
	}
	for i := range parts {
		p := &parts[i]
		if !denied && p.limit.Block > 0 && p.budget == p.own && !h.fits(p) && p.units <= h.limitOf(p).Capacity() {
			h.blocked[p.own] = true
		}
	}
}

// granted charges what was granted: the parts of one alternative. Of a refused take, it demands
// that each alternative has no room.
func (h *history) granted(parts []part, d weir.Decision) ([]part, error) {
	if !d.Allowed() {
		if h.leasing {
			return nil, nil // another instance may have leased the units
		}
		for from := 0; from < len(parts); {
			room, alt := true, parts[from].alt
			for ; from < len(parts) && parts[from].alt == alt; from++ {
				room = room && h.fits(&parts[from])
			}
			if room {
				return nil, fmt.Errorf("refused although there is room: %v", d)
			}
		}
		h.block(parts)
		return nil, nil
	}
	if d.Alternative > 0 {
		parts = slices.DeleteFunc(parts, func(p part) bool { return p.alt+1 != d.Alternative })
	}
	for i := range parts {
		p := &parts[i]
		// Units that were leased before others were charged without fitting are granted.
		if !h.leasing && !h.fits(p) {
			return nil, fmt.Errorf("granted %d units beside %d used of %q, which allows %v: %v", p.units, h.used[p.budget], p.budget, h.limitOf(p), d)
		}
		if p.free {
			p.units = 0
		}
		h.used[p.budget] += p.units
	}
	return parts, nil
}

// take charges a key in one of the ways that the limiter has.
func (h *history) take(ctx context.Context, l *limiter, key string) error {
	units, alone := 1+h.rng.Int64N(4), len(l.limits) == 1
	held := !l.waits && (alone || !h.bounded)
	switch n := h.rng.IntN(7); {
	case l.slots || n == 0 && held:
		return h.hold(ctx, l, key)
	case n == 1 && held:
		return h.once(ctx, l, key, units)
	case n == 2 && !l.waits:
		h.did("reserve %d of %s %s", units, l.name, key)
		parts := h.parts(l, key, units)
		h.put(parts, false, false)
		r, err := l.Reserve(ctx, key, units, 0)
		if err != nil {
			return err
		}
		if parts, err = h.granted(parts, r.Decision()); err == nil && r.OK() {
			h.grants = append(h.grants, grant{limiter: l, key: key, parts: parts, reservation: r})
		}
		return err
	case n == 3 && alone:
		h.did("up to %d of %s %s", units, l.name, key)
		parts := h.parts(l, key, 1)
		h.put(parts, false, false)
		d, err := l.AllowUpTo(ctx, key, units)
		if err != nil {
			return err
		}
		if d.Allowed() {
			parts[0].units = d.Granted
		}
		_, err = h.granted(parts, d)
		return err
	}
	times := 1
	if h.leasing {
		times += h.rng.IntN(8)
	}
	for range times {
		h.did("take %d of %s %s", units, l.name, key)
		parts := h.parts(l, key, units)
		h.put(parts, false, false)
		d, err := l.AllowN(ctx, key, units)
		if err != nil {
			return err
		}
		if parts, err = h.granted(parts, d); err != nil {
			return err
		}
		if d.Allowed() && (alone || d.Alternative > 0) && !l.waits {
			h.grants = append(h.grants, grant{limiter: l, key: key, parts: parts, decision: d})
		}
	}
	return nil
}

// once takes units once, and repeats the take, also at the other instance.
func (h *history) once(ctx context.Context, l *limiter, key string, units int64) error {
	h.did("take %d of %s %s once", units, l.name, key)
	parts := h.parts(l, key, units)
	h.put(parts, true, false)
	id := fmt.Sprint("id ", h.rng.Uint64())
	d, err := l.AllowOnce(ctx, key, units, id)
	if err != nil {
		return err
	}
	if _, err = h.granted(parts, d); err != nil || !d.Allowed() {
		return err
	}
	if !h.bounded {
		h.router.instance = h.instances[h.rng.IntN(len(h.instances))]
	} else if h.parts(l, key, units)[0].budget != parts[0].budget {
		return nil
	}
	// A block refuses a repeat, too.
	for _, p := range h.parts(l, key, units) {
		if limit := h.limitOf(&p); limit != nil && limit.Count == 0 {
			return nil
		}
	}
	h.did("repeat %d of %s %s", units, l.name, key)
	again, err := l.AllowOnce(ctx, key, units, id)
	if err == nil && !again.Allowed() {
		err = fmt.Errorf("the repeat: %v, the take: %v", again, d)
	}
	return err
}

// hold takes an estimate, which may be 0, and slots.
func (h *history) hold(ctx context.Context, l *limiter, key string) error {
	estimate := max(0, h.rng.Int64N(8)-3)
	h.did("hold %d of %s %s", estimate, l.name, key)
	parts := h.parts(l, key, estimate)
	h.put(parts, true, false)
	hold, err := l.Hold(ctx, key, estimate, time.Hour)
	if err != nil {
		return err
	}
	if parts, err = h.granted(parts, hold.Decision()); err == nil && hold.OK() {
		h.grants = append(h.grants, grant{limiter: l, key: key, parts: parts, hold: hold})
	}
	return err
}

// together charges keys of two limiters.
func (h *history) together(ctx context.Context, key string) error {
	other, units := h.key(), [2]int64{1 + h.rng.Int64N(2), 1 + h.rng.Int64N(2)}
	if h.leasing {
		units[1] = units[0]
	}
	joint := weir.Together(h.joint[0].Cost(key, units[0]), h.joint[1].Cost(other, units[1]))
	all := func(named bool) []part {
		parts := append(h.parts(h.joint[0], key, units[0]), h.parts(h.joint[1], other, units[1])...)
		h.put(parts, named, false)
		return parts
	}
	if !h.bounded && h.rng.IntN(3) == 0 {
		h.did("hold %d of %s and %d of %s together", units[0], key, units[1], other)
		parts := all(true)
		hold, err := joint.Hold(ctx, time.Hour)
		if err != nil {
			return err
		}
		if parts, err = h.granted(parts, hold.Decision()); err == nil && hold.OK() {
			h.grants = append(h.grants, grant{parts: parts, hold: hold})
		}
		return err
	}
	times := 1
	if h.leasing {
		times += h.rng.IntN(8)
	}
	for range times {
		h.did("take %d of %s and %d of %s together", units[0], key, units[1], other)
		parts := all(false)
		d, err := joint.Allow(ctx)
		if err != nil {
			return err
		}
		if _, err = h.granted(parts, d); err != nil {
			return err
		}
	}
	return nil
}

// end returns a part of what a caller was granted, or says what was used of it.
func (h *history) end(ctx context.Context) error {
	n := h.rng.IntN(len(h.grants))
	g := &h.grants[n]
	switch {
	case g.hold != nil && h.rng.IntN(4) == 0:
		h.did("renew a hold of %+v", g.parts)
		return g.hold.Renew(ctx, 0)
	case g.hold != nil && h.rng.IntN(3) == 0:
		h.did("release a hold of %+v", g.parts)
		if err := g.hold.Release(ctx); err != nil {
			return err
		}
		for i := range g.parts {
			h.less(&g.parts[i], g.parts[i].units)
		}
	case g.hold != nil:
		if err := h.settle(ctx, g); err != nil {
			return err
		}
	case h.bounded && h.leasing:
		return nil // what comes back may be another instance's lease of the key itself
	case g.reservation != nil:
		h.did("cancel a reservation of %+v", g.parts)
		want := h.refund(g.parts, -1)
		if given, err := g.reservation.Cancel(ctx); err != nil || given != want {
			return fmt.Errorf("%d units were refunded, want %d: %w", given, want, err)
		}
	default:
		units := h.rng.Int64N(g.decision.Granted + 1)
		h.did("refund %d of %+v", units, g.parts)
		want := h.refund(g.parts, units)
		if given, err := g.limiter.Refund(ctx, g.key, g.decision, units); err != nil || given != want {
			return fmt.Errorf("%d units were refunded, want %d: %w", given, want, err)
		}
	}
	h.grants = slices.Delete(h.grants, n, n+1)
	return nil
}

// refund returns units without an ID, all of them if units is negative: from the key itself, no
// more than it was charged. It returns the smallest number.
func (h *history) refund(parts []part, units int64) int64 {
	least := int64(-1)
	for i := range parts {
		p := &parts[i]
		if p.free {
			continue
		}
		given := p.units
		if units >= 0 {
			given = units
		}
		given = min(given, h.used[p.own])
		h.used[p.own] -= given
		if least < 0 || given < least {
			least = given
		}
	}
	return max(0, least)
}

// settle settles a hold, and repeats that.
func (h *history) settle(ctx context.Context, g *grant) error {
	var actual []int64
	for i := range g.parts {
		p := &g.parts[i]
		n := h.rng.Int64N(p.units + 4)
		if h.leasing && h.used[p.budget]+n > p.limit.Capacity() {
			n = 0 // what is leased counts, too, until nothing more is charged
		}
		if h.beyond(p, n) {
			n = 0
		}
		if i > 0 && g.limiter != nil {
			n = actual[0] // one number for all limits
		}
		actual = append(actual, n)
	}
	h.did("settle a hold of %+v at %v", g.parts, actual)
	if g.limiter != nil {
		actual = actual[:1]
	}
	if _, err := g.hold.Settle(ctx, actual...); err != nil {
		return err
	}
	for i := range g.parts {
		p, units := &g.parts[i], actual[min(i, len(actual)-1)]
		switch {
		case algo.TraitsOf(p.limit.Algorithm).HoldsSlots:
			h.less(p, p.units)
		case p.free:
		case units < p.units:
			h.less(p, p.units-units)
		default:
			h.used[p.budget] += h.more(p, units-p.units)
		}
	}
	h.router.instance = h.instances[h.rng.IntN(len(h.instances))]
	_, err := g.hold.Settle(ctx, actual...)
	return err
}

// less returns units to the budget that was charged, unless others have returned them.
func (h *history) less(p *part, units int64) { h.used[p.budget] -= min(units, h.used[p.budget]) }

// more is how many of so many units are charged that need not fit: up to one full drain beyond
// the larger of the key's own limit and the one in force.
func (h *history) more(p *part, units int64) int64 {
	if p.limit.Algorithm == weir.FixedWindow {
		return units
	}
	debt := 2 * p.limit.Capacity()
	if l := h.limitOf(p); l != nil {
		debt = max(debt, 2*l.Capacity())
	}
	return max(0, min(units, debt-h.used[p.budget]))
}

// beyond reports whether units would be charged that the key's own limit cuts off once a higher
// override has ended.
func (h *history) beyond(p *part, units int64) bool {
	l, room := h.limitOf(p), 2*p.limit.Capacity()
	if h.leasing {
		room -= p.limit.Capacity() // which may be leased
	}
	return l != nil && l.Capacity() > p.limit.Capacity() && h.used[p.budget]+units > room
}

// record charges units whether they fit or not.
func (h *history) record(ctx context.Context, l *limiter, key string) error {
	a := l.Act(acts.KindRecord, key, 1+h.rng.Int64N(8))
	if l.slots || a.Alternatives() {
		return nil
	}
	h.did("record %d of %s %s", a.Charges[0].Cost, l.name, key)
	parts := h.parts(l, key, a.Charges[0].Cost)
	for _, p := range parts {
		shared := p
		if shared.budget = overflow(p.limit); h.beyond(&p, p.units) || h.beyond(&shared, p.units) {
			return nil
		}
	}
	h.put(parts, false, true)
	if l.Take(ctx, []*weir.Act{a}); a.Err != nil {
		return a.Err
	}
	for i := range parts {
		p, charged := &parts[i], a.Decisions[i].Granted
		if p.free {
			continue
		}
		if want := h.more(p, p.units); charged != want && !h.leasing {
			return fmt.Errorf("%d units were charged, want %d", charged, want)
		}
		h.used[p.budget] += charged
	}
	return nil
}

// negative returns the newest units of a key, as Envoy's negative hits do.
func (h *history) negative(ctx context.Context, l *limiter, key string) error {
	if l.slots || len(l.limits) > 1 || h.leasing {
		return nil
	}
	a := l.Act(acts.KindRefund, key, 1+h.rng.Int64N(4))
	a.Anonymous = true
	h.did("refund %d of %s %s without a name", a.Charges[0].Cost, l.name, key)
	parts := h.parts(l, key, a.Charges[0].Cost)
	parts[0].free = false
	want := h.refund(parts, -1)
	if l.Take(ctx, []*weir.Act{a}); a.Err != nil || a.Decisions[0].Granted != want {
		return fmt.Errorf("%d units were refunded, want %d: %w", a.Decisions[0].Granted, want, a.Err)
	}
	return nil
}

// connect takes slots without a name, or returns them.
func (h *history) connect(ctx context.Context, l *limiter, key string, begins bool) error {
	kind := acts.KindRefund
	if begins {
		kind = acts.KindTake
	}
	a := l.Act(kind, key, 1+h.rng.Int64N(2))
	a.Anonymous = true
	p := h.parts(l, key, a.Charges[0].Cost)
	h.did("%v %d of %s %s without a name", kind, p[0].units, l.name, key)
	if begins {
		h.put(p, false, false)
	}
	if l.Take(ctx, []*weir.Act{a}); a.Err != nil {
		return a.Err
	}
	if begins {
		if !a.Allowed() {
			h.refused[p[0].budget] += p[0].units
		}
		_, err := h.granted(p, a.Decisions[0])
		return err
	}
	refused := min(p[0].units, h.refused[p[0].own])
	h.refused[p[0].own] -= refused
	slots := min(p[0].units-refused, h.used[p[0].own])
	if h.used[p[0].own] -= slots; a.Decisions[0].Granted != refused+slots {
		return fmt.Errorf("%d slots were returned, want %d of which %d were refused", a.Decisions[0].Granted, refused+slots, refused)
	}
	return nil
}

// reset makes a key fresh. What its callers were granted is not returned any more.
func (h *history) reset(ctx context.Context, l *limiter, key string) error {
	if h.leasing {
		return nil // the other instance returns its leases
	}
	h.did("reset %s %s", l.name, key)
	for _, p := range h.parts(l, key, 1) {
		h.used[p.own], h.refused[p.own], h.blocked[p.own] = 0, 0, false
		h.grants = slices.DeleteFunc(h.grants, func(g grant) bool {
			return slices.ContainsFunc(g.parts, func(q part) bool { return q.own == p.own })
		})
	}
	return l.Reset(ctx, key)
}

// override gives a key another limit for a time, at the current instance, or ends that.
func (h *history) override(l *limiter, key string) error {
	if l.conns {
		return nil
	}
	parts := h.parts(l, key, 1)
	if h.rng.IntN(4) == 0 {
		h.did("remove the overrides of %s %s", l.name, key)
		l.RemoveOverride(key)
		for _, p := range parts {
			delete(h.router.overrides, p.own)
		}
		return nil
	}
	p := parts[h.rng.IntN(len(parts))]
	o := over{until: h.clock.Now().Add(time.Duration(1+h.rng.IntN(6000)) * time.Millisecond)}
	if n := h.rng.IntN(6) - 1; n > 0 {
		count := []int64{0, 1 + h.rng.Int64N(5), p.limit.Count + 1 + h.rng.Int64N(20), 1 + h.rng.Int64N(5)}[n-1]
		o.limit = weir.Per(count, month).MustCompile()
	}
	h.did("override %s by %v", p.own, o.limit)
	h.router.overrides[p.own] = o
	return l.SetOverride(key, weir.Override{Name: p.limit.Name, Limit: o.limit, Until: o.until})
}
