package redisengine

import (
	"context"
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
for r = 1, unpack('>I2', ARGV[1]) do ARGV[r + 1] = '86400000' end
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
	s.scripts = assemble(testClock).mutated(func(text string) string {
		return strings.ReplaceAll(mutate(text), "call('SET', key, ext, 'PX', used)", "call('SET', key, ext, 'PX', '86400000')")
	})
	s.extra = func() []any { return []any{strconv.FormatInt(now(), 10)} }
	return s, nil
}

// mutated returns the scripts with their texts changed.
func (s scripts) mutated(mutate func(string) string) scripts {
	return scripts{plain: named(mutate(s.plain.text)), whole: named(mutate(s.whole.text))}
}

// ScriptTexts returns the scripts that New uses.
func ScriptTexts() []string { return []string{shipped.plain.text, shipped.whole.text} }

// NewMutated returns a store by Redis's clock in whose script one text has been
// replaced by another.
func NewMutated(client redis.UniversalClient, o Options, old, with string) (*Store, error) {
	s, err := New(client, o)
	if err != nil {
		return nil, err
	}
	s.scripts = shipped.mutated(func(text string) string { return strings.ReplaceAll(text, old, with) })
	if s.scripts == shipped {
		return nil, fmt.Errorf("the scripts have no %q", old)
	}
	return s, nil
}

// KeyOf returns the name of a charge's key in Redis.
func (s *Store) KeyOf(c *weir.Charge) string { return s.keys.name(c) }

// RecordOf returns the name of the key at which an act's id is remembered.
func (s *Store) RecordOf(a *weir.Act) string { return s.keys.record(a) }

// Undo amends a take as a store does for itself, to nothing.
func (s *Store) Undo(ctx context.Context, a *weir.Act) {
	j := &job{Act: a, identity: s.keys.identify(a, a.ID)}
	p := &part{Act: a, whole: j}
	for i := range a.Charges {
		p.from = append(p.from, i)
	}
	j.undo([]*part{p}, 0)
	l := s.newLoad()
	l.add(j.parts[0])
	s.exchange(ctx, []*load{l})
	j.advance()
}

// Packed returns the script call that would decide the acts, its command included.
func Packed(acts ...*weir.Act) []any {
	b := newBatch(newKeyer(defaultPrefix, ""), 0)
	b.fill(acts)
	b.pack(nil)
	run := &shipped.whole
	if b.plain {
		run = &shipped.plain
	}
	b.args[0], b.args[1] = "evalsha", &run.sha
	return b.args
}

// Fill returns how many of the acts one script call decides.
func Fill(acts ...*weir.Act) int {
	return newBatch(newKeyer(defaultPrefix, ""), 0).fill(acts)
}

// Shape returns how many operations the acts are to the script, and whether it is
// the one for plain takes.
func Shape(acts ...*weir.Act) (items int, plain bool) {
	b := newBatch(newKeyer(defaultPrefix, ""), 0)
	b.fill(acts)
	return len(b.items), b.plain
}
