package redisengine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

func dial(t testing.TB, address string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func open(t testing.TB, client redis.UniversalClient, o redisengine.Options) *redisengine.Store {
	t.Helper()
	// A busy machine is late, and nobody asks how much.
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	store, err := redisengine.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

var perDay = weir.PerDay(100).MustCompile()

func takeOne(store weir.Taker, key string) *weir.Act {
	a := storetest.NewAct(weir.Charge{Key: key, Limit: perDay, Cost: 1})
	store.Take(context.Background(), []*weir.Act{a})
	return a
}

func TestScriptIsLoadedWhereItIsUnknown(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	store := open(t, client, redisengine.Options{})
	for i := range 5 {
		client.ScriptFlush(context.Background())
		if a := takeOne(store, "k"); a.Err != nil || a.Decisions[0].Remaining != int64(99-i) {
			t.Errorf("after a flush: %+v %v", a.Decisions, a.Err)
		}
	}
}

// TestScriptIsToldOnce has many callers find the script unknown at once.
func TestScriptIsToldOnce(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	store := open(t, client, redisengine.Options{Timeout: time.Minute})
	const rounds, crowd = 5, 64
	for range rounds {
		client.ScriptFlush(context.Background())
		var callers sync.WaitGroup
		for i := range crowd {
			callers.Go(func() {
				if a := takeOne(store, fmt.Sprint("k", i)); a.Err != nil {
					t.Error(a.Err)
				}
			})
		}
		callers.Wait()
	}
	stats := client.Info(context.Background(), "commandstats").Val()
	_, rest, _ := strings.Cut(stats, "cmdstat_eval:calls=")
	text, _, _ := strings.Cut(rest, ",")
	if n, err := strconv.Atoi(text); err != nil || n < rounds || n > 2*rounds {
		t.Errorf("%q texts for %d callers, %d times", text, crowd, rounds)
	}
}

// TestLostReplyIsChargedOnce drops the connection after the script ran: the
// client's own retries, four in all by default, must not charge again.
func TestLostReplyIsChargedOnce(t *testing.T) {
	t.Parallel()
	address := testserver.StartRedis(t).Addr()
	direct := open(t, dial(t, address), redisengine.Options{})
	takeOne(direct, "warm the script cache")
	for _, punctual := range []bool{true, false} {
		var calls atomic.Int64
		proxy := testserver.StartProxy(t, address, func(request []byte) testserver.Fault {
			if bytes.Contains(bytes.ToLower(request), []byte("\r\neval")) && calls.Add(1) == 1 {
				return testserver.Drop
			}
			return testserver.Pass
		})
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: punctual})
		t.Cleanup(func() { _ = client.Close() })
		key := fmt.Sprint("lost", punctual)
		a := takeOne(open(t, client, redisengine.Options{}), key)
		if !errors.Is(a.Err, weir.ErrAmbiguous) {
			t.Errorf("a lost reply: %v", a.Err)
		}
		if a := takeOne(direct, key); a.Decisions[0].Remaining != 98 {
			t.Errorf("charged %d times, want once", 99-a.Decisions[0].Remaining)
		}
	}
}

