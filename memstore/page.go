package memstore

import (
	"math"
	"math/bits"

	"github.com/weirlimit/weir/internal/algo"
)

// A name stands for a key under one algorithm: 124 bits of hashes with seeds that
// only the store knows, and the algorithm. Keys themselves are not kept.
type name struct{ high, low uint64 }

// The lowest bits of a name tell the algorithm. The bit above them is always set,
// so that no name is zero.
const algorithmBits = 3

// A cell is a key's state, inline where it is small. It has no pointers: the
// garbage collector does not look into millions of them.
type cell struct {
	name     name
	at, used int64
	rem      uint32
	until    uint32 // seconds since 1970: the state equals a fresh one from then on
}

// A stored state is a cell and what does not fit into it.
type stored struct {
	cell
	ext *algo.Ext
}

func (s stored) state() algo.State {
	return algo.State{At: s.at, Used: s.used, Rem: int64(s.rem), Ext: s.ext}
}

// A page holds cells by linear probing. Cells never move within a page: where
// some have to go, another page takes its place.
type page struct {
	cells []cell
	exts  []*algo.Ext // beside the cells; nil while none has any
	keys  int
	// soonest is when the first of the keys becomes as fresh as a new one, or
	// earlier, in seconds since 1970.
	soonest uint32
	bits    uint8 // how many leading bits its names have in common
}

// nothing is the page of empty tables. It is full.
var nothing = newPage(1, 0)

func newPage(cells int, bits uint8) *page {
	return &page{cells: make([]cell, cells), bits: bits, soonest: math.MaxUint32}
}

// roomFor is how many cells a new page of so many keys has.
func roomFor(keys int) int { return keys + keys/2 + 8 }

// find returns the place of a name in the page, or the place for it.
func (p *page) find(n name) (i int, known bool) {
	// The product's upper half is as even as the name is.
	home, _ := bits.Mul64(n.low, uint64(len(p.cells)))
	for i = int(home); ; i++ {
		if i == len(p.cells) {
			i = 0
		}
		if c := &p.cells[i]; c.name == n || c.name.low == 0 {
			return i, c.name == n
		}
	}
}

func (p *page) get(i int) stored {
	if p.exts == nil {
		return stored{cell: p.cells[i]}
	}
	return stored{p.cells[i], p.exts[i]}
}

// set stores a state at a place, and returns how many bytes more the page takes.
func (p *page) set(i int, s stored) (bytes int64) {
	p.cells[i] = s.cell
	p.soonest = min(p.soonest, s.until)
	if s.ext != nil && p.exts == nil {
		p.exts = make([]*algo.Ext, len(p.cells))
		bytes = extBytes * int64(len(p.exts))
	}
	if p.exts != nil {
		p.exts[i] = s.ext
	}
	return bytes
}

// add is set for a name that is not there, in a page that is not full.
func (p *page) add(s stored) (bytes int64) {
	i, _ := p.find(s.name)
	p.keys++
	return p.set(i, s)
}

// full reports whether another key would not fit: an eighth of the places stays
// free, to end searches.
func (p *page) full() bool { return p.keys >= len(p.cells)*7/8 }

// crowded reports whether the page will soon be full again.
func (p *page) crowded() bool { return p.keys >= len(p.cells)*3/4 }

// live counts the keys that are not as fresh as new ones at a second, and finds
// when the first of them will be.
func (p *page) live(second uint32) (keys int, soonest uint32) {
	soonest = math.MaxUint32
	for i := range p.cells {
		if c := &p.cells[i]; c.until > second {
			keys++
			soonest = min(soonest, c.until)
		}
	}
	return keys, soonest
}

const (
	cellBytes = 40
	extBytes  = 8
	pageBytes = 128 // a page, its place among the pages, and what allocating it wastes
)

// bytes is the memory of the page, Exts aside.
func (p *page) bytes() int64 {
	if p == nothing {
		return 0
	}
	return pageBytes + cellBytes*int64(len(p.cells)) + extBytes*int64(len(p.exts))
}
