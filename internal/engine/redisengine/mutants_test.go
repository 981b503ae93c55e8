package redisengine_test

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// mixed is all algorithms at once.
const mixed = weir.Algorithm(255)

// A mutation is a mistake that one could make in the Lua.
type mutation struct {
	name      string
	old, with string
	algorithm weir.Algorithm
}

var mutants = []mutation{
	{"a blocked key is granted", "or blocked(i)), 0", "), 0", weir.SlidingLog},
	{"a block is not reported", "outcome, wait = 6, max(wait, blocked_for(i))", "outcome = 6", weir.FixedWindow},
	{"a refusal extends a block", "REFUSED[i] and USED[b] == 0 and", "REFUSED[i] and", weir.GCRA},
	{"what is kept free blocks", "and not (KEEP and KEEP[i] > 0)", "", weir.GCRA},
	{"a cost that never fits blocks", "if outcome == 2 then\n      USED[b]", "if outcome > 1 then\n      USED[b]", weir.TokenBucket},
	{"a dry run blocks", "BLOCK and not fits and not dry and", "BLOCK and not fits and", weir.LeakyBucket},
	{"a reset leaves the block", "AT[k], USED[k], REM[k], AGED[k], DIRTY[k] = now, 0, 0, 0, 'reset'\n    end", "AT[k] = AT[k]\n    end", weir.RollingWindow},
	{"a recorded block adds", "max(USED[BLOCK[i]], min(blocked_units[i], RULE[BLOCK[i]][3]))", "min(USED[BLOCK[i]] + blocked_units[i], RULE[BLOCK[i]][3])", weir.SlidingCounter},
	{"> for >=", "now >= at + q then", "now > at + q then", weir.FixedWindow},
	{"a cost may exceed the room by one", "used + need > rule[3] or", "used + need > rule[3] + 1 or", weir.FixedWindow},
	{"the last unit is refused", "used + need > rule[3] or", "used + need >= rule[3] or", weir.TokenBucket},
	{"waits round down", "wait = at - floor(-((used + cost - burst) * den - rem) / num) * tick - now", "wait = at + floor(((used + cost - burst) * den - rem) / num) * tick - now", weir.GCRA},
	{"off by one refill", "min(floor((now - at) / period)", "min(floor((now - at) / period) + 1", weir.TokenBucket},
	{"a refusal is charged", "elseif REFUSED[i] and RULE[k][2] % 2 == 1 then", "elseif REFUSED[i] then", weir.SlidingLog},
	{"a charge not made is charged", "elseif REFUSED[i] and RULE[k][2] % 2 == 1 then", "elseif not REFUSED[i] then", weir.RollingWindow},
	{"a bucket is released at its start", "min(past - 1, floor(at / width))", "min(past, floor(at / width))", weir.RollingWindow},
	{"an act is left open before the next", "  pending[k] = 0\n", "", weir.GCRA},
	{"an undo comes after the next read", "  pending[k] = 0\n", "  pending[k] = 0\n  late = (late or 0) if fits then USED[k] = USED[k] - late late = 0 else USED[k] = USED[k] + cost late = late + cost end\n", weir.GCRA},
	{"an entry counts at the period's end", "      return at > past\n", "      return at >= past\n", weir.SlidingLog},
	{"one entry an instant replaces", "(rem + added) % 524288", "rem % 524288", weir.SlidingLog},
	{"the phase of a tick is lost", "used, rem = (t - ticks) * tick, used - units, rest - ticks * num", "used, rem = (t - ticks) * tick, used - units, 0", weir.GCRA},
	{"the clock going back refills", "clamped = at > now\nif clamped then\n  at = now\nend\nused = min(used, cap)", "clamped = at > now\nif clamped then\n  at, used = now, 0\nend\nused = min(used, cap)", weir.TokenBucket},
	{"a future is not written back", "elseif dirty or used ~= aged then", "elseif used ~= aged then", weir.FixedWindow},
	{"counters are kept in 16 bits", "local fit = wide < 65536 and 2 or wide < 16777216 and 3 or 4", "local fit = 2", weir.RollingWindow},
	{"a refund goes beyond full", "local gone = max(0, min(level, max(min(most, least), most - ago * num)))", "local gone = max(0, min(most, least), most - ago * num)", weir.GCRA},
	{"a refund gives back what has drained", "max(min(most, least), most - ago * num)", "most", weir.GCRA},
	{"a refund gives back tokens that came back", "units - refills * count", "units", weir.TokenBucket},
	{"a refund forgets that the bucket ran empty", "least = min(low[i], level)", "least = level", weir.GCRA},
	{"a refund stays in the history", "low[i - 1] > since and max(0, low[i] - gone) or", "low[i - 1] > since and low[i] or", weir.TokenBucket},
	{"a low-water mark above the level is kept", "while size > 14 and last_level >= level do", "while false do", weir.GCRA},
	{"low-water marks keep the unit of an old limit", "low[i] = floor(low[i] / low[2]) * den", "low[i] = low[i]", weir.GCRA},
	{"low-water marks outlive the last unit", "elseif level <= 0 then\n    ext = pack('>I7I7', now, den)", "elseif level <= 0 then\n    ext = ext", weir.TokenBucket},
	{"a refund looks into the future", "since >= at and since <= now", "since >= at", weir.SlidingCounter},
	{"a refund of an older bucket is forgotten", "ext[5][i % slots] = count - n", "local _ = count - n", weir.RollingWindow},
	{"released buckets are not cleared", "string.rep('\\0', n * bytes)", "call('GETRANGE', KEYS[k], 20 + from % (p + 1) * bytes, 19 + (from % (p + 1) + n) * bytes)", weir.RollingWindow},
	{"buckets side by side end with the string", "local n = min(last - i + 1, slots - slot)", "local n = last - i + 1", weir.RollingWindow},
	{"a leap ends one bucket late", "floor((bit / 8 - 20) / bytes) - slot, false", "floor((bit / 8 - 20) / bytes) - slot + 1, false", weir.RollingWindow},
	{"the last bucket is one of those without units", "i, n = i - n, 2 * n", "return i", weir.RollingWindow},
	{"two refunds of an act undo one another", "if not ext[6] or i < ext[5] then", "if true then", weir.SlidingLog},
	{"a repeat is charged again", "r.firm or find(r.standing, attempt) then\n      answered = pick(r.at, r.decisions, place, n)", "r.firm or find(r.standing, attempt) then\n      taken = false", weir.FixedWindow},
	{"other content repeats", "r.content ~= content then", "false then", weir.FixedWindow},
	{"a refused take replaces a tombstone", "refused_life > 0 and r.state ~= TOMBSTONE", "refused_life > 0", weir.FixedWindow},
	{"a refused take is settled", "kind ~= AMEND and r.state < OPEN then", "kind ~= AMEND and r.state < DENIED then", weir.FixedWindow},
	{"an act changes other charges than those of its take", "place[i] = find(r.lines, sub(lines, 8 * i - 7, 8 * i)) or false", "place[i] = i <= #r.lines / 8 and i", weir.FixedWindow},
	{"a closed id is closed again", "elseif kind ~= TAKE and r.state == CLOSED then", "elseif false then", weir.TokenBucket},
	{"another act answers as the one that closed the take", "and r.closed_as == content then", "then", weir.TokenBucket},
	{"a take comes back after its release", "if r.state == CLOSED and r.closed_by == RELEASE then", "if false then", weir.TokenBucket},
	{"more is refunded than was taken", "COST[i] > was then", "false then", weir.FixedWindow},
	{"a lease ends 1 µs late", "redis.pcall('ZCOUNT', key, string.format('(%.0f', now), '+inf')", "redis.pcall('ZCOUNT', key, string.format('%.0f', now), '+inf')", weir.Concurrency},
	{"the dead are renewed", "return till and till > now", "return till and till > 0", weir.Concurrency},
	{"a renewed lease is the limit's", "lease > 0 and lease or RULE[k][7]", "RULE[k][7]", weir.Concurrency},
	{"a holder is not let go", "ext[holder], used, back = 0, used - 1, 1", "used, back = used - 1, 1", weir.Concurrency},
	{"a refused take's refund frees a slot", "REM[k], DIRTY[k] = min(REM[k] + COST[i], 1000000000), true", "DIRTY[k] = true", weir.Concurrency},
	{"refused takes are never forgotten", "if at + q <= now then\n    rem = 0", "if false then\n    rem = 0", weir.Concurrency},
	{"an anonymous refund frees a named holder", "if #name > 16 and", "if", weir.Concurrency},
	{"all wait for the last bucket", "if aged - bucket(KEYS[k], ext, p, newest) >= leave then", "if false then", weir.RollingWindow},
	{"none waits for the last bucket", "if aged >= leave then", "if false then", weir.RollingWindow},
	{"older units are refunded first", "i = min(i, floor(at / width))", "i = max(first, min(i, floor(at / width)) - 1)", weir.RollingWindow},
	{"only the last instant is refunded", "left, sum, back = left - own,", "left, sum, back = 0,", weir.SlidingLog},
	{"a delay is missing", "delay = queued(k, cost - COST[i])", "delay = 0", weir.LeakyBucket},
	{"the impatient wait", "refused = delay > 0 and (immediate or", "refused = delay > 0 and (false or", weir.LeakyBucket},
	{"the max wait is ignored", "refused = delay > longest", "refused = false", weir.GCRA},
	{"a booking is due now", "refused = delay > longest", "refused, delay = delay > longest, 0", weir.TokenBucket},
	{"a refused booking waits for room", "wait = wait - longest", "wait = wait", weir.GCRA},
	{"a booking is cancelled before a later one", "pass = before > 0 and", "pass = before > 0 or", weir.GCRA},
	{"the first of an act goes back first", "for i = code == 0 and n or 0, 1, -1 do", "for i = 1, code == 0 and n or 0 do", weir.LeakyBucket},
	{"debts have no cap", "USED[k] = max(used, min(used + units, RULE[k][5]))", "USED[k] = used + units", weir.SlidingLog},
	{"what is settled above is not charged", "COST[i] = held[i] + force(KEY[i], missing[i])", "COST[i] = held[i] + missing[i]", weir.GCRA},
	{"a settle gives nothing back", "    give(k, was - cost, was, at, late)\n", "", weir.FixedWindow},
	{"the share of the last window is rounded down", "ext = -floor(-rem * (period - t % period) / period)", "ext = floor(rem * (period - t % period) / period)", weir.SlidingCounter},
	{"the share is stored", "used, at = used - ext, now\n", "at = now\n", weir.SlidingCounter},
	{"a reset is forgotten", "if dirty == 'reset' then\n    call('DEL', key)", "if dirty == 'reset' then\n    call('PING')", weir.GCRA},
	{"calendar windows end with the period", "window_end = at >= x and y or at >= q and x or q", "window_end = at + 86400000000", weir.FixedWindow},
	{"a window that the clock left is forgotten in the next", "clamped, at = at ~= window_end, window_end", "clamped, at = true, start", weir.FixedWindow},
	{"a charge before its window moves it", "at = max(at, now)", "at = now", weir.FixedWindow},
	{"a run may exceed the room by one", "used + cost <= burst then\n  if id", "used + cost <= burst + 1 then\n  if id", weir.FixedWindow},
	{"a run is granted as a whole", "min(times, floor((burst - used) / cost)) * cost", "times * cost", weir.GCRA},
	{"a run is granted once", "min(times, floor((burst - used) / cost)) * cost", "cost", weir.TokenBucket},
	{"a run is granted in part", "min(times, floor((burst - used) / cost)) * cost", "min(times * cost, burst - used)", weir.SlidingCounter},
	{"one refusal of a run is charged", "refused = most and granted > 0 and 0 or refused - granted", "refused = 0", weir.FixedWindow},
	{"a run's refusals are charged without cap", "min(used + refused, debt)", "used + refused", weir.GCRA},
	{"a run's refusals are charged", "refused > 0 and flags % 2 == 1", "refused > 0", weir.RollingWindow},
	{"the rest of an up-to is refused", "most and granted > 0 and 0 or refused - granted", "(most or refused) - granted", weir.TokenBucket},
	{"a run waits in an empty queue", "granted = used > 0 and 0 or", "granted = 0 and 0 or", weir.LeakyBucket},
	{"an up-to run grants its cost", "granted = min(most, burst - used)", "granted = cost", weir.SlidingLog},
	{"a run tells what it left", "granted, first, was, second", "granted, first, used, second", weir.GCRA},
	{"a run does not tell its wait", "first, second = fresh, wait", "first, second = fresh, 0", weir.RollingWindow},
	{"a run does not tell its share", "first = ext", "first = 0", weir.SlidingCounter},
	{"a second run starts afresh", "until how % 8 < 4", "used = how % 8 < 4 and used or aged\nuntil how % 8 < 4", weir.GCRA},
	{"an amendment charges all once more", "missing[i], REFUNDABLE[k] = due - was, true", "missing[i], REFUNDABLE[k] = due, true", weir.GCRA},
	{"an amendment gives nothing back", "      give(k, was - due, was + (elsewhere and queue[k] or 0), at, late)\n", "", weir.SlidingLog},
	{"an amendment tells what is charged", "pack(DECISION, outcome, units, room, wait, fresh, late)", "pack(DECISION, outcome, COST[i], room, wait, fresh, late)", weir.TokenBucket},
	{"an amendment forgets what is charged", "held[i], since[i], delay[i] = unpack('>I7I7I7', r.held, 21 * j - 20)", "held[i] = was", weir.SlidingLog},
	{"a closed take is amended", "kind == AMEND and (r.state == CLOSED or", "kind == AMEND and (", weir.FixedWindow},
	{"a holder who is there has no slot", "    return force(k, units)\n  end\n  if not holds", "    return force(k, units)\n  end\n  if true then return 0 end\n  if not holds", weir.Concurrency},
	{"a refusal that was told is not charged", "due = outcome % 2 == 0 and outcome > 0 and RULE[k][2] % 2 == 1 and cost or 0", "due = 0", weir.FixedWindow},
	{"a charged refusal is charged as a grant", "charged[i] = USED[k] - was\n", "charged[i] = 0\n", weir.TokenBucket},
	{"what is kept is one too few", "used + cost + keep > burst then", "used + cost + keep > burst + 1 then", weir.GCRA},
	{"one of the units that are kept may be taken", "local keep = KEEP and KEEP[i] or 0\nlocal rule", "local keep = KEEP and KEEP[i] > 0 and KEEP[i] - 1 or KEEP and KEEP[i] or 0\nlocal rule", weir.GCRA},
	{"what is kept may be taken", "cost + keep\nlocal refused", "cost\nlocal refused", weir.TokenBucket},
	{"an up-to takes what is kept", "USED[k] - keep) / (SUM", "USED[k]) / (SUM", weir.SlidingCounter},
	{"what is kept seems to remain", "max(0, burst - used - keep)", "max(0, burst - used)", weir.FixedWindow},
	{"an amendment tells what is kept", "max(0, burst - used - (KEEP and max(0, KEEP[i]) or 0))", "max(0, burst - used)", weir.GCRA},
	{"a wait forgets what is kept", "waits(k, cost + keep)", "waits(k, cost)", weir.SlidingLog},
	{"a run takes what is kept", "burst = burst - keep", "", weir.RollingWindow},
	{"the last alternative is chosen", "not chosen", "true", weir.GCRA},
	{"every alternative is asked for", "pending[KEY[j]] = pending[KEY[j]] - COST[j]", "", weir.TokenBucket},
	{"a group asks for nothing", "pending[KEY[j]] = pending[KEY[j]] + COST[j]", "", weir.SlidingLog},
	{"the last alternative to wait for is the soonest", "not soonest or longer < shortest", "true", weir.RollingWindow},
	{"all alternatives are charged", "SKIP[i] = i < chosen or i > chosen_last", "SKIP[i] = false", weir.FixedWindow},
	{"an alternative that was not granted is settled", "(outcome == 0 or outcome == 5) and outcome", "outcome == 5 and outcome", weir.GCRA},
	{"a charge that was waived is settled", "(outcome == 0 or outcome == 5) and outcome", "outcome == 0 and outcome", weir.GCRA},
	{"a charge that is waived is granted", "outcome, granted, wait, fresh, delay = 5, 0, 0, 0, 0", "outcome, granted, wait, delay = 1, 0, 0, 0", weir.TokenBucket},
	{"a take that costs nothing is made in all alternatives", "if chosen and (holds or not peeks) then", "if chosen and not peeks then", weir.GCRA},
	{"a take that costs nothing is made in the first alternative", "units = min(units, rule[3] - used - need, blocked(i) and 0 or units)", "units = 0", weir.GCRA},
	{"a guarantee is refused by its budget", "keep >= 0 and used + need > rule[3]", "used + need > rule[3]", weir.GCRA},
	{"a guarantee is charged beyond any debt", "cost = max(0, RULE[k][5] - USED[k])", "cost = cost", weir.GCRA},
	{"a guaranteed charge seems to have more room", "KEEP and max(0, KEEP[i]) or 0\n  if fits", "KEEP and KEEP[i] or 0\n  if fits", weir.GCRA},
	{"an up-to is as small as its budget", "(SKIP and SKIP[i] or keep < 0) and most", "SKIP and SKIP[i] and most", weir.GCRA},
	{"an up-to takes the first alternative", "units > granted", "false", weir.TokenBucket},
	{"what is left of other alternatives is not told", "outcome, granted, wait, fresh, delay = 0, 0, 0, 0, 0", "outcome, granted, room, wait, fresh, delay = 0, 0, 0, 0, 0, 0", weir.FixedWindow},
	{"a withdrawal withdraws all attempts", "elseif r.firm or r.standing ~= '' then", "elseif r.firm then", weir.FixedWindow},
	{"a withdrawn attempt is charged", "elseif kind == TAKE and attempt ~= NOBODY and find(r.withdrawn, attempt) then", "elseif false then", weir.GCRA},
	{"an earlier withdrawal is forgotten", "r.withdrawn = sub(r.withdrawn .. attempt, -MOST)", "r.withdrawn = attempt", weir.FixedWindow},
	{"a repeat is no attempt", "r.standing .. attempt\n      note", "r.standing\n      note", weir.TokenBucket},
	{"an amendment is not firm", "r.firm = r.firm or not elsewhere", "r.firm = r.firm", weir.FixedWindow},
	{"a renewal is not firm", "r.firm, r.early = true, nil", "r.early = nil", weir.Concurrency},
	{"an early end is forgotten", "if not r.early and not dry then", "if false then", weir.GCRA},
	{"a take forgets an early end", "early = r.early, lines = lines", "lines = lines", weir.FixedWindow},
	{"an early settlement releases", "return kind == RELEASE and 0 or", "return 0 or", weir.TokenBucket},
	{"a take that was ended early is not closed", "if r.early and granted and not elsewhere then", "if false then", weir.FixedWindow},
	{"a take with an ID keeps no low-water marks", "REFUNDABLE[k] = REFUNDABLE[k] or record > 0 and cost > 0", "", weir.GCRA},
	{"an act that waits changes its record", "record > 0 and not outside then", "record > 0 then", mixed},
	{"a later act overtakes", "outside = outside or rule", "outside = rule", mixed},
}

