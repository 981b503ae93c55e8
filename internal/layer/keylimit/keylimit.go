// Package keylimit bounds how many keys of a limit are tracked. Clients that can make up
// keys, such as paths, addresses or unchecked tokens, could otherwise fill a store with
// the states of keys that are used once. Keys beyond the bound share one key.
package keylimit

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// MaxKeys is the largest bound. A key takes 20 to 40 bytes of this process.
const MaxKeys = 10_000_000

// Options configure a [Layer]. The zero value bounds nothing.
type Options struct {
	// Budget returns the budget of a charge's limit. It is called for every charge, from many
	// goroutines. Nil: no limit has one.
	Budget func(*weir.Charge) weir.KeyLimit
	// Logger receives a line when a limit has reached its number of keys. Nil: none.
	Logger *slog.Logger
	// Now is the clock by which keys expire. Nil: the monotonic clock.
	Now func() time.Time
}

// A Layer asks the next Taker, under a limit's Overflow where a key exceeds the limit's
// budget. It is safe for concurrent use and starts nothing. Create it with Wrap.
//
// A key is tracked once it was charged, and until it was not charged for one to two times
// as long as its limit takes to drain: as long as it may have a state in the store. So
// one process never leaves more states of a limit in the store than its MaxKeys and one, and as
// many blocks if the limit has a Block, except states charged beyond the limit or booked ahead, which outlive that time. A peek
// tracks no key. A reset acts on the key itself, and so does a refund without an ID: it may be
// made by another instance than the charge, which tracks other keys, and must not return what
// others have charged to the Overflow. So units charged there without an ID stay charged.
//
// A charge that has alternatives stays in one hash slot with them. If the key of one of them
// is tracked, or its limit has no budget, its slot is that one's: then there is one Overflow
// for each such slot. So of alternatives, all or none should have a budget.
//
// Keys beyond the budget may be refused early, because they share what one key has, and
// are never granted more. A key that shared and becomes tracked starts fresh, so it may be
// granted one burst more than if it had been tracked from the beginning.
//
// A refused take of a key beyond the budget leaves no ID in the store, even one that the
// client gave, so that IDs are bounded too; a repeat of it is decided again.
//
// An act about the ID of a take lists its keys and their Overflow: keys may have become tracked
// since, and other instances track others. It changes the charges that the take had. So an act
// may have twice its charges, and an answer of the store for each.
type Layer struct {
	next   weir.Taker
	budget func(*weir.Charge) weir.KeyLimit
	now    func() int64 // µs
	limits limits
	logger *slog.Logger
}

