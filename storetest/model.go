package storetest

import (
	"math/big"

	"github.com/weirlimit/weir"
)

// A model is an algorithm by its definition, exact and slow: the judge of the
// properties.
type model interface {
	// room is how many units fit at an instant.
	room(now int64) int64
	// charge adds units, whether they fit or not.
	charge(now, units int64)
}

func newModel(l *weir.Limit) model {
	period := l.Period.Microseconds()
	switch l.Algorithm {
	case weir.FixedWindow:
		if l.Anchor == weir.AnchorFirst {
			return &anchored{count: l.Count, period: period}
		}
		return &events{count: l.Count, counts: func(at, now int64) bool { return at/period == now/period }}
	case weir.SlidingLog:
		return &events{count: l.Count, counts: func(at, now int64) bool { return at > now-period }}
	case weir.RollingWindow:
		width := (period + int64(l.Buckets) - 1) / int64(l.Buckets)
		return &events{count: l.Count, counts: func(at, now int64) bool { return (at/width+1)*width > now-period }}
	case weir.TokenBucket:
		return &bucket{count: l.Count, period: period, burst: l.Burst, tokens: l.Burst}
	case weir.GCRA:
		return &drain{rate: big.NewRat(l.Count, period), burst: l.Burst, level: new(big.Rat)}
	}
	panic("storetest: no model for " + l.Algorithm.String())
}

// events remembers every charge for ever.
type events struct {
	count  int64
	counts func(at, now int64) bool // does a charge made at `at` still count?
	all    [][2]int64               // instant, units
}

func (m *events) room(now int64) int64 {
	used := int64(0)
	for _, e := range m.all {
		if m.counts(e[0], now) {
			used += e[1]
		}
	}
	return max(0, m.count-used)
}

func (m *events) charge(now, units int64) { m.all = append(m.all, [2]int64{now, units}) }

// anchored is a window opened by its first charge.
type anchored struct{ count, period, start, used int64 }

func (m *anchored) room(now int64) int64 {
	if m.used == 0 || now >= m.start+m.period {
		return m.count
	}
	return max(0, m.count-m.used)
}

func (m *anchored) charge(now, units int64) {
	if m.used == 0 || now >= m.start+m.period {
		m.start, m.used = now, 0
	}
	m.used += units
}

// bucket gets count tokens every period, from the charge on that left it less
// than full.
type bucket struct{ count, period, burst, tokens, refilled int64 }

func (m *bucket) room(now int64) int64 {
	for m.tokens < m.burst && now >= m.refilled+m.period {
		m.tokens = min(m.burst, m.tokens+m.count)
		m.refilled += m.period
	}
	return m.tokens
}

func (m *bucket) charge(now, units int64) {
	if m.room(now) == m.burst {
		m.refilled = now
	}
	m.tokens -= units
}

// drain is a level that sinks continuously.
type drain struct {
	rate  *big.Rat // units a µs
	burst int64
	level *big.Rat
	at    int64
}

func (m *drain) sink(now int64) {
	gone := new(big.Rat).Mul(m.rate, big.NewRat(now-m.at, 1))
	m.level.Sub(m.level, gone)
	if m.level.Sign() < 0 {
		m.level.SetInt64(0)
	}
	m.at = now
}

func (m *drain) room(now int64) int64 {
	m.sink(now)
	free := new(big.Rat).Sub(big.NewRat(m.burst, 1), m.level)
	return new(big.Int).Div(free.Num(), free.Denom()).Int64()
}

func (m *drain) charge(now, units int64) {
	m.sink(now)
	m.level.Add(m.level, big.NewRat(units, 1))
}
