// Package topk finds the most frequent of any number of keys in bounded memory.
package topk

import "hash/maphash"

// A Counter counts keys by the algorithm Filtered Space-Saving of Homem and Carvalho
// ("Finding top-k elements in data streams", Information Sciences 180, 2010). Keys that are
// not kept are counted together in cells, by their hash. A key whose cell would exceed the
// smallest count of those kept replaces that one, and inherits what its cell had as its
// possible error. So a key with more than a most-th of all counts is always among those
// kept, and the many keys of a long tail cost little. A Counter is not safe for concurrent
// use.
type Counter[T any] struct {
	most    int
	dropped bool
	byName  map[string]*Key[T]
	heap    []*Key[T] // the smallest count first
	seed    maphash.Seed
	cells   []uint64 // nil until a key is not kept; each is at least the count of any such key
}

// cellsPerKey is how many cells there are for each key that is kept. With more of them fewer
// keys of a long tail are kept for a moment.
const cellsPerKey = 8

// A Key is one of the keys that are kept.
type Key[T any] struct {
	Name string
	// Count is too large by at most Error.
	Count, Error uint64
	// Value is the caller's. It is zero when the key begins to be kept.
	Value T
	at    int // place in the heap
}

// New returns a Counter that keeps that many keys.
func New[T any](most int) *Counter[T] {
	return &Counter[T]{most: most, seed: maphash.MakeSeed(), byName: make(map[string]*Key[T], min(most, 64))}
}

// Add adds n to a key's count and returns the key, which is valid until the next Add; nil if
// it is not kept. The counter keeps the name.
func (c *Counter[T]) Add(name string, n uint64) *Key[T] {
	k := c.byName[name]
	switch {
	case k != nil:
		k.Count += n
	case len(c.heap) < c.most:
		k = &Key[T]{Name: name, Count: n, at: len(c.heap)}
		c.heap = append(c.heap, k)
		c.byName[name] = k
		c.up(k)
		return k
	default:
		if k = c.replace(name, n); k == nil {
			return nil
		}
	}
	c.down(k)
	return k
}

// replace counts a key that is not kept. If it has to be, it replaces the one with the
// smallest count.
func (c *Counter[T]) replace(name string, n uint64) *Key[T] {
	c.dropped = true
	if c.cells == nil {
		c.cells = make([]uint64, cellsPerKey*c.most)
	}
	k, cell := c.heap[0], c.cell(name)
	if *cell+n <= k.Count {
		*cell += n
		return nil
	}
	delete(c.byName, k.Name)
	inherited, left := *cell, c.cell(k.Name)
	*left = max(*left, k.Count)
	*k = Key[T]{Name: name, Count: inherited + n, Error: inherited}
	c.byName[name] = k
	return k
}

func (c *Counter[T]) cell(name string) *uint64 {
	return &c.cells[maphash.String(c.seed, name)%uint64(len(c.cells))]
}

// Keys returns the keys that are kept, in no order. They are valid until the next Add.
func (c *Counter[T]) Keys() []*Key[T] { return c.heap }

// Dropped reports whether there were more keys than the counter keeps.
func (c *Counter[T]) Dropped() bool { return c.dropped }

func (c *Counter[T]) up(k *Key[T]) {
	for k.at > 0 {
		parent := c.heap[(k.at-1)/2]
		if parent.Count <= k.Count {
			return
		}
		c.swap(k, parent)
	}
}

func (c *Counter[T]) down(k *Key[T]) {
	for {
		least := k
		for _, child := range [...]int{2*k.at + 1, 2*k.at + 2} {
			if child < len(c.heap) && c.heap[child].Count < least.Count {
				least = c.heap[child]
			}
		}
		if least == k {
			return
		}
		c.swap(k, least)
	}
}

func (c *Counter[T]) swap(a, b *Key[T]) {
	c.heap[a.at], c.heap[b.at] = b, a
	a.at, b.at = b.at, a.at
}
