package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/testserver"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

const patience = time.Minute // whatever else the machine does

func open(t *testing.T, server *testserver.Redis, o redisstore.Options) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: patience, WriteTimeout: patience})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisstore.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Stop(context.Background()) })
	return store
}

func limiter(t *testing.T, store weir.Taker, l weir.Limit) *weir.Limiter {
	t.Helper()
	made, err := weir.NewLimiter(store, "test", l)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestOptions: each option has its effect, which Stats counts.
func TestOptions(t *testing.T) {
	t.Parallel()
	store := open(t, testserver.StartRedis(t), redisstore.Options{
		Timeout: patience,
		Leased:  func(l *weir.Limit) bool { return l.Name == "leased" },
		KeyLimit: func(l *weir.Limit) weir.KeyLimit {
			if l.Name != "bounded" {
				return weir.KeyLimit{}
			}
			return weir.KeyLimit{MaxKeys: 1, Overflow: "others"}
		},
		MaxOverrides: 1,
	})
	store.Start()
	ask := func(l *weir.Limiter, key string, times int) {
		for range times {
			if _, err := l.Allow(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(limiter(t, store, weir.Limit{Name: "leased", Count: 1_000_000, Period: time.Hour}), "k", 200)
	ask(limiter(t, store, weir.Limit{Name: "bounded", Count: 10, Period: time.Hour}), "one", 1)
	ask(limiter(t, store, weir.Limit{Name: "bounded", Count: 10, Period: time.Hour}), "two", 3)
	small := limiter(t, store, weir.PerDay(1))
	ask(small, "k", 5)
	got := store.Stats()
	if got.Batches == 0 || got.BatchedActs < got.Batches || got.LeaseSpent == 0 || got.Overflowed != 3 || got.DenyCacheHits != 3 || got.Outages != 0 {
		t.Errorf("%+v", got)
	}
	more := weir.PerDay(5)
	until := time.Now().Add(time.Hour)
	if err := small.SetOverride("k", weir.Override{Limit: &more, Until: until}); err != nil {
		t.Fatal(err)
	}
	if all := store.Overrides(); len(all) != 1 || all[0].Name != "test:k" || all[0].Limit.Count != 5 {
		t.Errorf("overrides: %+v", all)
	}
	var invalid *weir.InvalidError
	if err := small.SetOverride("l", weir.Override{Until: until}); !errors.As(err, &invalid) || invalid.Field != "overrides" {
		t.Errorf("a second override: %v", err)
	}
	if found, err := store.Check(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestOnOutage: the policy of a limit decides while its Redis hangs, and none is an error.
func TestOnOutage(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	byLimit := map[string]redisstore.Policy{"local": redisstore.Local, "allow": redisstore.Allow, "deny": redisstore.Deny, "error": redisstore.Error}
	var log strings.Builder
	store := open(t, server, redisstore.Options{
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		OnOutage:  func(l *weir.Limit) redisstore.Policy { return byLimit[l.Name] },
		Instances: func() int { return 2 },
	})
	silent := open(t, server, redisstore.Options{})
	server.Pause()
	for name := range byLimit {
		var granted int
		var err error
		for range 10 {
			var d weir.Decision
			if d, err = limiter(t, store, weir.Limit{Name: name, Count: 4, Period: time.Hour}).Allow(t.Context(), "k"); d.Allowed() {
				granted++
			}
		}
		if want := map[string]int{"local": 2, "allow": 10}[name]; granted != want || (err != nil) != (name == "error") {
			t.Errorf("%s: %d granted, want %d: %v", name, granted, want, err)
		}
	}
	if _, err := limiter(t, silent, weir.PerDay(1)).Allow(t.Context(), "k"); err == nil {
		t.Error("no policy: want an error")
	}
	if got := store.Stats(); got.Outages != 1 || got.Local != 10 || got.Allowed != 10 || got.Denied != 10 || got.Errors == 0 || len(store.Outages()) != 1 {
		t.Errorf("%+v, %v", got, store.Outages())
	}
	server.Resume()
	if err := store.Stop(t.Context()); !strings.Contains(log.String(), "the store is unreachable") {
		t.Errorf("logged %s, %v", log.String(), err)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	for field, o := range map[string]redisstore.Options{
		"prefix": {Prefix: "{a}"}, "timeout": {Timeout: -1}, "lease_part": {LeasePart: 1.5}, "lease_time": {LeaseTime: -1},
		"deny_cache_max_age": {DenyCacheMaxAge: -1}, "max_overrides": {MaxOverrides: -1},
	} {
		var invalid *weir.InvalidError
		if _, err := redisstore.New(client, o); !errors.As(err, &invalid) || invalid.Field != field || invalid.Value == "" || invalid.Want == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := redisstore.New(nil, redisstore.Options{}); err == nil {
		t.Error("no client: want an error")
	}
}

// TestPublic: programs outside this module can name every type of the stores' interfaces.
func TestPublic(t *testing.T) {
	t.Parallel()
	seen := map[reflect.Type]bool{}
	var check func(where string, typ reflect.Type)
	check = func(where string, typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if strings.Contains(typ.PkgPath(), "/internal/") {
			t.Errorf("%s is a %v", where, typ)
			return
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			check(where, typ.Elem())
		case reflect.Func:
			for i := range typ.NumIn() {
				check(where, typ.In(i))
			}
			for i := range typ.NumOut() {
				check(where, typ.Out(i))
			}
		case reflect.Struct:
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() && strings.Contains(typ.PkgPath(), "weir/") {
					check(where+"."+f.Name, f.Type)
				}
			}
		}
	}
	check("redisstore.Options", reflect.TypeFor[redisstore.Options]())
	check("memstore.Options", reflect.TypeFor[memstore.Options]())
	for _, store := range []reflect.Type{reflect.TypeFor[*redisstore.Store](), reflect.TypeFor[*memstore.Store]()} {
		for i := range store.NumMethod() {
			check(store.Method(i).Name, store.Method(i).Type)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d types were found", len(seen))
	}
}
