package storetest

import (
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// blocking is one limit of 10 per 10 s for each algorithm that blocks keys for a minute.
func blocking() []*weir.Limit {
	var all []*weir.Limit
	for _, l := range limits() {
		if !algo.TraitsOf(l.Algorithm).HoldsSlots {
			own := *l
			own.Block = time.Minute
			all = append(all, own.MustCompile())
		}
	}
	return all
}

// blockLasts: what the refusal tells is how long the key stays refused, whatever its limit has
// room for.
func blockLasts(b *bench) {
	for _, l := range blocking() {
		b.granted("blocked", l, 10)
		b.granted("other", l, 10)
		if d := b.charge("blocked", l, 1); !d.Blocked || d.RetryAfter != time.Minute || d.Remaining != 0 {
			b.Errorf("%v: the refusal says %v", l, d)
		}
		b.clock.Advance(30 * time.Second)
		if d := b.charge("other", l, 1); !d.Allowed() {
			b.Errorf("%v: another key is refused: %v", l, d)
		}
		if d := b.charge("blocked", l, 0); !d.Allowed() || d.Remaining != 0 || d.ResetAfter != 30*time.Second {
			b.Errorf("%v: a peek says %v", l, d)
		}
		for range 2 {
			if d := b.charge("blocked", l, 1); !d.Blocked || d.RetryAfter != 30*time.Second {
				b.Errorf("%v: half of the block later: %v", l, d)
			}
		}
		b.clock.Advance(30*time.Second - time.Microsecond)
		if d := b.charge("blocked", l, 1); !d.Blocked || d.RetryAfter != time.Microsecond {
			b.Errorf("%v: a microsecond before its end: %v", l, d)
		}
		b.clock.Advance(time.Microsecond)
		if n := b.granted("blocked", l, 10); n != 10 {
			b.Errorf("%v: %d of 10 are granted after the block", l, n)
		}
	}
}

// blockBegins: only a refusal by the limit itself begins a block.
func blockBegins(b *bench) {
	small := weir.PerHour(1).MustCompile()
	for i, l := range blocking() {
		charge := func(key string, limit *weir.Limit, cost int64) weir.Charge {
			return weir.Charge{Key: key + string(rune('a'+i)), HashTag: "begins", Limit: limit, Cost: cost}
		}
		try := func(what string, a *weir.Act) {
			b.Helper()
			b.take(a)
			if a.Allowed() {
				b.Errorf("%v: %s: granted", l, what)
			}
			peek := NewAct(charge("key", l, 0))
			if b.take(peek); peek.Decisions[0].Remaining != 9 {
				b.Errorf("%v: %s: %v", l, what, peek.Decisions[0])
			}
		}
		b.take(NewAct(charge("key", l, 1), charge("small", small, 1)))
		try("another limit refuses", NewAct(charge("key", l, 1), charge("small", small, 1)))
		try("more than the capacity", NewAct(charge("key", l, 11)))
		keeps := NewAct(charge("key", l, 5))
		keeps.Charges[0].Keep = 5
		try("other callers may have what is kept", keeps)
		dry := NewAct(charge("key", l, 10))
		dry.Dry = true
		try("a dry run", dry)

		b.take(NewAct(charge("else", l, 1)))
		either := NewAct(charge("else", l, 10), charge("other", l, 10))
		either.Charges[1].Alt = 1
		if b.take(either); !either.Allowed() {
			b.Errorf("%v: no alternative is granted: %v", l, either.Decisions)
		}
		peek := NewAct(charge("else", l, 0))
		if b.take(peek); peek.Decisions[0].Remaining != 9 {
			b.Errorf("%v: another alternative was granted: %v", l, peek.Decisions[0])
		}
		b.take(either)
		for _, d := range either.Decisions {
			if !d.Blocked || d.RetryAfter != time.Minute {
				b.Errorf("%v: no alternative has room: %v", l, either.Decisions)
			}
		}
	}
}

// blockEnds: a reset ends a block, and a record may begin one.
func blockEnds(b *bench) {
	for _, l := range blocking() {
		b.granted("key", l, 11)
		reset := NewAct(weir.Charge{Key: "key", Limit: l})
		reset.Kind = acts.KindReset
		b.take(reset)
		if n := b.granted("key", l, 10); n != 10 {
			b.Errorf("%v: %d of 10 are granted after a reset", l, n)
		}
		record := NewAct(weir.Charge{Key: "recorded", Limit: l, Block: 20 * time.Second})
		record.Kind = acts.KindRecord
		b.take(record)
		if d := b.charge("recorded", l, 1); !d.Blocked || d.RetryAfter != 20*time.Second {
			b.Errorf("%v: after the record of a block: %v", l, d)
		}
		b.clock.Advance(20 * time.Second)
		if d := b.charge("recorded", l, 1); !d.Allowed() {
			b.Errorf("%v: after its end: %v", l, d)
		}
	}
}

// blockedOnce: a repeat of the take that began a block gets its answer.
func blockedOnce(b *bench) {
	l := weir.Limit{Count: 10, Period: 10 * time.Second, Block: time.Minute}.MustCompile()
	take := func(id string, cost int64) *weir.Act {
		a := NewAct(weir.Charge{Key: "once", Limit: l, Cost: cost})
		a.ID, a.Scope.Owner = id, "owner"
		b.take(a)
		return a
	}
	hold, first := take("hold", 10), take("refused", 1)
	b.clock.Advance(5 * time.Second)
	if again := take("refused", 1); !again.Decisions[0].Blocked || again.Decisions[0].RetryAfter != first.Decisions[0].RetryAfter {
		b.Errorf("the first answer was %v, the repeat gets %v", first.Decisions[0], again.Decisions[0])
	}
	hold.Kind = acts.KindRelease
	if b.take(hold); hold.Decisions[0].Granted == 0 || hold.Decisions[0].Remaining != 0 {
		b.Errorf("a release of what a blocked key holds: %v", hold.Decisions[0])
	}
	if d := b.charge("once", l, 1); d.RetryAfter != 55*time.Second {
		b.Errorf("after the release: %v", d)
	}
}
