package storetest

import (
	"math/big"

	"github.com/weirlimit/weir"
)

// A Model is an algorithm by its definition, exact and slow, for one key. Instants are in µs
// since 1970 and do not go back.
type Model interface {
	// Used returns how many units count at an instant.
	Used(now int64) int64
	// Charge adds units, whether they fit or not.
	Charge(now, units int64)
}

// A Waiter is a Model of a limit that can be booked ahead.
type Waiter interface {
	Model
	// Until returns how long it takes, in µs, until no more than so many units count.
	Until(now, units int64) int64
}

// NewModel returns the model of a compiled limit of an algorithm that counts units.
func NewModel(l *weir.Limit) Model {
	period := l.Period.Microseconds()
	switch l.Algorithm {
	case weir.FixedWindow:
		if l.Anchor == weir.AnchorFirst {
			return &anchored{period: period}
		}
		return &events{counts: func(at, now int64) bool { return at/period == now/period }}
	case weir.SlidingLog:
		return &events{counts: func(at, now int64) bool { return at > now-period }}
	case weir.RollingWindow:
		width := (period + int64(l.Buckets) - 1) / int64(l.Buckets)
		return &events{counts: func(at, now int64) bool { return (at/width+1)*width > now-period }}
	case weir.SlidingCounter:
		return &weighed{period: period, windows: make(map[int64]int64)}
	case weir.TokenBucket:
		return &bucket{count: l.Count, period: period}
	case weir.GCRA, weir.LeakyBucket:
		return &drain{rate: big.NewRat(l.Count, period), level: new(big.Rat)}
	}
	panic("storetest: no model for " + l.Algorithm.String())
}

// events remembers every charge for ever.
type events struct {
	counts func(at, now int64) bool // does a charge made at `at` still count?
	all    [][2]int64               // instant, units
}

func (m *events) Used(now int64) int64 {
	used := int64(0)
	for _, e := range m.all {
		if m.counts(e[0], now) {
			used += e[1]
		}
	}
	return used
}

func (m *events) Charge(now, units int64) { m.all = append(m.all, [2]int64{now, units}) }

// anchored is a window opened by its first charge.
type anchored struct{ period, start, count int64 }

func (m *anchored) Used(now int64) int64 {
	if now >= m.start+m.period {
		return 0
	}
	return m.count
}

func (m *anchored) Charge(now, units int64) {
	if m.Used(now) == 0 {
		m.start, m.count = now, 0
	}
	m.count += units
}

// weighed counts the window before in proportion to the part of it that is less
// than a period ago, rounded up.
type weighed struct {
	period  int64
	windows map[int64]int64
}

func (m *weighed) Used(now int64) int64 {
	window, into := now/m.period, now%m.period
	share := new(big.Int).Mul(big.NewInt(m.windows[window-1]), big.NewInt(m.period-into))
	share.Add(share, big.NewInt(m.period-1))
	return m.windows[window] + share.Div(share, big.NewInt(m.period)).Int64()
}

func (m *weighed) Charge(now, units int64) { m.windows[now/m.period] += units }

// bucket gets count tokens back every period, from the charge on that took the
// first one.
type bucket struct{ count, period, taken, refilled int64 }

func (m *bucket) Used(now int64) int64 {
	for m.taken > 0 && now >= m.refilled+m.period {
		m.taken = max(0, m.taken-m.count)
		m.refilled += m.period
	}
	return m.taken
}

func (m *bucket) Charge(now, units int64) {
	if m.Used(now) == 0 {
		m.refilled = now
	}
	m.taken += units
}

func (m *bucket) Until(now, units int64) int64 {
	wait := int64(0)
	for taken := m.Used(now); taken > units; taken -= m.count {
		wait += m.period
	}
	return max(0, m.refilled+wait-now)
}

// drain is a level that sinks continuously.
type drain struct {
	rate  *big.Rat // units a µs
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

func (m *drain) Used(now int64) int64 {
	m.sink(now)
	return ceil(m.level)
}

func (m *drain) Charge(now, units int64) {
	m.sink(now)
	m.level.Add(m.level, big.NewRat(units, 1))
}

func (m *drain) Until(now, units int64) int64 {
	m.sink(now)
	over := new(big.Rat).Sub(m.level, big.NewRat(units, 1))
	return max(0, ceil(over.Quo(over, m.rate)))
}

func ceil(r *big.Rat) int64 {
	up := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return up.Div(up, r.Denom()).Int64()
}
