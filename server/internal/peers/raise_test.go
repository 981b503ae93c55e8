package peers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// raises says which raises an instance has, in short.
func (i *instance) raises() string {
	var all []string
	for _, o := range i.Raises() {
		all = append(all, fmt.Sprintf("%q %s +%d %s %s", o.Key, o.Raise.ID, o.Raise.Units, o.Raise.Meter, o.Raise.Note))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestRaisesSpread wants raises that two instances make of one key to add up on all of them, beside
// an override of the key, to end one by one, and to come back if Redis loses them.
func TestRaisesSpread(t *testing.T) {
	t.Parallel()
	client := connect(t, testserver.StartRedis(t))
	one, other := start(t, client), start(t, client)
	raise := func(i *instance, id string, units int64) override.Override {
		o := override.Override{Key: "a\x00{}", Until: time.Now().Add(time.Hour).Truncate(time.Millisecond), Raise: &override.Raise{ID: id, Units: units, Meter: "usd", Note: "demo"}}
		must(t, i.Set(o))
		must(t, i.announce(override.Change{Override: o}))
		return o
	}
	done := make(chan override.Override)
	go func() { done <- raise(one, "I", 50) }()
	go func() { done <- raise(other, "J", 20) }()
	<-done
	<-done
	must(t, one.set("a\x00{}", fast))
	all := []*instance{one, other}
	have := func(want string) {
		t.Helper()
		all = append(all, start(t, client))
		for _, i := range all {
			testserver.Eventually(t, "raises "+want, func() bool { return i.raises() == want })
			i.learns(t, `"a\x00{}" 100/min burst 20`)
		}
	}
	have(`"a\x00{}" I +50 usd demo, "a\x00{}" J +20 usd demo`)
	ended := override.Override{Key: "a\x00{}", Raise: &override.Raise{ID: "I"}}
	if !other.End(ended) {
		t.Error("the raise of another instance cannot be ended")
	}
	must(t, other.announce(override.Change{Override: ended, Ended: true}))
	have(`"a\x00{}" J +20 usd demo`)
	// An instance that has not noticed the loss would bring back what another one ends.
	must(t, client.FlushAll(t.Context()).Err())
	have(`"a\x00{}" J +20 usd demo`)
}