// Wrap returns a Layer that asks next.
func Wrap(next weir.Taker, o Options) *Layer {
	return &Layer{next: next, budget: o.Budget, now: clock(o.Now), logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
}

// clock returns a clock in µs that no step of the machine's moves.
func clock(now func() time.Time) func() int64 {
	if now != nil {
		return func() int64 { return now().UnixMicro() }
	}
	start := time.Now()
	return func() int64 { return time.Since(start).Microseconds() }
}

// Take asks the next Taker, under overflow keys where there are too many keys.
func (l *Layer) Take(ctx context.Context, acts []*weir.Act) {
	if l.budget == nil {
		l.next.Take(ctx, acts)
		return
	}
	weir.TakeValid(ctx, acts, l.takeValid)
}

func (l *Layer) takeValid(ctx context.Context, acts []*weir.Act) {
	passed := acts // a copy once an act is moved
	var spreads map[int]*spread
	for i, a := range acts {
		moved := l.redirect(a)
		if aboutTake(a) && l.limited(a) {
			if spreads == nil {
				spreads = make(map[int]*spread)
			}
			spreads[i] = l.spread(a)
			moved = &spreads[i].Act
		}
		if moved != a {
			if &passed[0] == &acts[0] {
				passed = slices.Clone(acts)
			}
			passed[i] = moved
		}
	}
	l.next.Take(ctx, passed)
	for i, a := range acts {
		if a.Err = passed[i].Err; spreads[i] != nil {
			spreads[i].answer(a)
		}
	}
}

// limited reports whether a charge of the act has a budget.
func (l *Layer) limited(a *weir.Act) bool {
	return slices.ContainsFunc(a.Charges, func(c weir.Charge) bool { return l.budgetOf(&c).MaxKeys > 0 })
}

// redirect returns the act, or one whose charges that exceed their budgets stand under their
// overflow keys.
func (l *Layer) redirect(a *weir.Act) (moved *weir.Act) {
	if a.Kind == acts.KindReset || a.Kind == acts.KindRefund && a.ID == "" || aboutTake(a) {
		return a
	}
	m := move{act: a}
	for i := range a.Charges {
		charge := &a.Charges[i]
		budget := l.budgetOf(charge)
		if budget.MaxKeys <= 0 {
			continue
		}
		k := l.limits.of(budget.Overflow, charge.Limit, l.now())
		if !k.admit(charge.Key, budget.MaxKeys, makesState(a, charge)) {
			k.overflowed.Add(1)
			if !k.logged.Swap(true) {
				l.logger.Warn("a limit has reached its number of keys: further keys share one", "limit", charge.Limit.Name, "max_keys", budget.MaxKeys, "key", budget.Overflow)
			}
			m.charge(i, budget.Overflow)
		}
	}
	m.end()
	return m.act
}

// Tracks reports whether the key that begins with a prefix keeps its place under a limit with the
// budget b: its charges stay under it, and tracking it again would change nothing. The limit and
// the key are valid. It does not allocate for keys of the usual length.
func (l *Layer) Tracks(b weir.KeyLimit, limit *weir.Limit, prefix, key string) bool {
	if b.MaxKeys <= 0 {
		return true
	}
	k := l.limits.of(b.Overflow, limit, l.now())
	k.bound(min(b.MaxKeys, MaxKeys))
	var text [128]byte
	hash := maphash.Bytes(k.seed, append(append(text[:0], prefix...), key...))
	return k.shards[hash%shards].isRecent(hash)
}

// Overflows reports whether the limit of a charge has reached its number of keys.
func (l *Layer) Overflows(c *weir.Charge) bool {
	if l.budget == nil {
		return false
	}
	k := l.limits.list()[l.budgetOf(c).Overflow]
	return k != nil && k.logged.Load()
}

// budgetOf returns the budget of a charge; the zero value if it leaves no state.
func (l *Layer) budgetOf(c *weir.Charge) weir.KeyLimit {
	if !hasState(c) {
		return weir.KeyLimit{}
	}
	b := l.budget(c)
	b.MaxKeys = min(b.MaxKeys, MaxKeys)
	return b
}

// hasState reports whether a charge's key can have a state: the limit is valid and grants
// something.
func hasState(c *weir.Charge) bool {
	return c.Limit != nil && c.Limit.Rule() != nil && c.Limit.Count > 0 && len(c.Key) <= weir.MaxKeyBytes
}

// makesState reports whether a charge can give its key a state.
func makesState(a *weir.Act, c *weir.Charge) bool {
	return c.Cost > 0 && !a.Dry && (a.Kind == acts.KindTake || a.Kind == acts.KindRecord || a.Kind == acts.KindAmend)
}

// aboutTake reports whether an act is about an earlier take, by its ID.
func aboutTake(a *weir.Act) bool {
	switch a.Kind {
	case acts.KindRefund, acts.KindSettle, acts.KindRelease, acts.KindRenew:
		return a.ID != ""
	}
	return false
}

// Stats describe one budget.
type Stats struct {
	// KeyLimit is the budget as it was last asked for.
	weir.KeyLimit
	// Limit is the name of a limit that has it.
	Limit string
	// Keys is how many keys are tracked now.
	Keys int
	// Overflowed counts the charges made under Overflow.
	Overflowed uint64
}

// Full reports whether further keys share the Overflow.
func (s Stats) Full() bool { return s.Keys >= s.MaxKeys }

// Stats returns one element for each budget that has been used, by Overflow.
func (l *Layer) Stats() []Stats {
	now := l.now()
	var all []Stats
	for overflow, k := range l.limits.list() {
		k.age(now)
		all = append(all, Stats{
			KeyLimit: weir.KeyLimit{MaxKeys: int(k.most.Load()), Overflow: overflow}, Limit: k.limit,
			Keys: int(k.size.Load()), Overflowed: k.overflowed.Load(),
		})
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Overflow, b.Overflow) })
	return all
}
