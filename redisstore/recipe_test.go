package redisstore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/redisstore"
)

// TestRecipe compares a recipe with what a store leaves in Redis. That its rules
// are the store's is for the gateway in examples/openresty to show.
func TestRecipe(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: testserver.StartRedis(t).Addr()})
	defer client.Close()
	o := redisstore.Options{Prefix: "p:", Secret: "s"}
	store, err := redisstore.New(client, o)
	if err != nil {
		t.Fatal(err)
	}
	for id := range algo.Steps {
		limit := weir.Limit{Name: "n", Algorithm: weir.Algorithm(id), Count: 7, Period: time.Minute}
		recipe, err := redisstore.NewRecipe(o, limit)
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := weir.NewLimiter(store, "test", limit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := limiter.Hold(ctx, "who", 1, 0); err != nil {
			t.Fatal(err)
		}
		packed := recipe.Limits[0]
		keys, err := client.Keys(ctx, recipe.Prefix+"{????}"+packed.Kind+":who#n").Result()
		if err != nil || len(keys) != 1 {
			t.Fatalf("%v: keys %v, %v", limit.Algorithm, keys, err)
		}
		ttl, err := strconv.ParseInt(packed.TTL, 10, 64)
		left := client.PTTL(ctx, keys[0]).Val()
		if off := time.Duration(ttl)*time.Millisecond - left; err != nil || off < 0 || off > 30*time.Second {
			t.Errorf("%v: ttl %q, %v, Redis says %v", limit.Algorithm, packed.TTL, err, left)
		}
		if packed.Name != "n" || packed.Count != 7 || len(packed.Rule) != 2*51 {
			t.Errorf("%v: %+v", limit.Algorithm, packed)
		}
	}
}

func TestRecipeNamesTheScript(t *testing.T) {
	t.Parallel()
	recipe, err := redisstore.NewRecipe(redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha1.Sum([]byte(redisstore.Script()))
	if recipe.SHA != hex.EncodeToString(sum[:]) || recipe.Prefix != "weir:" || !strings.HasPrefix(redisstore.Script(), "-- Decides acts") {
		t.Errorf("%+v", recipe)
	}
}

func TestRecipeRefuses(t *testing.T) {
	t.Parallel()
	for field, build := range map[string]func() (*redisstore.Recipe, error){
		"prefix": func() (*redisstore.Recipe, error) { return redisstore.NewRecipe(redisstore.Options{Prefix: "{"}) },
		"period": func() (*redisstore.Recipe, error) {
			return redisstore.NewRecipe(redisstore.Options{}, weir.Limit{Count: 1})
		},
		"time_zone": func() (*redisstore.Recipe, error) {
			return redisstore.NewRecipe(redisstore.Options{}, weir.Limit{Count: 1, Period: 24 * time.Hour, Algorithm: weir.FixedWindow, TimeZone: "UTC"})
		},
	} {
		var invalid *weir.InvalidError
		if recipe, err := build(); recipe != nil || !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %+v, %v", field, recipe, err)
		}
	}
}
