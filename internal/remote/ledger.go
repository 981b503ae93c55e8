package remote

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weirlimit/weir"
)

// A ledger is what is owed to one node of the store: units of budgets, and acts about IDs, in
// order. Its lock is the only one between decisions that are made here and calls of the node:
// both a local decision and a payment of a debt happen under it, and nobody waits for the store
// under it.
type ledger struct {
	node string
	all  *ledgers
	// size counts debts, and those that hold the lock or wait for it: a caller that reads 0
	// misses no decision in progress.
	size atomic.Int64
	// running is set while the background pays, and is changed with mu locked.
	running atomic.Bool

	mu      sync.Mutex // guards what follows
	budgets map[budget]*balance
	ids     map[idName]*entry
	byKey   map[string]map[*entry]struct{} // takes that were granted here, by key
	refunds int
	// withdrawals wait to be sent; withdrawing are in flight. Nothing waits for them.
	withdrawals []withdrawal
	withdrawing int
	refused     bool          // the last withdrawal was not applied: the background repeats them
	done        chan struct{} // closed when the background has ended; nil before it begins
}

// ledgers are those of all nodes.
type ledgers struct {
	most        int // budgets, IDs, refunds and withdrawals of each, separately
	outstanding atomic.Int64
	bytes       atomic.Int64

	number atomic.Int32
	nodes  sync.Map // of *ledger by name
	first  atomic.Pointer[ledger]
	moved  atomic.Pointer[[]*ledger]
}

// maxLedgers bounds how many nodes are told apart: only a cluster that changes its members for ever
// comes near it.
const maxLedgers = 1024

// minBytes and bytesPerKey bound the memory of all debts.
const minBytes, bytesPerKey = 1 << 20, 1 << 10

func newLedgers(most int) *ledgers {
	l := &ledgers{most: most}
	l.moved.Store(new([]*ledger))
	return l
}

// of returns the ledger of a node.
func (all *ledgers) of(node string) *ledger {
	// Most stores have one, and a map's hash costs more than a comparison.
	if l := all.first.Load(); l != nil && l.node == node {
		return l
	}
	if l, found := all.nodes.Load(node); found {
		return l.(*ledger)
	}
	if node != "" && all.number.Load() >= maxLedgers {
		return all.of("")
	}
	all.number.Add(1)
	l := &ledger{
		node: node, all: all, budgets: map[budget]*balance{}, ids: map[idName]*entry{},
		byKey: map[string]map[*entry]struct{}{},
	}
	known, found := all.nodes.LoadOrStore(node, l)
	l = known.(*ledger)
	if all.first.CompareAndSwap(nil, l); !found && node == "" {
		// A cluster's keys have this node until the cluster is known.
		all.noteMoved(l)
	}
	return l
}

// each calls f for every ledger.
func (all *ledgers) each(f func(*ledger)) {
	all.nodes.Range(func(_, l any) bool {
		f(l.(*ledger))
		return true
	})
}

// noteMoved notes that a ledger has debts about keys that another node has now: acts about any key
// look into it.
func (all *ledgers) noteMoved(l *ledger) {
	for {
		known := all.moved.Load()
		if slices.Contains(*known, l) {
			return
		}
		more := append(slices.Clone(*known), l)
		if all.moved.CompareAndSwap(known, &more) {
			return
		}
	}
}

func (l *ledger) lock() {
	l.add(1)
	l.mu.Lock()
}

func (l *ledger) unlock() {
	l.mu.Unlock()
	l.add(-1)
}

// add counts debts.
func (l *ledger) add(debts int64) {
	l.size.Add(debts)
	l.all.outstanding.Add(debts)
}

// empty reports whether nothing is owed, and nothing is being decided here.
func (l *ledger) empty() bool { return l.size.Load() == 0 }

// room reports whether a debt of a kind, of which there are so many, has room.
func (l *ledger) room(debts int) bool {
	return debts < l.all.most && l.all.bytes.Load() < max(minBytes, bytesPerKey*int64(l.all.most))
}

// charge counts the memory of debts, which is freed with a negative number.
func (l *ledger) charge(bytes int) { l.all.bytes.Add(int64(bytes)) }

// actBytes is about how much memory a copy of an act takes.
func actBytes(a *weir.Act) int {
	n := int(unsafe.Sizeof(*a)) + len(a.ID) + len(a.Scope.Owner) + len(a.Scope.Asks)
	for i := range a.Charges {
		n += int(unsafe.Sizeof(a.Charges[i])+unsafe.Sizeof(a.Decisions[i])) + len(a.Charges[i].Key) + len(a.Charges[i].HashTag)
	}
	return n
}

// outstanding counts what is owed: budgets, IDs and withdrawals.
func (l *ledger) outstanding() (all, withdrawals int) {
	l.lock()
	defer l.unlock()
	withdrawals = len(l.withdrawals) + l.withdrawing
	return len(l.budgets) + len(l.ids) + withdrawals, withdrawals
}
