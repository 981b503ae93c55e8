package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/storetest"
)

// counted and scarce are the limits of virtual worlds: a budget that nobody exhausts, and one that
// is spent at once.
var (
	counted = &subject{"book", limit(ledger), book}
	scarce  = &subject{"spent", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 300, Period: decades}), spent}
)

// How long a virtual world lasts, and how long they may take altogether in a full run.
const (
	virtualHour = time.Hour
	virtualRuns = time.Minute
)

// TestVirtualWorlds lets instances live through an hour of faults in a moment: time is
// virtual, and a seed makes who asks when and what happens to the store.
func TestVirtualWorlds(t *testing.T) {
	t.Parallel()
	begun, worlds, acts, away := time.Now(), 0, 0, 0
	for ; worlds < 5 || *full && time.Since(begun) < virtualRuns; worlds++ {
		v := &virtual{rng: rand.New(rand.NewPCG(*seed, uint64(worlds))), forgets: worlds%2 == 1}
		synctest.Test(t, v.live)
		if err := v.judge(); err != nil {
			t.Errorf("seed %d, world %d: %v", *seed, worlds, err)
		}
		acts, away = acts+len(v.history.ops), away+v.troubles
	}
	r := row{
		fault:    fmt.Sprintf("%d virtual worlds of an hour, seed %d", worlds, *seed),
		promise:  "at most the limit and all shares, once more where it was forgotten; what is granted is charged",
		measured: fmt.Sprintf("%d acts, %d faults, in %v", acts, away, time.Since(begun).Round(100*time.Millisecond)),
	}
	if t.Failed() || away == 0 {
		r.fail(t, "see above")
	}
	report(r)
}

// TestVirtualMutant shows that a store which is not told what was granted is noticed.
func TestVirtualMutant(t *testing.T) {
	t.Parallel()
	v := &virtual{rng: rand.New(rand.NewPCG(*seed, 0)), untold: true}
	synctest.Test(t, v.live)
	err := v.judge()
	r := row{fault: "mutant: a virtual store is not told", promise: "the books are red", measured: fmt.Sprint(err)}
	if err == nil {
		r.fail(t, "not noticed")
	}
	report(r)
}

// A trouble is what a virtual store does with what it is asked.
type trouble uint8

const (
	well    trouble = iota
	refuses         // at once, and nothing is done
	hangs           // until the caller gives up, and nothing is done
	drops           // does it, and the answer is lost
	slows           // does it, now and then too late
	troubles
)

// A virtual world is instances on a store in memory that has its troubles.
type virtual struct {
	rng      *rand.Rand
	forgets  bool // now and then
	untold   bool // a mutant: what is charged back does not reach the store
	history  *history
	troubles int
	all      []*remote.Remote
	used     int64 // in the end

	mu    sync.Mutex
	store *memstore.Store
	now   trouble
}

func (v *virtual) become(now trouble, store *memstore.Store) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now, v.store = now, store
}

func (v *virtual) is() (trouble, *memstore.Store) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now, v.store
}

// live is an hour of it.
func (v *virtual) live(t *testing.T) {
	v.history, v.store = newHistory(), memstore.New(memstore.Options{Now: time.Now})
	ctx, enough := context.WithCancel(context.Background())
	var living sync.WaitGroup
	for range instances {
		v.all = append(v.all, remote.New(storetest.Alone{Taker: acts.TakerFunc(v.take)}, remote.Options{
			Calls:     remote.CallOptions{Responsive: func() bool { return true }},
			Instances: func() int { return instances },
		}))
	}
	for n := range instances * 2 {
		rng := rand.New(rand.NewPCG(v.rng.Uint64(), uint64(n)))
		living.Go(func() { v.asks(ctx, n, rng) })
	}
	for end := time.Now().Add(virtualHour); time.Now().Before(end); {
		time.Sleep(time.Duration(v.rng.Int64N(int64(4 * time.Minute))))
		v.suffer()
	}
	time.Sleep(10 * time.Second) // for what is to be charged back
	enough()
	living.Wait()
	for _, f := range v.all {
		if err := f.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	look := v.history.ask(context.Background(), v.store, op{subject: counted, key: counted.name})
	v.used = ledger.Count - look.Remaining
}

// suffer is one time of trouble, after which the store may be empty.
func (v *virtual) suffer() {
	v.troubles++
	_, store := v.is()
	v.become(1+trouble(v.rng.IntN(int(troubles)-1)), store)
	time.Sleep(time.Duration(v.rng.Int64N(int64(30 * time.Second))))
	if v.forgets && v.rng.IntN(4) == 0 {
		v.history.lose()
		store = memstore.New(memstore.Options{Now: time.Now})
	}
	v.become(well, store)
}

func (v *virtual) take(ctx context.Context, all []*weir.Act) {
	time.Sleep(300 * time.Microsecond) // there and back
	fail := func(class error) {
		for _, a := range all {
			a.Err = class
		}
	}
	now, store := v.is()
	switch now {
	case refuses:
		fail(weir.ErrNotApplied)
		return
	case hangs:
		<-ctx.Done()
		fail(fmt.Errorf("%w: %w", weir.ErrAmbiguous, ctx.Err()))
		return
	case slows:
		time.Sleep(time.Duration(all[0].Charges[0].Cost) * 5 * time.Millisecond)
	}
	if v.untold && all[0].Kind == acts.KindRecord {
		return
	}
	store.Take(ctx, all)
	if now == drops || ctx.Err() != nil {
		fail(weir.ErrAmbiguous)
	}
}

// asks is a caller, of a budget that is spent and of one that is counted.
func (v *virtual) asks(ctx context.Context, number int, rng *rand.Rand) {
	for ctx.Err() == nil {
		s := []*subject{counted, scarce}[rng.IntN(2)]
		v.history.note(v.history.ask(context.Background(), v.all[number%instances], op{caller: number, subject: s, key: s.name, cost: 1 + rng.Int64N(3)}))
		pause(ctx, time.Duration(rng.Int64N(int64(2*time.Second))))
	}
}

// judge holds what was granted against the limit, and against what is charged.
func (v *virtual) judge() error {
	budget := scarce.limit.Count
	if granted, _ := v.history.charged(scarce.name); granted > budget*(2+v.history.losses) {
		return fmt.Errorf("%d granted of %d, forgotten %d times", granted, budget, v.history.losses)
	}
	doubtful := int64(0)
	for _, f := range v.all {
		doubtful += f.Stats().Doubtful
	}
	known, perhaps := v.history.charged(counted.name)
	if used := v.used; used > known+perhaps || used < known-doubtful && v.history.losses == 0 {
		return fmt.Errorf("%d charged; %d granted, perhaps %d more, %d in doubt", used, known, perhaps, doubtful)
	}
	return nil
}
