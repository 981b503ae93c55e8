package redisstore

import (
	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
)

// clusterSlots is how many slots a Redis Cluster has.
const clusterSlots = 1 << 14

// placer returns what keys with a tag must have in common to be decided by one
// script: nil where there is one server, and all can be. Of a cluster that is the
// slot; of any other client, which may spread keys as it likes, the tag itself.
func placer(client redis.UniversalClient) func(tag uint32) uint32 {
	switch client.(type) {
	case *redis.Client:
		return nil
	case *redis.ClusterClient:
		return slotOfTag
	}
	return func(tag uint32) uint32 { return tag }
}

// slotOfTag is the slot of keys with a tag: CRC-16/XMODEM of its letters, as the
// Redis Cluster specification has it.
func slotOfTag(tag uint32) uint32 {
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

// place is where a charge's key is.
func (s *Store) place(c *weir.Charge) uint32 { return s.placed(s.keys.tagOf(slotOf(c))) }
