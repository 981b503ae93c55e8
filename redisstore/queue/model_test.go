package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore/queue"
)

// A model is what a queue should be: slices in memory, and limits in a memory
// store, by the same clock.
type model struct {
	options queue.Options
	limits  *memstore.Store
	clock   *storetest.Clock
	waiting []string
	flying  []flight
	answers map[string]queue.Pushed // of pushes with ids
	bodies  map[string]string
}

// A flight is an item that was given to a consumer.
type flight struct {
	body    string
	attempt int64
	till    int64
}

// charge asks the model's limit. Whatever the queue charges shows in what remains
// at the next charge, so it is called only where the queue has to charge.
func (m *model) charge(l *weir.Limit, key string) weir.Decision {
	if l == nil {
		return weir.Decision{Outcome: weir.Granted}
	}
	compiled := l.MustCompile()
	act := &weir.Act{
		Immediate: true, Charges: []weir.Charge{{Key: key, Limit: compiled, Cost: 1}},
		Decisions: make([]weir.Decision, 1),
	}
	m.limits.Take(context.Background(), []*weir.Act{act})
	return act.Decisions[0]
}

func (m *model) push(body, id string) (queue.Pushed, error) {
	if known, seen := m.bodies[id]; id != "" && seen {
		if known != body {
			return queue.Pushed{}, weir.ErrIDReused
		}
		return m.answers[id], nil
	}
	p := m.pushOnce(body)
	if id != "" {
		m.answers[id], m.bodies[id] = p, body
	}
	return p, nil
}

func (m *model) pushOnce(body string) queue.Pushed {
	n := int64(len(m.waiting))
	full := m.options.MaxLen > 0 && n >= m.options.MaxLen
	if full && m.options.AtLimit == queue.Refuse {
		return queue.Pushed{Full: true, Waiting: n}
	}
	d := m.charge(m.options.Push, "push")
	limited, drop := full || !d.Allowed(), int64(0)
	switch {
	case limited && m.options.AtLimit == queue.Refuse, limited && m.options.AtLimit == queue.DropOldest && n == 0:
		return queue.Pushed{Decision: d, Waiting: n}
	case limited && m.options.AtLimit == queue.DropOldest:
		drop = 1
	case limited:
		drop = max(0, n+1-m.options.TrimTo)
	}
	p := queue.Pushed{Pushed: true, Decision: d, Waiting: n + 1 - drop}
	for _, old := range m.waiting[:drop] {
		p.Dropped = append(p.Dropped, []byte(old))
	}
	m.waiting = append(m.waiting[drop:], body)
	return p
}

// pop returns what should be delivered; an empty body for nothing.
func (m *model) pop() (flight, weir.Decision) {
	oldest := -1
	for i, f := range m.flying {
		if f.till <= m.clock.Micros() && (oldest < 0 || f.till < m.flying[oldest].till) {
			oldest = i
		}
	}
	if oldest < 0 && len(m.waiting) == 0 {
		return flight{}, weir.Decision{}
	}
	d := m.charge(m.options.Pop, "pop")
	if !d.Allowed() {
		return flight{}, d
	}
	if oldest < 0 {
		m.flying = append(m.flying, flight{body: m.waiting[0]})
		m.waiting = m.waiting[1:]
		oldest = len(m.flying) - 1
	}
	f := &m.flying[oldest]
	f.attempt++
	f.till = m.clock.Micros() + m.options.Lease.Microseconds()
	return *f, d
}

// end acknowledges or extends a delivery and returns the error of that.
func (m *model) end(item *queue.Item, extend time.Duration) error {
	i := slices.IndexFunc(m.flying, func(f flight) bool { return f.body == string(item.Body) })
	switch {
	case i < 0 && extend > 0, i >= 0 && m.flying[i].attempt != item.Attempt:
		return queue.ErrLeaseLost
	case i >= 0 && extend > 0:
		m.flying[i].till = m.clock.Micros() + extend.Microseconds()
	case i >= 0:
		m.flying = slices.Delete(m.flying, i, i+1)
	}
	return nil
}

