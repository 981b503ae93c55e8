package memstore

// A table is an extendible hash table of cells (Fagin, Nievergelt, Pippenger and
// Strong, 1979): a page that is full becomes a larger one, or two, while all
// others stay as they are.
type table struct {
	pages []*page // by the leading bits of names
	shift uint8   // what leaves just these bits
	keys  int
}

// splitKeys is how many keys a page holds before it becomes two, which bounds the
// time that growing takes to some microseconds.
const splitKeys = 512

// page is the page that a name belongs to. The first bits of names choose the
// shard; pages go by those after them.
func (t *table) page(n name) *page { return t.pages[n.high<<shardBits>>t.shift] }

func (t *table) bits() uint8 { return 64 - t.shift }

// half is the bit that tells apart the halves of a page whose names have so many
// bits in common.
func (n name) half(bits uint8) uint64 { return n.high << shardBits << bits >> 63 }

// growth is how many bytes another key of the page takes at most, what its Ext
// points to aside.
func (t *table) growth(p *page, ext bool) int64 {
	bytes, cells := int64(0), len(p.cells)
	if p.full() {
		bytes, cells = pageBytes, roomFor(p.keys)
		if p.keys >= splitKeys {
			bytes, cells = 2*pageBytes+extBytes*int64(len(t.pages)), cells+roomFor(0)
		}
		bytes += cellBytes*int64(cells) + extBytes*int64(len(p.exts)) - p.bytes()
	}
	if ext || p.exts != nil {
		bytes += extBytes * int64(cells-len(p.exts))
	}
	return bytes
}

// grow makes room in the page of a name, and returns how many bytes that takes.
func (t *table) grow(n name) int64 {
	old := t.page(n)
	if old.keys < splitKeys {
		larger := newPage(roomFor(old.keys), old.bits)
		return t.replace(n, 0, larger, larger)
	}
	var keys [2]int
	for i := range old.cells {
		if c := &old.cells[i]; c.until > 0 {
			keys[c.name.half(old.bits)]++
		}
	}
	bytes := int64(0)
	if old.bits == t.bits() {
		bytes = t.double()
	}
	return bytes + t.replace(n, 0, newPage(roomFor(keys[0]), old.bits+1), newPage(roomFor(keys[1]), old.bits+1))
}

// double gives each page twice as many places.
func (t *table) double() int64 {
	pages := make([]*page, 2*len(t.pages))
	for i := range pages {
		pages[i] = t.pages[i/2]
	}
	bytes := extBytes * int64(len(t.pages))
	t.pages = pages
	t.shift--
	return bytes
}

// shed forgets the keys of a name's page that are as fresh as new ones, and
// returns how many bytes that frees.
func (t *table) shed(n name, second uint32) int64 {
	old := t.page(n)
	if old.soonest > second {
		return 0
	}
	var keys int
	if keys, old.soonest = old.live(second); keys == old.keys {
		return 0
	}
	smaller := newPage(min(roomFor(keys), len(old.cells)), old.bits)
	return -t.replace(n, second, smaller, smaller)
}

// replace moves the keys of a name's page that are not fresh at a second to
// another page, or to two, and returns how many bytes more those take.
func (t *table) replace(n name, second uint32, low, high *page) int64 {
	old := t.page(n)
	bytes := -old.bytes()
	t.keys -= old.keys
	for i := range old.cells {
		switch c := &old.cells[i]; {
		case c.until > second:
			half := low
			if c.name.half(old.bits) == 1 {
				half = high
			}
			half.move(old, i)
			t.keys++
		case c.until > 0:
			bytes -= old.ext(i).Bytes()
		}
	}
	places := 1 << (t.bits() - old.bits)
	first := int(n.high<<shardBits>>t.shift) &^ (places - 1)
	for i := range places {
		t.pages[first+i] = low
		if i >= places/2 {
			t.pages[first+i] = high
		}
	}
	if bytes += low.bytes(); high != low {
		bytes += high.bytes()
	}
	return bytes
}
