package redisengine

import (
	"github.com/dchest/siphash"
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
)

const (
	defaultPrefix = "weir:"
	// maxPlainKey is the length up to which a key is stored as it is.
	maxPlainKey = 200
	// recordLetter and recordFormat are in the names of records, as the letter and format
	// of a step are in those of states.
	recordLetter, recordFormat = 'i', '5'
	// tagLength is how many letters a hash tag has, hashLength how many stand for
	// half the hash of a long key.
	tagLength, hashLength = 4, 11
	// tagLetters are the digits of hashes; 6 bits each.
	tagLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

// keyer names the Redis keys of charges: PREFIX{tag}LETTER FORMAT:key. The hash tag is a
// keyed hash of the charge's HashTag or key; the letter and the format belong to the
// algorithm, so that no state is read by another. A long key is replaced by a 128-bit
// keyed hash, and so is an id, together with what it belongs to.
type keyer struct {
	prefix string
	k0, k1 uint64
	tag    string // if set, the hash tag of every key
	// apart is set if keys lie in hash slots, so that a record has to be beside the charges.
	apart bool
}

// newKeyer derives the hash keys from the prefix and the secret, which instances that
// share a store must have in common.
func newKeyer(prefix, secret string) keyer {
	seed := []byte(prefix + "\x00" + secret)
	k0, k1 := siphash.Hash128(0x77656972, 0x6c696d6974, seed)
	return keyer{prefix: prefix, k0: k0, k1: k1}
}

// under returns a keyer for the keys of an extension, which all have one hash tag.
func (n keyer) under(extension, tag string) keyer {
	n.prefix += extension + ":"
	n.tag = tag
	return n
}

func (n keyer) name(c *weir.Charge) string { return n.join(tagSource(c), stateKey(c)) }

// record names the record of an act's id.
func (n keyer) record(a *weir.Act) string {
	i := n.identify(a, a.ID)
	return n.join(n.recordSource(a), i.record())
}

// recordSource returns the text whose hash is the hash tag of an act's record: that of its
// first charge or, where keys need not lie together, the owner of its scope, because the
// first charge may be another one when the record is looked up.
func (n keyer) recordSource(a *weir.Act) string {
	if !n.apart {
		return a.Scope.Owner
	}
	return tagSource(&a.Charges[0])
}

// tagSource returns the text whose hash is the hash tag of a charge's key.
func tagSource(c *weir.Charge) string {
	if c.HashTag == "" {
		return c.Key
	}
	return c.HashTag
}

func (n keyer) join(source string, k key) string {
	k.tag = n.tagOf(source)
	return string(n.append(make([]byte, 0, 256), &k))
}

// tagOf returns the bits of a hash tag.
func (n keyer) tagOf(source string) uint32 {
	if n.tag != "" {
		return 0
	}
	return uint32(siphash.Hash(n.k0, n.k1, []byte(source)) & (1<<(6*tagLength) - 1))
}

// append adds the name of a key.
func (n keyer) append(p []byte, k *key) []byte {
	p = append(p, n.prefix...)
	p = append(p, '{')
	if n.tag != "" {
		p = append(p, n.tag...)
	} else {
		p = appendBits(p, uint64(k.tag), tagLength)
	}
	p = append(p, '}', k.letter, k.format)
	if len(k.text) <= maxPlainKey {
		return append(append(p, ':'), k.text...)
	}
	high, low := siphash.Hash128(n.k0, n.k1, []byte(k.text))
	return appendBits(appendBits(append(p, '#'), high, hashLength), low, hashLength)
}

// appendBits appends the lowest bits of a number, six to a letter.
func appendBits(p []byte, bits uint64, letters int) []byte {
	for range letters {
		p = append(p, tagLetters[bits&63])
		bits >>= 6
	}
	return p
}

// clusterSlots is how many hash slots a Redis Cluster has.
const clusterSlots = 1 << 14

// slotsOf returns a function that returns the hash slot of a tag: keys of one slot can be
// decided by one script. It is nil where there is one server, which can decide all keys.
// Any client but that of a cluster may spread keys as it likes: there a tag is a slot of
// its own.
func slotsOf(client redis.UniversalClient) func(tag uint32) uint32 {
	switch client.(type) {
	case *redis.Client:
		return nil
	case *redis.ClusterClient:
		return clusterSlot
	}
	return func(tag uint32) uint32 { return tag }
}

// clusterSlot returns the hash slot of a tag: CRC-16/XMODEM of its letters, as in the Redis
// Cluster specification.
func clusterSlot(tag uint32) uint32 {
	crc := uint16(0)
	for range tagLength {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tagLetters[tag&63]]
		tag >>= 6
	}
	return uint32(crc) % clusterSlots
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}()

// slot returns the hash slot of a charge's key.
func (s *Store) slot(c *weir.Charge) uint32 { return s.slotOfTag(s.keys.tagOf(tagSource(c))) }