// A run compares a queue with the model, operation by operation.
type run struct {
	err   error // the first difference
	rng   *rand.Rand
	place *place
	queue *queue.Queue
	model *model
	items []*queue.Item
	ids   []string
	steps int
}

func (r *run) equal(what string, got, want any) {
	if d := cmp.Diff(want, got); d != "" && r.err == nil {
		r.err = fmt.Errorf("step %d, %s: %s", r.steps, what, d)
	}
}

func (r *run) sameError(what string, got, want error) {
	if !errors.Is(got, want) && r.err == nil {
		r.err = fmt.Errorf("step %d, %s: %v, want %v", r.steps, what, got, want)
	}
}

func (r *run) push() {
	body, id := fmt.Sprint("item ", r.steps), ""
	switch n := len(r.ids); r.rng.IntN(4) {
	case 0:
		id = fmt.Sprint("id ", r.steps)
		r.ids = append(r.ids, id)
	case 1:
		if n == 0 {
			break
		}
		id = r.ids[max(0, n-1-r.rng.IntN(4))]
		if r.rng.IntN(3) > 0 {
			body = r.model.bodies[id]
		}
	}
	got, err := r.queue.Push(background, queue.Entry{Body: []byte(body), ID: id})
	want, wantErr := r.model.push(body, id)
	r.sameError("push", err, wantErr)
	r.equal("push", got, want)
}

func (r *run) pop() {
	item, d, err := r.queue.Pop(background)
	want, wantDecision := r.model.pop()
	r.sameError("pop", err, nil)
	r.equal("pop", d, wantDecision)
	if item == nil {
		r.equal("pop", flight{}.body, want.body)
		return
	}
	r.equal("item", fmt.Sprint(string(item.Body), item.Attempt, item.Until.UnixMicro()), fmt.Sprint(want.body, want.attempt, want.till))
	r.items = append(r.items, item)
}

func (r *run) end(extend time.Duration) {
	if len(r.items) == 0 {
		return
	}
	item := r.items[max(0, len(r.items)-1-r.rng.IntN(6))]
	want := r.model.end(item, extend)
	if extend > 0 {
		r.sameError("extend", item.Extend(background, extend), want)
		return
	}
	r.sameError("ack", item.Ack(background), want)
}

func (r *run) step() {
	r.place.clock.Advance(time.Duration(1+r.rng.IntN(40_001)) * time.Microsecond)
	switch n := r.rng.IntN(10); {
	case n < 4:
		r.push()
	case n < 7:
		r.pop()
	case n < 9:
		r.end(0)
	default:
		r.end(time.Duration(1+r.rng.IntN(1_000_003)) * time.Microsecond)
	}
	waiting, leased, err := r.queue.Len(background)
	r.sameError("len", err, nil)
	r.equal("length", []int64{waiting, leased}, []int64{int64(len(r.model.waiting)), int64(len(r.model.flying))})
}

// history makes a queue and drives it with a random history, by a script that may
// have been changed.
func history(p *place, o queue.Options, seed uint64, steps int, mutate func(string) string) error {
	q, err := queue.New(p.store, o)
	if err != nil {
		return err
	}
	r := &run{rng: rand.New(rand.NewPCG(seed, 1)), place: p, queue: q.Mutant(p.clock.Micros, mutate), model: &model{
		options: o, clock: p.clock, limits: memstore.New(memstore.Options{Now: p.clock.Now}),
		answers: map[string]queue.Pushed{}, bodies: map[string]string{},
	}}
	for r.steps = 0; r.steps < steps && r.err == nil; r.steps++ {
		r.step()
	}
	return r.err
}

const historySteps = 200

var choices = []queue.Options{
	{AtLimit: queue.Refuse},
	{AtLimit: queue.Refuse, MaxLen: 4},
	{AtLimit: queue.DropOldest},
	{AtLimit: queue.DropOldest, MaxLen: 4},
	{AtLimit: queue.Trim, TrimTo: 3},
	{AtLimit: queue.Trim, MaxLen: 5, TrimTo: 2},
}

func same(text string) string { return text }

