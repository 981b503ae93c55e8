package memengine

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/weirlimit/weir/internal/algo"
)

// TestTable compares a table with a map while keys come, become fresh and are
// swept.
func TestTable(t *testing.T) {
	t.Parallel()
	s := &Store{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	tab := &table{pages: []entry{{nothing.cells, nothing}}, shift: 64}
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[name]uint32)
	bytes, exts, second := int64(0), int64(0), uint32(1000)
	for i := range 60_000 {
		n := s.name(algo.GCRA, fmt.Sprint("key", i))
		// Keys of one shard, as a table has.
		n.high &= 1<<(64-shardBits) - 1
		before, need := bytes, tab.growth(tab.page(n), i%7 == 0)
		if tab.page(n).full() {
			bytes += tab.grow(n)
		}
		state, until := algo.State{At: int64(i)}, second+1+random.Uint32N(2000)
		if i%7 == 0 {
			state.Ext = new(algo.Ext)
			exts += state.Ext.Bytes()
		}
		tab.keys++
		bytes += tab.page(n).set(tab.page(n).add(n), &state, until)
		if bytes-before > need {
			t.Fatalf("key %d took %d bytes, %d foretold", i, bytes-before, need)
		}
		want[n] = until
		if i%100 == 0 {
			second += 7
			bytes -= tab.shed(n, second)
		}
		if i%20_000 == 19_999 {
			compareTable(t, tab, want, second)
		}
	}
	compareTable(t, tab, want, second)
	// Once all is swept only the directory is left, and a small page for each of its pages.
	for n := range want {
		bytes -= tab.shed(n, 1<<31)
	}
	left := int64(0)
	for i, e := range tab.pages {
		if p := e.page; i == 0 || p != tab.pages[i-1].page {
			left += p.bytes()
		}
	}
	if left += entryBytes * int64(len(tab.pages)-1); tab.keys != 0 || bytes != left-exts {
		t.Errorf("%d keys left, %d bytes counted beside %d of Exts, %d there", tab.keys, bytes, exts, left)
	}
}

func compareTable(t *testing.T, tab *table, want map[name]uint32, second uint32) {
	t.Helper()
	keys := 0
	for i, e := range tab.pages {
		p := e.page
		if i > 0 && p == tab.pages[i-1].page {
			continue
		}
		count := 0
		for i := range p.cells {
			if p.cells[i].name.low != 0 {
				count++
			}
		}
		if count != p.keys || p.keys >= len(p.cells) {
			t.Fatalf("a page of %d counts %d keys, and has %d", len(p.cells), p.keys, count)
		}
		keys += p.keys
	}
	if keys != tab.keys {
		t.Fatalf("%d keys, %d counted", keys, tab.keys)
	}
	for n, until := range want {
		p := tab.page(n)
		i, found := p.cells.find(n)
		if !found && until > second || found && p.cells[i].until != until {
			t.Fatalf("%x: found %v, until %d at %d", n, found, until, second)
		}
	}
}
