package redisengine

import (
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

// A keyring numbers the keys of one call, each once.
type keyring struct {
	namer keyer
	all   []key
	table [ringSlots]uint8 // a hash table by tag: numbers of keys, from 1
	names []byte
	// The tag that was hashed last, because charges with one tag follow one another.
	source string
	tag    uint32
}

// ringSlots is a power of two, and larger than any call has keys: at most one more
// than an act has charges.
const ringSlots = 256

// A key is the state under a rule, or the record of an id.
type key struct {
	name        string
	end         int    // of the name, in those of all keys
	text        string // the charge's key or the act's id
	tag         uint32
	letter      byte
	format      byte
	rule        int32 // from 1; 0: a record
	first, last int32 // its runs, or -1 if there are none or other acts too
	sealed      bool  // no later act of the batch may have it
}

// find returns the number of a charge's key, or -1.
func (r *keyring) find(c *weir.Charge) int {
	return r.findKey(tagSource(c), stateKey(c))
}

// findKey returns the number of a key, or -1.
func (r *keyring) findKey(source string, k key) int {
	at, found := r.index(source, k)
	if !found {
		return -1
	}
	return int(r.table[at]) - 1
}

// number returns the number of a key, and whether it is new.
func (r *keyring) number(source string, k key) (int, bool) {
	at, found := r.index(source, k)
	if !found {
		k.tag, k.first, k.last = r.tag, -1, -1
		r.all = append(r.all, k)
		r.table[at] = uint8(len(r.all))
	}
	return int(r.table[at]) - 1, !found
}

// index returns the index of a key in the table, or the free one for it.
func (r *keyring) index(source string, k key) (uint32, bool) {
	if source != r.source || len(r.all) == 0 {
		r.source, r.tag = source, r.namer.tagOf(source)
	}
	for i := r.tag % ringSlots; ; i = (i + 1) % ringSlots {
		if r.table[i] == 0 {
			return i, false
		}
		if t := &r.all[r.table[i]-1]; t.tag == r.tag && t.letter == k.letter && t.text == k.text {
			return i, true
		}
	}
}

// name sets the names of the keys.
func (r *keyring) name() {
	r.names = r.names[:0]
	for i := range r.all {
		r.names = r.namer.append(r.names, &r.all[i])
		r.all[i].end = len(r.names)
	}
	// One string for all of them, which is one allocation.
	names, from := string(r.names), 0
	for i := range r.all {
		r.all[i].name = names[from:r.all[i].end]
		from = r.all[i].end
	}
}

// stateKey returns the key of a charge's state.
func stateKey(c *weir.Charge) key {
	step := &algo.Steps[c.Limit.Algorithm]
	return key{text: c.Key, letter: step.Letter, format: step.Format}
}

// blockKey returns the key of the blocks of a charge's key.
func blockKey(c *weir.Charge) key {
	letter := algo.Steps[c.Limit.Algorithm].Letter
	return key{text: c.Key, letter: letter - 'a' + 'A', format: blockFormat}
}

// blockFormat is in the names of blocks, as the format of a step is in those of states. Their
// letters are those of the steps, in upper case.
const blockFormat = '1'
