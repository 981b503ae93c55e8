package redisengine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

// tagIn is the hash tag of a key as the Redis Cluster specification finds it.
func tagIn(name string) string {
	_, rest, found := strings.Cut(name, "{")
	tag, _, ended := strings.Cut(rest, "}")
	if !found || !ended || tag == "" {
		return name
	}
	return tag
}

// FuzzKeys: whatever a key and its slot are made of, a name in Redis lies where the
// store believes it to, where nothing but the slot says, and no other key has it.
func FuzzKeys(f *testing.F) {
	f.Add("user=1", "", "user=2", "", "")
	f.Add("}{a}", "{b}", "{}", "\x00", "secret")
	f.Add(strings.Repeat("long", 60), "", strings.Repeat("long", 60)+"er", "", "")
	f.Add("#AAAA", "s", ":#AAAA", "s", "")
	limits := fuzzLimits(f)
	f.Fuzz(func(t *testing.T, one, oneSlot, other, otherSlot, secret string) {
		n := newKeyer(defaultPrefix, secret)
		n.apart = true
		fuzztest.Within(t, fuzztest.MostBytes, 8*len(one+oneSlot+other+otherSlot+secret), func() {
			for _, limit := range limits {
				a, b := &weir.Charge{Key: one, HashTag: oneSlot, Limit: limit}, &weir.Charge{Key: other, HashTag: otherSlot, Limit: limit}
				nameA, nameB := n.name(a), n.name(b)
				if len(nameA) > len(defaultPrefix)+tagLength+5+maxPlainKey {
					t.Fatalf("%d bytes: %q", len(nameA), nameA)
				}
				if same := one == other && n.tagOf(tagSource(a)) == n.tagOf(tagSource(b)); same != (nameA == nameB) {
					t.Fatalf("%q in %q and %q in %q are named %q and %q", one, oneSlot, other, otherSlot, nameA, nameB)
				}
				if tag := tagIn(nameA); len(tag) != tagLength || strings.Trim(tag, tagLetters) != "" {
					t.Fatalf("%q lies where %q does", nameA, tag)
				}
				if tagSource(a) == tagSource(b) && tagIn(nameA) != tagIn(nameB) {
					t.Fatalf("%q and %q of one slot lie apart", nameA, nameB)
				}
				record := n.record(&weir.Act{ID: other, Charges: []weir.Charge{*a}})
				if record == nameA || tagIn(record) != tagIn(nameA) {
					t.Fatalf("the id's record %q and the key %q", record, nameA)
				}
			}
		})
	})
}

// fuzzLimits has a limit of each algorithm, and some that are read differently.
func fuzzLimits(t testing.TB) []*weir.Limit {
	t.Helper()
	var limits []*weir.Limit
	for id := range algo.Steps {
		for _, refused := range []bool{false, true} {
			limit, err := weir.Limit{Algorithm: weir.Algorithm(id), Count: 5, Period: time.Minute, ChargeRefused: refused}.Compile()
			if err == nil {
				limits = append(limits, limit)
			}
		}
	}
	return limits
}

// FuzzReply: whatever a reply holds, it is read to its end or is an error of the
// store's, and makes no decision that none can be.
func FuzzReply(f *testing.F) {
	f.Add([]byte{}, uint32(0), int64(1))
	f.Add([]byte(strings.Repeat("\x00", 2+7+28)), uint32(0), int64(1))
	f.Add([]byte("\x00\x00\x00"+strings.Repeat("\x00", 7)+strings.Repeat("\x01"+strings.Repeat("\x00\x00\x00\x00\x00\x00\x01", 5), 2)), uint32(0x41), int64(2))
	f.Add([]byte(strings.Repeat("\xff", 100)), uint32(0x93), int64(1_000_000_000))
	// Two alternatives of an act with an id, one unit of which is kept: the second was granted.
	f.Add([]byte("\x00\x00\x00"+strings.Repeat("\x00", 7)+strings.Repeat("\x00", 36)+"\x01"+strings.Repeat("\x00\x00\x00\x00\x00\x00\x01", 5)), uint32(0x2180), int64(1))
	limits := fuzzLimits(f)
	f.Fuzz(func(t *testing.T, reply []byte, shape uint32, cost int64) {
		fuzztest.Within(t, fuzztest.MostBytes, len(reply), func() {
			acts := fuzzActs(limits, shape, cost)
			b := newBatch(newKeyer(defaultPrefix, ""), 1)
			if n := b.fill(acts); n == 0 || len(b.acts) == 0 {
				return // no store is asked
			}
			b.pack(nil)
			_, err := b.decode(string(reply))
			if err != nil {
				if !errors.Is(err, weir.ErrBackend) {
					t.Errorf("%T %v", err, err)
				}
				return
			}
			for _, a := range b.acts {
				wantDecisions(t, a)
			}
		})
	})
}

