package memengine

// A table is an extendible hash table of cells (Fagin, Nievergelt, Pippenger and
// Strong, 1979): a page that is full becomes a larger one, or two, while all
// others stay as they are.
type table struct {
	pages []entry // by the leading bits of names
	shift uint8   // what leaves just these bits
	keys  int
}

// An entry repeats a page's cells, to find them without a look at the page.
type entry struct {
	cells cells
	page  *page
}

// entryBytes is the size of an entry.
const entryBytes = 32

// splitKeys is how many keys a page holds before it becomes two, which bounds the
// time that growing takes to some microseconds.
const splitKeys = 448

// entry is where a name belongs. The first bits of names choose the shard; pages
// go by those after them.
func (t *table) entry(n name) *entry { return &t.pages[n.high<<shardBits>>t.shift] }

func (t *table) page(n name) *page { return t.entry(n).page }

func (t *table) bits() uint8 { return 64 - t.shift }

// half returns the bit that distinguishes the halves of a page whose names have so many
// bits in common.
func (n name) half(bits uint8) uint64 { return n.high << shardBits << bits >> 63 }

// growth is the most bytes that another key of the page takes, without the data that its
// Ext points to.
func (t *table) growth(p *page, ext bool) int64 {
	bytes, cells := int64(0), len(p.cells)
	if p.full() {
		bytes, cells = pageBytes, roomFor(p.keys)
		if p.keys >= splitKeys {
			bytes, cells = 2*pageBytes+entryBytes*int64(len(t.pages)), cells+roomFor(0)
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
	pages := make([]entry, 2*len(t.pages))
	for i := range pages {
		pages[i] = t.pages[i/2]
	}
	bytes := entryBytes * int64(len(t.pages))
	t.pages = pages
	t.shift--
	return bytes
}

// shed forgets the keys of a name's page that are as fresh as new ones, and
// returns how many bytes that frees. It looks once in a second.
func (t *table) shed(n name, second uint32) int64 {
	old := t.page(n)
	if old.swept == second || old == nothing {
		return 0
	}
	old.swept = second
	keys := old.live(second)
	if keys == old.keys {
		return 0
	}
	smaller := newPage(min(roomFor(keys), len(old.cells)), old.bits)
	smaller.swept = second
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
		t.pages[first+i] = entry{low.cells, low}
		if i >= places/2 {
			t.pages[first+i] = entry{high.cells, high}
		}
	}
	if bytes += low.bytes(); high != low {
		bytes += high.bytes()
	}
	return bytes
}