// TestDeadlineHolds asks a server that never answers, through clients that keep
// to deadlines and clients that do not.
func TestDeadlineHolds(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, punctual := range []bool{true, false} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: punctual, ReadTimeout: time.Minute})
		t.Cleanup(func() { _ = client.Close() })
		store := open(t, client, redisengine.Options{})
		if a := takeOne(store, "k"); a.Err != nil {
			t.Fatal(a.Err)
		}
		server.Pause()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		a := storetest.NewAct(weir.Charge{Key: "k", Limit: perDay, Cost: 1})
		store.Take(ctx, []*weir.Act{a})
		cancel()
		server.Resume()
		if !errors.Is(a.Err, weir.ErrAmbiguous) || !errors.Is(a.Err, context.DeadlineExceeded) && !isTimeout(a.Err) {
			t.Errorf("punctual %v: %v", punctual, a.Err)
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// TestForeignValuesCountAsFresh puts what is not ours under our keys, alone and
// in a batch with others.
func TestForeignValuesCountAsFresh(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	ctx := context.Background()
	foreign := foreignValues(client)
	for id := range algo.Steps {
		l := weir.PerHour(10)
		l.Algorithm = weir.Algorithm(id)
		limit := l.MustCompile()
		for name, plant := range foreign {
			for _, companions := range []int{0, 3} {
				key := fmt.Sprint(name, companions)
				store := open(t, client, redisengine.Options{Prefix: fmt.Sprint("foreign", id, ":")})
				plant(store.KeyOf(&weir.Charge{Key: key, Limit: limit}))
				acts := []*weir.Act{storetest.NewAct(weir.Charge{Key: key, Limit: limit, Cost: 1})}
				for i := range companions {
					acts = append(acts, storetest.NewAct(weir.Charge{Key: fmt.Sprint(key, i), Limit: limit, Cost: 1}))
				}
				for i, a := range acts {
					if limit.Algorithm == weir.Concurrency {
						a.ID, a.Scope.Owner = fmt.Sprint("holder ", i), a.Charges[0].Key
					}
				}
				store.Take(ctx, acts)
				for i, a := range acts {
					if a.Err != nil || !a.Allowed() || a.Decisions[0].Remaining != 9 {
						t.Errorf("%v, %s, act %d of %d: %+v %v", limit, name, i, len(acts), a.Decisions, a.Err)
					}
				}
				if store.Foreign() != 1 {
					t.Errorf("%v, %s, %d companions: counted %d", limit, name, companions, store.Foreign())
				}
			}
		}
	}
}

// foreignValues are what else can lie under a key.
func foreignValues(client *redis.Client) map[string]func(key string) {
	ctx := context.Background()
	return map[string]func(key string){
		"text":     func(key string) { client.Set(ctx, key, "garbage", 0) },
		"empty":    func(key string) { client.Set(ctx, key, "", 0) },
		"zeroes":   func(key string) { client.Set(ctx, key, strings.Repeat("\x00", 40), 0) },
		"ones":     func(key string) { client.Set(ctx, key, strings.Repeat("\xff", 264), 0) },
		"megabyte": func(key string) { client.Set(ctx, key, strings.Repeat("x", 1<<20), 0) },
		"list":     func(key string) { client.RPush(ctx, key, "a", "b") },
		"hash":     func(key string) { client.HSet(ctx, key, "a", "b") },
		"set":      func(key string) { client.SAdd(ctx, key, "a") },
	}
}

// TestForeignRecordsCountAsUnknown puts what is not ours where ids are remembered.
func TestForeignRecordsCountAsUnknown(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	for id := range algo.Steps {
		l := weir.PerHour(10)
		l.Algorithm = weir.Algorithm(id)
		limit := l.MustCompile()
		for name, plant := range foreignValues(client) {
			store := open(t, client, redisengine.Options{Prefix: fmt.Sprint("records", id, ":")})
			act := func(kind weir.Kind, cost int64) *weir.Act {
				a := storetest.NewAct(weir.Charge{Key: name, Limit: limit, Cost: cost})
				a.Kind, a.ID, a.Scope.Owner = kind, "id "+name, a.Charges[0].Key
				return a
			}
			plant(store.RecordOf(act(acts.KindTake, 1)))
			settle, first, again := act(acts.KindSettle, 1), act(acts.KindTake, 1), act(acts.KindTake, 1)
			store.Take(context.Background(), []*weir.Act{settle, first, again})
			if !errors.Is(settle.Err, weir.ErrUnknownID) {
				t.Errorf("%v, %s: settled: %v", limit, name, settle.Err)
			}
			if !first.Allowed() || !again.Allowed() || first.Decisions[0] != again.Decisions[0] || first.Decisions[0].Remaining != 9 {
				t.Errorf("%v, %s: %+v %v, then %+v %v", limit, name, first.Decisions, first.Err, again.Decisions, again.Err)
			}
			// The settlement leaves a mark in its place.
			if n := store.Foreign(); n != 1 {
				t.Errorf("%v, %s: counted %d, want once", limit, name, n)
			}
		}
	}
}

// TestForeignPlacesAreFree asks for what a holder does under a key that is not
// ours.
func TestForeignPlacesAreFree(t *testing.T) {
	t.Parallel()
	client := dial(t, testserver.StartRedis(t).Addr())
	ctx := context.Background()
	limit := weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Hour}.MustCompile()
	for name, plant := range foreignValues(client) {
		store := open(t, client, redisengine.Options{Prefix: "places:"})
		act := func(kind weir.Kind, id string) *weir.Act {
			a := storetest.NewAct(weir.Charge{Key: name, Limit: limit, Cost: 1})
			a.Kind, a.ID, a.Scope.Owner = kind, id, a.Charges[0].Key
			store.Take(ctx, []*weir.Act{a})
			return a
		}
		act(acts.KindTake, "first")
		act(acts.KindTake, "second")
		key := store.KeyOf(&weir.Charge{Key: name, Limit: limit})
		client.Del(ctx, key)
		plant(key)
		if a := act(acts.KindRenew, "first"); !errors.Is(a.Err, weir.ErrUnknownID) {
			t.Errorf("%s: renewed: %+v %v", name, a.Decisions, a.Err)
		}
		if a := act(acts.KindRelease, "first"); a.Err != nil || a.Decisions[0].Granted != 0 || a.Decisions[0].Remaining != 2 {
			t.Errorf("%s: released: %+v %v", name, a.Decisions, a.Err)
		}
		if a := act(acts.KindTake, "third"); !a.Allowed() || a.Decisions[0].Remaining != 1 {
			t.Errorf("%s: taken: %+v %v", name, a.Decisions, a.Err)
		}
	}
}

