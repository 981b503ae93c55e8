package redisstore

import (
	"strings"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

const (
	defaultPrefix = "weir:"
	// maxPlainKey is the length up to which a key is stored as it is.
	maxPlainKey = 200
	// recordLetter and recordFormat stand where a state has its algorithm's.
	recordLetter, recordFormat = 'i', '1'
	// tagLetters are what hash tags are written with; 6 bits each.
	tagLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// keyer names the Redis keys of charges: PREFIX{tag}LETTER FORMAT:key. The tag,
// a keyed hash of the charge's slot, places the key in a cluster; the letter
// and the format belong to the algorithm, so that no state is read by another.
// A long key gives way to a 128-bit keyed hash of it.
type keyer struct {
	prefix string
	k0, k1 uint64
	tag    string // if set, the hash tag of every key
}

// newKeyer derives the hash keys from the prefix and the secret: instances that
// share a store must have both in common.
func newKeyer(prefix, secret string) keyer {
	seed := []byte(prefix + "\x00" + secret)
	k0, k1 := siphash.Hash128(0x77656972, 0x6c696d6974, seed)
	return keyer{prefix: prefix, k0: k0, k1: k1}
}

// under returns a keyer for the keys that an extension has beside those of
// others, in the slot of the tag.
func (n keyer) under(extension, tag string) keyer {
	n.prefix += extension + ":"
	n.tag = tag
	return n
}

func (n keyer) name(c *weir.Charge) string {
	step := &algo.Steps[c.Limit.Algorithm]
	return n.join(slotOf(c), step.Letter, step.Format, c.Key)
}

// record names the key of an act's id, which lives in the slot of the act's
// first charge.
func (n keyer) record(a *weir.Act) string {
	return n.join(slotOf(&a.Charges[0]), recordLetter, recordFormat, a.ID)
}

func slotOf(c *weir.Charge) string {
	if c.Slot == "" {
		return c.Key
	}
	return c.Slot
}

func (n keyer) join(slot string, letter, format byte, key string) string {
	var b strings.Builder
	b.Grow(len(n.prefix) + 9 + len(n.tag) + min(len(key), maxPlainKey))
	b.WriteString(n.prefix)
	b.WriteByte('{')
	if n.tag != "" {
		b.WriteString(n.tag)
	} else {
		writeBits(&b, siphash.Hash(n.k0, n.k1, []byte(slot)), 4)
	}
	b.WriteByte('}')
	b.WriteByte(letter)
	b.WriteByte(format)
	if len(key) <= maxPlainKey {
		b.WriteByte(':')
		b.WriteString(key)
		return b.String()
	}
	high, low := siphash.Hash128(n.k0, n.k1, []byte(key))
	b.WriteByte('#')
	writeBits(&b, high, 11)
	writeBits(&b, low, 11)
	return b.String()
}

// writeBits writes the lowest bits of a number, six a letter.
func writeBits(b *strings.Builder, bits uint64, letters int) {
	for range letters {
		b.WriteByte(tagLetters[bits&63])
		bits >>= 6
	}
}
