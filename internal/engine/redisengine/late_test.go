package redisengine_test

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// keeping keeps the first script call about some key to itself, as a network may that
// hands it over when nobody waits any more.
type keeping struct {
	mu   sync.Mutex
	key  string // what is kept has it in a key's name; empty: nothing more is kept
	kept []any
}

var errKept = fmt.Errorf("kept: %w", context.DeadlineExceeded)

// DialHook changes nothing.
func (k *keeping) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (k *keeping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook keeps what is to be kept.
func (k *keeping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if k.keep(cmd) {
			cmd.SetErr(errKept)
			return errKept
		}
		return next(ctx, cmd)
	}
}

func (k *keeping) keep(cmd redis.Cmder) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.key == "" || !strings.HasPrefix(cmd.Name(), "eval") {
		return false
	}
	// The memory of a call is used again.
	var args []any
	about := false
	for _, arg := range cmd.Args() {
		switch a := arg.(type) {
		case *string:
			arg = *a
		case encoding.BinaryMarshaler:
			bytes, err := a.MarshalBinary()
			if err != nil {
				panic(err)
			}
			arg = string(bytes)
		}
		args = append(args, arg)
		about = about || strings.HasSuffix(fmt.Sprint(arg), ":"+k.key)
	}
	if about {
		k.key, k.kept = "", args
	}
	return about
}

// next has the next call about a key kept.
func (k *keeping) next(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.key, k.kept = key, nil
}

// latecomers is a store in a cluster, some of whose calls can be kept and handed over
// later.
type latecomers struct {
	*testing.T
	*redisengine.Store
	keeping *keeping
	client  *redis.ClusterClient
}

func newLatecomers(t *testing.T, cluster *testserver.Cluster, open func(redis.UniversalClient) (*redisengine.Store, error)) *latecomers {
	t.Helper()
	l := &latecomers{T: t, keeping: new(keeping), client: dialCluster(t, cluster)}
	store, err := open(l.client)
	if err != nil {
		t.Fatal(err)
	}
	l.Store = store
	l.client.AddHook(l.keeping)
	return l
}

// handOver runs the call that was kept, by the script's name or by its text where Redis
// has forgotten the script.
func (l *latecomers) handOver(flush bool) {
	l.Helper()
	args := slices.Clone(l.keeping.kept)
	if args == nil {
		l.Fatal("no call was kept")
	}
	if flush {
		if err := l.client.ForEachMaster(l.Context(), func(ctx context.Context, node *redis.Client) error { return node.ScriptFlush(ctx).Err() }); err != nil {
			l.Fatal(err)
		}
		if err := l.run(args); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			l.Fatalf("a script that was forgotten: %v", err)
		}
		args[0] = "eval"
		args[1] = redisengine.ScriptTexts()[1]
	}
	if err := l.run(args); err != nil {
		l.Fatal(err)
	}
}

func (l *latecomers) run(args []any) error {
	cmd := redis.NewCmd(l.Context(), args...)
	cmd.SetFirstKeyPos(3)
	return l.client.Process(l.Context(), cmd)
}

// ofTwo is an act over two slots, of which the second is full or not.
func ofTwo(key string, limit, last *weir.Limit, id string) *weir.Act {
	a := storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1}, weir.Charge{Key: "last of " + key, Limit: last, Cost: 1})
	a.ID, a.Scope.Owner = id, a.Charges[0].Key
	return a
}

// full makes the second key of ofTwo one that refuses.
func (l *latecomers) full(key string, last *weir.Limit) {
	l.Helper()
	a := storetest.NewAct(weir.Charge{Key: "last of " + key, Limit: last, Cost: 1})
	if l.Take(l.Context(), []*weir.Act{a}); !a.Allowed() {
		l.Fatalf("%+v, %v", a.Decisions, a.Err)
	}
}

