package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// mutants are stores that break a promise, and the oracle that has to notice.
var mutants = []struct {
	name   string
	oracle string
	makeup makeup
	strike func(*world)
}{
	{"GET and SET for a script", "chains", makeup{over: getSet, ask: only("chain")}, peace},
	{"the clients' clocks", "bounds", makeup{hook: ownClock(time.Second), ask: only("sliding_log", "gcra", "token_bucket")}, peace},
	{"a lost reply is asked for again", "books", makeup{hook: insistent, ask: only("book")}, network(testserver.Drop)},
	{"an id is forgotten", "repeats", makeup{ask: only("repeat"), hook: rewritten("taken = r.state > TOMBSTONE", "taken = kind ~= TAKE and r.state > TOMBSTONE")}, network(testserver.Drop)},
	{"granted on an error, in the store's name", "away", makeup{over: lenient}, suspend},
	{"the future is believed", "recovers", makeup{clock: true, recovery: 2 * time.Second, hook: rewritten("clamped = at > ", "clamped = false and at > ")}, stepped(-time.Hour)},
	{"errors without a class", "errors", makeup{over: mute}, network(testserver.Refuse)},
}

// only are the subjects of these names.
func only(names ...string) []*subject {
	return slices.DeleteFunc(slices.Clone(subjects), func(s *subject) bool { return !slices.Contains(names, s.name) })
}

func peace(*world) { time.Sleep(2 * struck) }

// TestOraclesFindMutants shows that no oracle is content with everything.
func TestOraclesFindMutants(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, m := range mutants {
		seen[m.oracle] = true
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			var err error
			for range 40 { // on a busy machine too little may happen to be noticed
				if err = newWorld(t, m.makeup).run(1, m.strike)[m.oracle]; err != nil {
					break
				}
			}
			r := row{fault: "mutant: " + m.name, promise: "oracle " + m.oracle + " is red", measured: fmt.Sprint(err)}
			if err == nil {
				r.fail(t, "not noticed")
			}
			t.Log(err)
			report(r)
		})
	}
	for _, o := range oracles {
		if !seen[o.name] {
			t.Errorf("no mutant for oracle %q", o.name)
		}
	}
}

// A hook stands between a store and its connections.
type hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// noScript is what Redis says of a script that it does not know.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT" }
func (noScript) RedisError()   {}

// rewrite sends all scripts as text, changed.
func rewrite(change func(string) string) redis.Hook {
	return hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		switch args := cmd.Args(); args[0] {
		case "evalsha":
			cmd.SetErr(noScript{})
			return cmd.Err()
		case "eval":
			text := change(*args[1].(*string))
			args[1] = &text
		}
		return next(ctx, cmd)
	})
}

func rewritten(old, with string) func(int) redis.Hook {
	return func(int) redis.Hook {
		return rewrite(func(text string) string { return strings.ReplaceAll(text, old, with) })
	}
}

// ownClock has each instance go by its own clock, apart from the next one's.
func ownClock(apart time.Duration) func(int) redis.Hook {
	return func(instance int) redis.Hook {
		return rewrite(func(text string) string {
			now := time.Now().Add(time.Duration(instance) * apart).UnixMicro()
			return strings.ReplaceAll(text, "redis.call('TIME')", fmt.Sprintf("{%d, %d}", now/1_000_000, now%1_000_000))
		})
	}
}

// insistent sends again what got no answer, as clients do.
func insistent(int) redis.Hook {
	return hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		for range 5 {
			err := next(ctx, cmd)
			if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
				return err
			}
			cmd.SetErr(nil)
		}
		return next(ctx, cmd)
	})
}

// lenient grants what could not be asked, and says that the store did.
func lenient(next, _ weir.Taker) weir.Taker {
	return acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
		next.Take(ctx, all)
		for _, a := range all {
			if a.Err != nil {
				a.Err = nil
				a.Decisions[0] = weir.Decision{
					Outcome: weir.Granted, Source: acts.SourceStore, Granted: a.Charges[0].Cost, At: time.Now(),
				}
			}
		}
	})
}

// mute says that there was an error and not which.
func mute(next, _ weir.Taker) weir.Taker {
	return acts.TakerFunc(func(ctx context.Context, acts []*weir.Act) {
		next.Take(ctx, acts)
		for _, a := range acts {
			if a.Err != nil {
				a.Err = errors.New("something happened")
			}
		}
	})
}

// getSet decides takes of a window that never ends in the caller, between a read and
// a write.
func getSet(next, raw weir.Taker) weir.Taker {
	return acts.TakerFunc(func(ctx context.Context, all []*weir.Act) {
		a := all[0]
		l := a.Charges[0].Limit
		if a.Kind != acts.KindTake || a.ID != "" || l.Anchor != weir.AnchorFirst {
			next.Take(ctx, all)
			return
		}
		look, charge := *a, *a
		look.Charges = []weir.Charge{{Key: a.Charges[0].Key, Limit: l}}
		look.Decisions, charge.Decisions = make([]weir.Decision, 1), make([]weir.Decision, 1)
		raw.Take(ctx, []*weir.Act{&look})
		a.Err, a.Decisions[0] = look.Err, look.Decisions[0]
		d := &a.Decisions[0]
		if a.Err != nil || d.Remaining < a.Charges[0].Cost {
			d.Outcome, d.RetryAfter = weir.Refused, time.Hour
			return
		}
		charge.Kind = acts.KindRecord // whatever anybody else did meanwhile
		raw.Take(ctx, []*weir.Act{&charge})
		a.Err = charge.Err
		d.Granted, d.Remaining = a.Charges[0].Cost, d.Remaining-a.Charges[0].Cost
	})
}