func TestUnreachableIsNotApplied(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	if a := takeOne(open(t, dial(t, address), redisengine.Options{Timeout: time.Minute}), "k"); !errors.Is(a.Err, weir.ErrNotApplied) {
		t.Errorf("nobody listens: %v", a.Err)
	}
}

// A choked connection, while it is, takes nothing, as if the deadline of each write had passed
// before it began.
type choked struct {
	net.Conn
	is *atomic.Bool
}

func (c choked) Write(p []byte) (int, error) {
	if c.is.Load() {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
	return c.Conn.Write(p)
}

// TestUnwrittenIsNotApplied: a command whose end was not written is not charged, and the
// caller is told so.
func TestUnwrittenIsNotApplied(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	options := &redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}
	chokes, plain := new(atomic.Bool), redis.NewDialer(options)
	choking := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := plain(ctx, network, addr)
		return choked{conn, chokes}, err
	}
	options.Dialer = choking
	for name, punctual := range map[string]bool{"of a client": false, "whose calls are kept": true} {
		own := *options
		own.ContextTimeoutEnabled = punctual
		client := redis.NewClient(&own)
		t.Cleanup(func() { _ = client.Close() })
		store := open(t, client, redisengine.Options{})
		if a := takeOne(store, name); !a.Allowed() {
			t.Fatalf("%s: %v", name, a.Err)
		}
		chokes.Store(true)
		if a := takeOne(store, name); !errors.Is(a.Err, weir.ErrNotApplied) || errors.Is(a.Err, weir.ErrAmbiguous) {
			t.Errorf("%s: %v", name, a.Err)
		}
		chokes.Store(false)
		if got := spent(t, store, name, perDay); got != 1 {
			t.Errorf("%s: charged %d, granted 1", name, got)
		}
	}
}

func TestRefusedCredentialsAreMisconfiguration(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--requirepass", "secret")
	if a := takeOne(open(t, dial(t, server.Addr()), redisengine.Options{}), "k"); !errors.Is(a.Err, weir.ErrMisconfigured) {
		t.Errorf("no password: %v", a.Err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	client := dial(t, "127.0.0.1:1")
	for field, o := range map[string]redisengine.Options{
		"prefix":  {Prefix: "a{b}"},
		"timeout": {Timeout: -1},
	} {
		_, err := redisengine.New(client, o)
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := redisengine.New(nil, redisengine.Options{}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}
