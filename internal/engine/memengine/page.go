package memengine

import (
	"math/bits"

	"github.com/weirlimit/weir/internal/algo"
)

// A name stands for a key under one algorithm: 123 bits of hashes with seeds that
// only the store knows, and the algorithm. Keys themselves are not kept.
type name struct{ high, low uint64 }

// The lowest bits of a name tell the algorithm. The bit above them is always set,
// so that no name is zero.
const algorithmBits = 4

// A cell is a key's state, inline where it is small. It has no pointers: the
// garbage collector does not look into millions of them.
type cell struct {
	name     name
	at, used int64
	rem      uint32
	until    uint32 // seconds since 1970: the state equals a fresh one from then on
}

func (c *cell) get(s *algo.State) {
	s.At, s.Used, s.Rem, s.Base, s.Ext = c.at, c.used, int64(c.rem), 0, nil
}

func (c *cell) set(s *algo.State, until uint32) {
	c.at, c.used, c.rem, c.until = s.At, s.Used-s.Base, uint32(s.Rem), until
}

// A page holds cells by linear probing. Cells never move within a page: where
// some have to go, another page takes its place.
type page struct {
	cells cells
	exts  []*algo.Ext // beside the cells; nil while none has any
	keys  int
	swept uint32 // the last second in which the page was looked through for fresh keys
	bits  uint8  // how many leading bits its names have in common
}

type cells []cell

// nothing is the page of empty tables. It is full.
var nothing = newPage(1, 0)

func newPage(cells int, bits uint8) *page {
	return &page{cells: make([]cell, cells), bits: bits}
}

// roomFor is how many cells a new page of so many keys has.
func roomFor(keys int) int { return keys*7/4 + 8 }

// find returns the place of a name, or the place for it.
func (all cells) find(n name) (i int, known bool) {
	// The product's upper half is as even as the name is.
	home, _ := bits.Mul64(n.low, uint64(len(all)))
	for i = int(home); ; i++ {
		if i == len(all) {
			i = 0
		}
		if c := &all[i]; c.name == n || c.name.low == 0 {
			return i, c.name == n
		}
	}
}

// ext returns the part of a key's state that is outside its cell.
func (p *page) ext(i int) *algo.Ext {
	if p.exts == nil {
		return nil
	}
	return p.exts[i]
}

// set stores the state of the key at a place, and returns how many bytes more the
// page takes.
func (p *page) set(i int, s *algo.State, until uint32) (bytes int64) {
	p.cells[i].set(s, until)
	if s.Ext != nil && p.exts == nil {
		p.exts = make([]*algo.Ext, len(p.cells))
		bytes = extBytes * int64(len(p.exts))
	}
	if p.exts != nil {
		p.exts[i] = s.Ext
	}
	return bytes
}

// add puts a name that is not there into a page that is not full, for set.
func (p *page) add(n name) (i int) {
	i, _ = p.cells.find(n)
	p.cells[i].name = n
	p.keys++
	return i
}

// move copies a key from another page.
func (p *page) move(from *page, i int) {
	var s algo.State
	from.cells[i].get(&s)
	s.Ext = from.ext(i)
	p.set(p.add(from.cells[i].name), &s, from.cells[i].until)
}

// full reports whether another key would not fit: a quarter of the places stays
// free, to end searches.
func (p *page) full() bool { return p.keys >= len(p.cells)*3/4 }

// crowded reports whether the page will soon be full again.
func (p *page) crowded() bool { return p.keys >= len(p.cells)*5/8 }

// live counts the keys that are not as fresh as new ones at a second.
func (p *page) live(second uint32) (keys int) {
	for i := range p.cells {
		if p.cells[i].until > second {
			keys++
		}
	}
	return keys
}

const (
	cellBytes = 40
	extBytes  = 8
	pageBytes = 160 // a page, its place among the pages, and what allocating it wastes
)

// bytes is the memory of the page, Exts aside.
func (p *page) bytes() int64 {
	if p == nothing {
		return 0
	}
	return pageBytes + cellBytes*int64(len(p.cells)) + extBytes*int64(len(p.exts))
}
