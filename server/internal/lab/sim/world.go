package sim

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
)

// storeBytes lets no key of a scenario share its budget for want of memory.
const storeBytes = 16 << 30

// A world is the stores that a scenario's instances ask, at a clock that stands
// where the scenario puts it.
type world struct {
	now        int64 // µs since 1970
	start      int64
	rng        *rand.Rand // chooses instances
	keys       []string
	limit      *weir.Limit
	localShare *weir.Limit
	stores     []*memengine.Store // one, or one for each instance
	replicas   []*memengine.Store // one for each failover to come
	locals     []*memengine.Store // what each instance falls back on
	probe      *memengine.Store   // holds the first key alone
	faults     []Fault
	act        weir.Act
	acts       []*weir.Act
}

func newWorld(s *Scenario, limit weir.Limit) (*world, error) {
	w := &world{start: opening(limit.Period), rng: rand.New(rand.NewPCG(s.Seed, 2)), faults: s.Faults}
	var err error
	if w.limit, err = limit.Compile(); err != nil {
		return nil, err
	}
	if w.localShare, err = localShareOf(limit, s.instances()).Compile(); err != nil {
		return nil, err
	}
	w.now = w.start
	for i := range s.Keys {
		w.keys = append(w.keys, "user:"+strconv.Itoa(i))
	}
	w.stores = w.several(1)
	if s.LocalShares {
		w.stores, w.limit = w.several(s.instances()), w.localShare
	}
	for _, f := range s.Faults {
		if f.Kind == Failover {
			w.replicas = append(w.replicas, w.several(1)...)
		}
	}
	w.locals = w.several(s.instances())
	if s.Keys > 1 {
		w.probe = w.several(1)[0]
	}
	w.act = weir.Act{Charges: make([]weir.Charge, 1), Decisions: make([]weir.Decision, 1)}
	w.acts = []*weir.Act{&w.act}
	return w, nil
}

// opening is when scenarios begin: at the edge of a window.
func opening(period time.Duration) int64 {
	day := time.Date(2025, 6, 15, 0, 0, 0, 0, time.UTC).UnixMicro()
	return (day + period.Microseconds() - 1) / period.Microseconds() * period.Microseconds()
}

// localShareOf returns the local share of one of several instances.
func localShareOf(l weir.Limit, instances int) weir.Limit {
	n := int64(instances)
	if l.Count > 0 {
		l.Count = max(1, l.Count/n)
	}
	if l.Burst > 0 {
		l.Burst = max(1, l.Burst/n)
	}
	return l
}

func (w *world) several(n int) []*memengine.Store {
	all := make([]*memengine.Store, n)
	for i := range all {
		all[i] = memengine.New(memengine.Options{MaxBytes: storeBytes, Now: func() time.Time { return time.UnixMicro(w.now) }})
	}
	return all
}

// take asks for one unit of a key, at an instant of the scenario.
func (w *world) take(at int64, key int) weir.Decision {
	w.now = w.start + at
	if w.probe != nil && key == 0 {
		w.ask(w.probe, key, w.limit)
	}
	instance := 0
	if len(w.locals) > 1 {
		instance = w.rng.IntN(len(w.locals))
	}
	if len(w.stores) > 1 {
		return w.ask(w.stores[instance], key, w.limit)
	}
	f := w.fault(at)
	switch {
	case f == nil:
		for _, r := range w.replicas {
			w.ask(r, key, w.limit)
		}
	case f.Kind == Failover:
		// Lost: only the store that will fail is written.
	case f.Policy == AllowAll:
		return weir.Decision{Outcome: weir.Granted, Granted: 1}
	case f.Policy == DenyAll:
		// The length of the outage is unknown; a second is common.
		return weir.Decision{Outcome: weir.Refused, RetryAfter: time.Second}
	default:
		return w.ask(w.locals[instance], key, w.localShare)
	}
	return w.ask(w.stores[0], key, w.limit)
}

// fault is the one that is going on, if any. The writes before a failover are
// lost; with its end the replica takes over.
func (w *world) fault(at int64) *Fault {
	for len(w.faults) > 0 {
		f := &w.faults[0]
		begin, end := f.span()
		switch {
		case at < begin.Microseconds():
			return nil
		case at < end.Microseconds():
			return f
		case f.Kind == Failover:
			w.stores, w.replicas = w.replicas[:1:1], w.replicas[1:]
		}
		w.faults = w.faults[1:]
	}
	return nil
}

func (w *world) ask(store *memengine.Store, key int, limit *weir.Limit) weir.Decision {
	w.act.Charges[0] = weir.Charge{Key: w.keys[key], Limit: limit, Cost: 1}
	store.Take(context.Background(), w.acts)
	return w.act.Decisions[0]
}

// bytes is the memory of the first key.
func (w *world) bytes() int64 {
	store := w.probe
	if store == nil {
		store = w.stores[0]
	}
	if s := store.Stats(); s.Keys > 0 {
		return s.Bytes / int64(s.Keys)
	}
	return 0
}