// early are the seeds of histories in which rare mistakes show soon.
var early = map[string]uint64{
	"a blocked key is granted":                 4,
	"a refusal extends a block":                2,
	"> for >=":                                 21,
	"counters are kept in 16 bits":             15,
	"a low-water mark above the level is kept": 8,
	"two refunds of an act undo one another":   155,
	"a refused take replaces a tombstone":      2,
	"a settle gives nothing back":              9,
	"calendar windows end with the period":     2,
	"one refusal of a run is charged":          16,
	"a run's refusals are charged without cap": 2,
	"the rest of an up-to is refused":          18,
	"a run waits in an empty queue":            2,
	"an amendment tells what is charged":       8,
	"a refusal that was told is not charged":   4,
	"a charged refusal is charged as a grant":  2,
	"a guarantee is charged beyond any debt":   13,
	"an up-to is as small as its budget":       5,
	"an earlier withdrawal is forgotten":       7,
	"a repeat is no attempt":                   19,
	"a renewal is not firm":                    77,
	"a take forgets an early end":              28,
	"an act that waits changes its record":     1045,
}

// TestTwinsFindMutants shows that the comparison of the twins notices each of
// them.
func TestTwinsFindMutants(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the twins for each mutant")
	}
	address := testserver.StartRedis(t).Addr()
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			found := false
			mutate := func(text string) string {
				found = found || strings.Contains(text, m.old)
				return strings.ReplaceAll(text, m.old, m.with)
			}
			algorithms := []weir.Algorithm{m.algorithm}
			if m.algorithm == mixed {
				algorithms = nil
			}
			w := twins(t, address, "mutant:"+m.name+":", mutate, algorithms...)
			if !found {
				t.Fatalf("the scripts have no %q", m.old)
			}
			w.Blocks = strings.Contains(m.name, "block")
			w.Waives = strings.Contains(m.name, "waived") || strings.Contains(m.name, "costs nothing")
			if seed, rare := early[m.name]; rare {
				w.Seed = seed
			}
			if err := w.Compare(60_000); err == nil {
				t.Error("not noticed in 60 000 acts")
			}
		})
	}
}
