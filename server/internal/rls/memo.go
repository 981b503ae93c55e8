package rls

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

// A memo remembers messages that come again and again, decoded, and their plans. Both depend on
// nothing but the bytes of the message and the rules: the rights of callers, the overrides of
// keys and the state of limits are asked for each call.
//
// It remembers one message in each of its cells, so that its memory is bounded. Messages that are
// not remembered vote for themselves: one that comes again gets a vote, another one of the same
// cell takes a vote away. A message that comes once more with memoVotes is remembered, unless the
// one in the cell was used since the last election. So invented messages displace none that is
// used, and remembering them costs little even if each comes several times. Messages that get an
// error, or that no rule is for, have no vote.
type memo struct {
	seed  maphash.Seed
	table atomic.Pointer[memoTable]
}

// A memoTable is the memo for one set of rules.
type memoTable struct {
	set   *rules.Set
	cells [memoCells]memoCell
}

// A memoCell holds one message.
type memoCell struct {
	held      atomic.Pointer[remembered]
	used      atomic.Bool   // the message was asked for since the last election
	candidate atomic.Uint64 // the leading bits of a message's hash, and its votes in the last bits
}

// What the memo may take: at most memoCells × memoBytes.
const (
	memoCells        = 2048
	memoBytes        = 4 << 10
	memoMessageBytes = 512
	memoVotes        = 7 // of 8, a power of 2
)

// A remembered message is immutable.
type remembered struct {
	text    string // the message
	message message
	asked   rules.Request
	quota   []quota
	plan    *rules.Template
	decoded int64 // what calls are charged
}

func newMemo() memo { return memo{seed: maphash.MakeSeed()} }

// A location is where a message belongs; zero for a message that is too long.
type location struct {
	*memoCell
	hash uint64
}

// find returns what is remembered of a message under the rules, or nil, and where it belongs.
func (m *memo) find(set *rules.Set, raw []byte) (*remembered, location) {
	if len(raw) > memoMessageBytes {
		return nil, location{}
	}
	table := m.table.Load()
	if table == nil || table.set != set {
		table = &memoTable{set: set}
		m.table.Store(table)
	}
	hash := maphash.Bytes(m.seed, raw)
	at := location{&table.cells[hash%memoCells], hash}
	if held := at.held.Load(); held != nil && held.text == string(raw) {
		return held, at
	}
	return nil, at
}

// elects counts the vote of a message that was not found, and reports whether it is to be
// remembered. Votes that are lost between calls of the same moment do no harm.
func (at location) elects() bool {
	if at.memoCell == nil {
		return false
	}
	known, hash := at.candidate.Load(), at.hash&^memoVotes
	votes := known & memoVotes
	switch {
	case votes == 0:
		known = hash + 1
	case known&^memoVotes != hash:
		known--
	case votes < memoVotes:
		known++
	default:
		at.candidate.Store(0)
		return !at.used.Swap(false)
	}
	at.candidate.Store(known)
	return false
}

// recall returns the request of a remembered message, for another call.
func (at location) recall(ctx context.Context, call Charger, r *remembered) (Planned, error) {
	if call != nil {
		if err := call.Take(r.decoded); err != nil {
			return Planned{}, err
		}
	}
	if err := awaited(ctx); err != nil {
		return Planned{}, err
	}
	if err := callers.MayAsk(ctx, &r.asked); err != nil {
		return Planned{}, statusOf(err)
	}
	if !at.used.Load() {
		at.used.Store(true)
	}
	c := newCall(len(r.quota))
	copy(c.quota, r.quota)
	c.asked, c.plan = &r.asked, r.plan.Plan()
	return Planned{&r.message, c}, nil
}

// repeats reports whether the same message always gets the plan of the call, which is not too
// large to be remembered.
func (c *call) repeats() bool {
	return c.plan.Repeats() && c.plan.Unmatched == "" && c.rememberedBytes()+memoMessageBytes <= memoBytes
}

// rememberedBytes is about how much memory the remembered message takes, apart from its text.
func (c *call) rememberedBytes() int {
	const (
		descriptor = unsafe.Sizeof(Descriptor{}) + unsafe.Sizeof(own{}) + unsafe.Sizeof(rules.Ask{}) + unsafe.Sizeof([]rules.Entry{}) + unsafe.Sizeof(quota(0))
		entry      = unsafe.Sizeof(rules.Entry{})
		limit      = 1 << 10 // compiled
	)
	bytes := int(unsafe.Sizeof(remembered{})) + c.plan.TemplateBytes() + len(c.asked.Each)*int(descriptor)
	for i := range c.asked.Each {
		bytes += len(c.asked.Descriptors[i]) * int(entry)
		if c.asked.Each[i].Override != nil {
			bytes += limit
		}
	}
	return bytes
}

// remember remembers a message and the plan of its call, which was not taken. The memory of
// the message, which may serve other calls, is not kept.
func (s *Service) remember(set *rules.Set, at location, raw []byte, c *call) {
	r := &remembered{message: message{bounds: s.options.Bounds, shared: true}}
	m := &r.message
	if m.unmarshal(raw) != nil || m.refused != nil {
		return
	}
	n := len(m.request.Descriptors)
	r.asked.Descriptors, r.asked.Each = make([][]rules.Entry, n), make([]rules.Ask, n)
	if s.read(set, &m.request, &r.asked) != nil {
		return
	}
	r.text, r.quota, r.plan = m.text, slices.Clone(c.quota), c.plan.Template()
	r.decoded = decodedBytes(raw, n, len(m.entries))
	at.held.Store(r)
}