// late returns what is charged of a key whose take is handed over after it was undone.
// Without an id the store undoes what it has no answer to. With one it leaves that to
// the caller, whose repeat is refused by the other slot and then undone.
func (l *latecomers) late(limit *weir.Limit, id string, flush bool) int64 {
	l.Helper()
	key, last := fmt.Sprint("first ", limit.Algorithm, id, flush), fixedOf(1)
	if id != "" {
		l.full(key, last)
		id += key
	}
	l.keeping.next(key)
	a := ofTwo(key, limit, last, id)
	if l.Take(l.Context(), []*weir.Act{a}); !errors.Is(a.Err, weir.ErrAmbiguous) {
		l.Fatalf("kept: %+v, %v", a.Decisions, a.Err)
	}
	if id != "" {
		a = ofTwo(key, limit, last, id)
		if l.Take(l.Context(), []*weir.Act{a}); a.Err != nil || a.Decisions[1].Outcome != weir.Refused {
			l.Fatalf("repeated: %+v, %v", a.Decisions, a.Err)
		}
	}
	if got := spent(l, l, key, limit); got != 0 {
		l.Fatalf("%s: %d charged once it was undone", key, got)
	}
	l.handOver(flush)
	return spent(l, l, key, limit)
}

// TestLateAfterUndone: what undoes a part overtakes it, and the part charges nothing
// when it arrives, under every algorithm and whatever became of the scripts.
func TestLateAfterUndone(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartCluster(t, 2)
	l := newLatecomers(t, cluster, func(client redis.UniversalClient) (*redisengine.Store, error) {
		return redisengine.New(client, redisengine.Options{Timeout: 10 * time.Second})
	})
	for _, flush := range []bool{false, true} {
		for id := range algo.Steps {
			limit := weir.Limit{Algorithm: weir.Algorithm(id), Count: 100, Period: 24 * time.Hour}.MustCompile()
			if got := l.late(limit, "id of ", flush); got != 0 {
				t.Errorf("%v, flushed %v: a late part with its caller's id charged %d", limit, flush, got)
			}
			if limit.Algorithm == weir.Concurrency {
				continue // nobody takes a place without an id
			}
			if got := l.late(limit, "", flush); got != 0 {
				t.Errorf("%v, flushed %v: a late part charged %d", limit, flush, got)
			}
		}
	}
	mutant := newLatecomers(t, cluster, func(client redis.UniversalClient) (*redisengine.Store, error) {
		return redisengine.NewMutated(client, redisengine.Options{Prefix: "mutant", Timeout: 10 * time.Second}, "if r and code == 0 then", "if false then")
	})
	if got := mutant.late(perDay, "", false); got != 1 {
		t.Errorf("without a trace of what was undone, a late part charged %d: not noticed", got)
	}
}

// TestOwnAmendYields: what a caller was told stands, whatever a store that has taken
// another slot's refusal for the act's answer amends before or after that.
func TestOwnAmendYields(t *testing.T) {
	t.Parallel()
	store := open(t, dial(t, testserver.StartRedis(t).Addr()), redisengine.Options{})
	limit := fixedOf(10)
	for _, order := range []string{"tao", "toa", "oat", "aot", "ota"} {
		act := func() *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: order, Limit: limit, Cost: 3})
			a.ID, a.Scope.Owner = order, a.Charges[0].Key
			return a
		}
		for _, what := range order {
			a := act()
			switch what {
			case 'o':
				store.Undo(t.Context(), a)
				continue
			case 'a':
				a.Kind, a.Decisions[0] = acts.KindAmend, weir.Decision{Outcome: weir.Granted, Granted: 3}
			}
			if store.Take(t.Context(), []*weir.Act{a}); a.Err != nil {
				t.Fatalf("%s: %v: %v", order, a.Kind, a.Err)
			}
		}
		if got := spent(t, store, order, limit); got != 3 {
			t.Errorf("%s: charged %d, told 3", order, got)
		}
		a := act()
		if store.Take(t.Context(), []*weir.Act{a}); !a.Allowed() {
			t.Errorf("%s: repeated: %+v %v", order, a.Decisions, a.Err)
		}
	}
}