// fuzzActs returns acts of a shape: how many, of which limit and kind, and with which
// options. Some are invalid.
func fuzzActs(limits []*weir.Limit, shape uint32, cost int64) []*weir.Act {
	choose := func(bits int) int {
		n := shape & (1<<bits - 1)
		shape >>= bits
		return int(n)
	}
	limit, count, several, named := limits[choose(4)%len(limits)], 1+choose(2), choose(1) == 1, choose(1) == 1
	keep, groups, alternatives := int64(choose(1)), choose(2), 1+choose(2)
	kind := weir.Kind(choose(4)) % (acts.KindAmend + 1)
	anonymous, immediate, upTo, outcome := choose(1) == 1, choose(1) == 1, choose(1) == 1, weir.Outcome(choose(2))
	var acts []*weir.Act
	for i := range count {
		a := &weir.Act{Kind: kind, Anonymous: anonymous, Immediate: immediate}
		charge := func(group, alt int) {
			c := weir.Charge{Key: string(rune('a' + len(a.Charges))), HashTag: "t", Limit: limit, Cost: cost, Keep: keep, Group: uint8(group), Alt: uint8(alt), At: 1}
			if upTo {
				c.UpTo = 2 * cost
			}
			a.Charges = append(a.Charges, c)
		}
		if charge(0, 0); several {
			charge(0, 0)
		}
		for group := range groups {
			for alt := range alternatives {
				charge(group, 1+alt)
			}
		}
		if named || limit.Algorithm == weir.Concurrency && !anonymous {
			a.ID, a.Scope.Owner = "id"+string(rune('a'+i)), a.Charges[0].Key
		}
		a.Decisions = make([]weir.Decision, len(a.Charges))
		for i := range a.Decisions {
			a.Decisions[i].Outcome = outcome
		}
		acts = append(acts, a)
	}
	return acts
}

func wantDecisions(t *testing.T, a *weir.Act) {
	t.Helper()
	if a.Err != nil {
		return
	}
	for i, d := range a.Decisions {
		if d.Outcome > weir.NotCharged || d.Granted < 0 || d.Remaining < 0 || d.RetryAfter < 0 || d.ResetAfter < 0 || d.Delay < 0 {
			t.Errorf("%+v", d)
		}
		left := a.ID != "" || d.Source == acts.SourceNone && acts.Optional(a, i)
		if d.Outcome == weir.NotEvaluated && (!left || d != (weir.Decision{Source: d.Source, Remaining: d.Remaining})) {
			t.Errorf("charge %d of %v is not evaluated: %+v", i, a.Charges, d)
		}
	}
	if i, _ := a.Verdict(); a.Kind == acts.KindTake && i < 0 {
		t.Errorf("no charge speaks for %v", a.Decisions)
	}
}

// FuzzInfo: what INFO says is understood, or no reason to fail.
func FuzzInfo(f *testing.F) {
	f.Add("redis_version:7.0.15\r\nrole:slave\r\nmaxmemory_policy:allkeys-lru\r\ncluster_enabled:1\r\n", false)
	f.Add("redis_version:5\n:\n::", true)
	f.Fuzz(func(t *testing.T, info string, clustered bool) {
		fuzztest.Within(t, fuzztest.MostBytes, 2*len(info), func() {
			for _, found := range read(info, "node", clustered) {
				if found.Setting == "" || found.Detail == "" || found.Node != "node" {
					t.Errorf("%+v", found)
				}
			}
		})
	})
}