// histories drives a queue of each kind of choice.
func histories(p *place, kind queue.Kind, algorithm weir.Algorithm, steps int, mutate func(string) string) error {
	for i, o := range choices {
		o.Key, o.Kind, o.Lease = fmt.Sprint(p.t.Name(), i), kind, 300*time.Millisecond
		// Few pushes and many pops, so that queues run empty, or the other way
		// round.
		o.Push = &weir.Limit{Algorithm: algorithm, Count: 2, Period: 500 * time.Millisecond}
		if o.MaxLen > 0 {
			o.Push.Count = 5
			o.Pop = &weir.Limit{Algorithm: algorithm, Count: 7, Period: time.Second}
		}
		if err := history(p, o, uint64(i), steps, mutate); err != nil {
			return fmt.Errorf("choice %d: %w", i, err)
		}
	}
	return nil
}

// TestEveryStepIsAsTheModelSays drives queues with random histories. Decisions
// are compared in full, so that after any number of steps the limits have been
// charged for just the pushes and pops that they granted. Under -short, the histories are
// shorter.
func TestEveryStepIsAsTheModelSays(t *testing.T) {
	t.Parallel()
	steps := historySteps
	if testing.Short() {
		steps /= 4
	}
	address := testserver.StartRedis(t).Addr()
	for id := range algo.Steps {
		if weir.Algorithm(id) == weir.Concurrency {
			continue
		}
		for name, kind := range kinds {
			t.Run(weir.Algorithm(id).String()+" "+name, func(t *testing.T) {
				t.Parallel()
				if err := histories(newPlace(t, address), kind, weir.Algorithm(id), steps, same); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestTheModelFindsMutants shows that the histories notice mistakes that one could
// make in the Lua.
func TestTheModelFindsMutants(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	for name, change := range map[string]struct {
		old, with string
		kind      queue.Kind
	}{
		"a full queue is pushed to":          {"if full and choice == CHOICE.refuse then", "if false then", queue.List},
		"one item too many waits":            {"waiting - longest + 1", "waiting - longest", queue.List},
		"trimmed to one too many":            {"waiting + 1 - trimmed", "waiting - trimmed", queue.List},
		"what is dropped stays in a list":    {"call('LTRIM', QUEUE, drop, -1)", "", queue.List},
		"what is dropped stays in a stream":  {"call('XDEL', QUEUE, spread(dropped_ids))", "", queue.Stream},
		"pushed where nothing could drop":    {"if not granted and choice ~= CHOICE.trim and drop == 0 then", "if not granted and choice == CHOICE.refuse then", queue.List},
		"any body under an id":               {"string.sub(known, 1, 16) ~= fingerprint", "false", queue.List},
		"an id is not remembered":            {"call('SET', RECORD, fingerprint .. table.concat(reply), 'PX', record_life)", "", queue.Stream},
		"a full queue's answer is forgotten": {"call('SET', RECORD, fingerprint .. whole(STATUS.full), 'PX', record_life)", "", queue.List},
		"deliveries are not counted":         {"attempt = unpack('>I4', held) + 1", "attempt = unpack('>I4', held)", queue.List},
		"any consumer acknowledges":          {"unpack('>I4', held) ~= attempt", "false", queue.Stream},
		"a lease is never over":              {"'-inf', exact(now)", "'-inf', 0", queue.List},
		"a lease stays when acknowledged":    {"call('ZREM', LEASES, id)\n", "", queue.List},
		"an acknowledged entry stays":        {"call('XDEL', QUEUE, id)", "", queue.Stream},
		"a leased entry is new again":        {"call('HSET', LEASED, '', id)", "", queue.Stream},
		"a refused pop takes an item":        {"  if not granted then\n    status = STATUS.refused\n  else\n", "  do\n", queue.List},
		"an extension takes nothing":         {"elseif op == OP.extend then\n  call('ZADD', LEASES, exact(till), id)", "elseif op == OP.extend then", queue.List},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := histories(newPlace(t, address), change.kind, weir.GCRA, historySteps, func(text string) string {
				if !strings.Contains(text, change.old) {
					t.Fatalf("the script has no %q", change.old)
				}
				return strings.ReplaceAll(text, change.old, change.with)
			})
			if err == nil {
				t.Error("not noticed")
			}
		})
	}
}
