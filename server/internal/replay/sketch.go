package replay

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// A sketch counts the most frequent of any number of keys in bounded memory: the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi, "Efficient
// computation of frequent and top-k elements in data streams" (ICDT 2005). A key
// that is not kept replaces the one with the smallest count and inherits it as its
// error, so that a count is too high by at most its error, which is at most the
// total divided by the keys kept.
type sketch struct {
	most  int
	full  bool // a key was not kept
	byKey map[string]*counted
	heap  counts
}

// counted is what is known about one key. The fields beside its count cover
// the time since the key was kept.
type counted struct {
	key     string
	count   int64
	err     int64
	refused int64
	closest float64 // the largest part of the limit in use
	index   int
}

func newSketch(most int) *sketch { return &sketch{most: most, byKey: make(map[string]*counted)} }

// add counts a key once more.
func (s *sketch) add(key string) *counted {
	c := s.byKey[key]
	switch {
	case c != nil:
		c.count++
		heap.Fix(&s.heap, c.index)
	case len(s.heap) < s.most:
		c = &counted{key: strings.Clone(key), count: 1}
		s.byKey[c.key] = c
		heap.Push(&s.heap, c)
	default:
		s.full = true
		c = s.heap[0]
		delete(s.byKey, c.key)
		*c = counted{key: strings.Clone(key), count: c.count + 1, err: c.count}
		s.byKey[c.key] = c
		heap.Fix(&s.heap, 0)
	}
	return c
}

// top returns the keys that compare as first, and by name where they are equal.
func (s *sketch) top(most int, less func(a, b *counted) int) []*counted {
	all := slices.Clone(s.heap)
	slices.SortFunc(all, func(a, b *counted) int { return cmp.Or(less(a, b), cmp.Compare(a.key, b.key)) })
	return all[:min(most, len(all))]
}

// distinct returns the number of different keys.
func (s *sketch) distinct() Distinct { return Distinct{int64(len(s.heap)), s.full} }

func byCount(a, b *counted) int { return cmp.Compare(b.count, a.count) }

// counts is a heap, the smallest first.
type counts []*counted

// Len is for package heap.
func (c counts) Len() int { return len(c) }

// Less is for package heap.
func (c counts) Less(i, j int) bool { return c[i].count < c[j].count }

// Swap is for package heap.
func (c counts) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].index, c[j].index = i, j
}

// Push is for package heap.
func (c *counts) Push(x any) {
	entry := x.(*counted)
	entry.index = len(*c)
	*c = append(*c, entry)
}

// Pop is for package heap.
func (c *counts) Pop() any {
	old := *c
	last := old[len(old)-1]
	*c = old[:len(old)-1]
	return last
}
