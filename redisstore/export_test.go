package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
)

// testClock takes the time from the last argument, and keeps keys for a day of
// Redis's own time, which has nothing to do with it.
const testClock = `
local now = tonumber(ARGV[#ARGV])
local function ttl(rule, used, fresh) return '86400000' end
local function lifetime(fresh) return '86400000' end
`

// NewWithClock returns a store whose clock is now, in µs.
func NewWithClock(client redis.UniversalClient, o Options, now func() int64) (*Store, error) {
	return NewMutant(client, o, now, func(text string) string { return text })
}

// NewMutant returns a store with a clock whose script was changed.
func NewMutant(client redis.UniversalClient, o Options, now func() int64, mutate func(string) string) (*Store, error) {
	s, err := New(client, o)
	if err != nil {
		return nil, err
	}
	s.script = named(mutate(assemble(testClock).text))
	s.extra = func() []any { return []any{strconv.FormatInt(now(), 10)} }
	return s, nil
}

// ScriptText returns the script that New uses.
func ScriptText() string { return shipped.text }

// NewMutated returns a store by Redis's clock in whose script one text has been
// replaced by another.
func NewMutated(client redis.UniversalClient, o Options, old, with string) (*Store, error) {
	s, err := New(client, o)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(shipped.text, old) {
		return nil, fmt.Errorf("the script has no %q", old)
	}
	s.script = named(strings.ReplaceAll(shipped.text, old, with))
	return s, nil
}

// KeyOf returns the name of a charge's key in Redis.
func (s *Store) KeyOf(c *weir.Charge) string { return s.keys.name(c) }

// RecordOf returns the name of the key at which an act's id is remembered.
func (s *Store) RecordOf(a *weir.Act) string { return s.keys.record(a) }

// Packed returns the script call that would decide the acts.
func Packed(acts ...*weir.Act) ([]string, []any) {
	b := newBatch(newKeyer(defaultPrefix, ""), 0)
	b.fill(acts)
	return b.keys, b.args()
}
