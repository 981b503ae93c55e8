package redisstore_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// mutants are mistakes that one could make in the Lua.
var mutants = []struct {
	name      string
	old, with string
	algorithm weir.Algorithm
}{
	{"> for >=", "now >= at + period", "now > at + period", weir.FixedWindow},
	{"a cost may exceed the room by one", "USED[k] + sum > RULE[k][3]", "USED[k] + sum > RULE[k][3] + 1", weir.FixedWindow},
	{"the last unit is refused", "USED[k] + sum > RULE[k][3]", "USED[k] + sum >= RULE[k][3]", weir.TokenBucket},
	{"waits round down", "wait = at - floor(-((used + cost - burst) * den - rem) / num) * tick - now", "wait = at + floor(((used + cost - burst) * den - rem) / num) * tick - now", weir.GCRA},
	{"off by one refill", "min(floor((now - at) / period)", "min(floor((now - at) / period) + 1", weir.TokenBucket},
	{"a refusal is charged", "elseif REFUSED[i] and RULE[k][2] % 2 == 1 then", "elseif REFUSED[i] then", weir.SlidingLog},
	{"a spared charge is charged", "elseif REFUSED[i] and RULE[k][2] % 2 == 1 then", "elseif not REFUSED[i] then", weir.RollingWindow},
	{"a bucket is released at its start", "for i = floor(max(0, at - period) / width), min(first - 1, floor(at / width)) do", "for i = floor(max(0, at - period) / width), min(first, floor(at / width)) do", weir.RollingWindow},
	{"an act is left open before the next", "    pending[k] = 0\n", "", weir.GCRA},
	{"an undo comes after the next read", "    pending[k] = 0\n", "    pending[k] = 0\n    late = (late or 0) if fits then USED[k] = USED[k] - late late = 0 else USED[k] = USED[k] + cost late = late + cost end\n", weir.GCRA},
	{"an entry counts at the period's end", "      return at > past\n", "      return at >= past\n", weir.SlidingLog},
	{"one entry an instant replaces", "(rem + added) % 16777216", "rem % 16777216", weir.SlidingLog},
	{"the phase of a tick is lost", "used, rem = (t - ticks) * tick, used - units, rest - ticks * num", "used, rem = (t - ticks) * tick, used - units, 0", weir.GCRA},
	{"the clock going back refills", "clamped = at > now\nif clamped then\n  at = now\nend\nused = min(used, cap)", "clamped = at > now\nif clamped then\n  at, used = now, 0\nend\nused = min(used, cap)", weir.TokenBucket},
	{"a future is not written back", "if used ~= aged or DIRTY[k] then", "if used ~= aged then", weir.FixedWindow},
	{"counters are kept in 16 bits", "local fit = wide < 65536 and 2 or wide < 16777216 and 3 or 4", "local fit = 2", weir.RollingWindow},
}

// TestTwinsFindMutants shows that the comparison of the twins notices each of
// them.
func TestTwinsFindMutants(t *testing.T) {
	t.Parallel()
	address := storetest.StartRedis(t).Addr()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			mutate := func(text string) string {
				if !strings.Contains(text, m.old) {
					t.Fatalf("the script has no %q", m.old)
				}
				return strings.ReplaceAll(text, m.old, m.with)
			}
			w := twins(t, address, "mutant:"+m.name+":", mutate, m.algorithm)
			if err := w.Compare(20_000); err == nil {
				t.Error("not noticed in 20 000 acts")
			}
		})
	}
}
