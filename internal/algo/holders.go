package algo

import (
	"cmp"
	"slices"
)

// A Holding names a holder: a hash of its act's id and keys.
type Holding [2]uint64

// A Holder holds a slot until the end of its lease.
type Holder struct {
	ID  Holding
	End int64
}

// named reports whether the holder is not anonymous.
func (h Holder) named() bool { return h.ID[0] != 0 }

func (h Holder) compare(other Holder) int {
	return cmp.Or(cmp.Compare(h.End, other.End), cmp.Compare(h.ID[0], other.ID[0]), cmp.Compare(h.ID[1], other.ID[1]))
}

// Holders are the holders of a key in the order of the ends of their leases, in blocks, so that
// a change moves few of them. A nil Holders is empty.
type Holders struct {
	blocks [][]Holder // none is empty
	size   int
	// ends finds named holders. It is nil while one block has all of them, which is quicker to
	// search. peak is the most that it has had, because a map does not shrink.
	ends map[Holding]int64
	peak int
}

// blockSize is the most holders of a block.
const blockSize = 256

// The memory of Holders without its blocks, of a block without its holders, of a holder, and of
// an entry of ends.
const holdersBytes, blockBytes, holderBytes, endBytes = 48, 24, 24, 48

func (l *Holders) bytes() int64 {
	if l == nil {
		return 0
	}
	room := blockSize * len(l.blocks)
	if len(l.blocks) == 1 {
		room = cap(l.blocks[0])
	}
	return holdersBytes + blockBytes*int64(cap(l.blocks)) + endBytes*int64(l.peak) + holderBytes*int64(room)
}

func (l *Holders) clone() *Holders {
	if l == nil {
		return nil
	}
	c := &Holders{size: l.size}
	for _, b := range l.blocks {
		c.blocks = append(c.blocks, slices.Clone(b))
	}
	c.reindex()
	return c
}

// reindex builds ends anew, or drops it where one block has all holders.
func (l *Holders) reindex() {
	if l.ends, l.peak = nil, 0; len(l.blocks) < 2 {
		return
	}
	l.ends = make(map[Holding]int64, l.size)
	for _, b := range l.blocks {
		for _, h := range b {
			if h.named() {
				l.ends[h.ID] = h.End
			}
		}
	}
	l.peak = len(l.ends)
}

// index returns the block and the index in it where a holder is, or belongs.
func (l *Holders) index(h Holder) (block, i int) {
	block, _ = slices.BinarySearchFunc(l.blocks, h, func(b []Holder, h Holder) int { return b[len(b)-1].compare(h) })
	if block == len(l.blocks) {
		block--
		return block, len(l.blocks[block])
	}
	i, _ = slices.BinarySearchFunc(l.blocks[block], h, Holder.compare)
	return block, i
}

// add adds a holder that is not there.
func (l *Holders) add(h Holder) {
	l.size++
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, []Holder{h})
		return
	}
	b, i := l.index(h)
	full := l.blocks[b]
	switch n := len(full); {
	case n < blockSize:
		l.blocks[b] = slices.Insert(full, i, h)
	case i == n: // most leases end after all others
		l.blocks = slices.Insert(l.blocks, b+1, []Holder{h})
	default:
		half := n / 2
		l.blocks = slices.Insert(l.blocks, b+1, slices.Clone(full[half:]))
		l.blocks[b] = full[:half]
		if i > half {
			b, i = b+1, i-half
		}
		l.blocks[b] = slices.Insert(l.blocks[b], i, h)
	}
	switch {
	case l.ends == nil && len(l.blocks) > 1:
		l.reindex()
	case l.ends != nil && h.named():
		l.ends[h.ID] = h.End
		l.peak = max(l.peak, len(l.ends))
	}
}

// find returns the end of a holder's lease.
func (l *Holders) find(id Holding) (end int64, found bool) {
	switch {
	case l == nil || l.size == 0:
		return 0, false
	case l.ends != nil:
		end, found = l.ends[id]
		return end, found
	}
	for i := range l.blocks[0] {
		if h := &l.blocks[0][i]; h.ID == id {
			return h.End, true
		}
	}
	return 0, false
}

// remove removes a holder that is there.
func (l *Holders) remove(h Holder) {
	b, i := l.index(h)
	l.shrink(b, i, i+1)
	l.tidy(b)
}

// cut removes the holders whose leases end up to an instant.
func (l *Holders) cut(now int64) {
	for l != nil && len(l.blocks) > 0 && l.blocks[0][0].End <= now {
		l.shrink(0, 0, until(l.blocks[0], now))
		l.tidy(0)
	}
}

// shrink removes some holders of a block, which may be empty then.
func (l *Holders) shrink(b, from, to int) {
	if l.ends != nil {
		for _, h := range l.blocks[b][from:to] {
			if h.named() {
				delete(l.ends, h.ID)
			}
		}
	}
	l.size -= to - from
	l.blocks[b] = slices.Delete(l.blocks[b], from, to)
}

// tidy removes a block that is empty, joins one that has become small with a neighbour, and lets
// the index shrink.
func (l *Holders) tidy(b int) {
	switch {
	case len(l.blocks[b]) == 0:
		l.blocks = slices.Delete(l.blocks, b, b+1)
	case b+1 < len(l.blocks) && len(l.blocks[b])+len(l.blocks[b+1]) <= blockSize/2:
		l.blocks[b] = append(l.blocks[b], l.blocks[b+1]...)
		l.blocks = slices.Delete(l.blocks, b+1, b+2)
	case b > 0 && len(l.blocks[b])+len(l.blocks[b-1]) <= blockSize/2:
		l.blocks[b-1] = append(l.blocks[b-1], l.blocks[b]...)
		l.blocks = slices.Delete(l.blocks, b, b+1)
	}
	if l.ends != nil && (len(l.blocks) < 2 || 4*len(l.ends) < l.peak) {
		l.reindex()
	}
}

// ended is how many leases end up to an instant.
func (l *Holders) ended(now int64) (n int) {
	if l == nil {
		return 0
	}
	for _, b := range l.blocks {
		if ended := until(b, now); ended < len(b) {
			return n + ended
		}
		n += len(b)
	}
	return n
}

// until is how many of the holders have leases up to and including an instant.
func until(holders []Holder, end int64) int {
	if len(holders) == 0 || holders[0].End > end {
		return 0
	}
	n, _ := slices.BinarySearchFunc(holders, end+1, func(h Holder, end int64) int { return cmp.Compare(h.End, end) })
	return n
}

// last returns the end of the last lease.
func (l *Holders) last() int64 {
	b := l.blocks[len(l.blocks)-1]
	return b[len(b)-1].End
}

// vacate removes up to n anonymous holders, the oldest first, and returns how many.
func (l *Holders) vacate(n int64) (gone int64) {
	for b := 0; l != nil && b < len(l.blocks) && gone < n; {
		block := l.blocks[b]
		for i := 0; i < len(l.blocks[b]) && gone < n; {
			if l.blocks[b][i].named() {
				i++
				continue
			}
			to := i + 1
			for to < len(block) && !block[to].named() && gone+int64(to-i) < n {
				to++
			}
			gone += int64(to - i)
			l.shrink(b, i, to)
			block = l.blocks[b]
		}
		if len(block) == 0 {
			l.tidy(b)
		} else {
			b++
		}
	}
	return gone
}
