package memstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

func Example_override() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{}) // or one in Redis
	api, err := weir.NewLimiter(store, "api", weir.PerMinute(10))
	if err != nil {
		log.Fatal(err)
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	more, none := weir.PerMinute(500), weir.PerMinute(0)
	for tenant, o := range map[string]weir.Override{
		"tenant:7": {Limit: &more, Until: tomorrow},
		"tenant:8": {Limit: &none, Until: tomorrow}, // blocked
		"tenant:9": {Until: tomorrow},               // no limit
	} {
		if err := api.SetOverride(tenant, o); err != nil {
			log.Fatal(err)
		}
	}
	for _, key := range []string{"tenant:6", "tenant:7", "tenant:8", "tenant:9"} {
		d, err := api.AllowN(ctx, key, 10)
		fmt.Println(key, d.Allowed(), d.Remaining, err)
	}
	fmt.Println(api.RemoveOverride("tenant:8"))
	// Output:
	// tenant:6 true 0 <nil>
	// tenant:7 true 490 <nil>
	// tenant:8 false 0 <nil>
	// tenant:9 true 1000000000 <nil>
	// true
}

func ExampleOptions_keyLimit() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{ // or one in Redis
		KeyLimit: func(l *weir.Limit) weir.KeyLimit {
			return weir.KeyLimit{MaxKeys: 2, Overflow: "too many of " + l.Name}
		},
	})
	limiter, err := weir.NewLimiter(store, "api", weir.PerMinute(10))
	if err != nil {
		log.Fatal(err)
	}
	for _, token := range []string{"one", "two", "three", "four"} {
		d, err := limiter.Allow(ctx, token)
		fmt.Println(token, d.Remaining, err)
	}
	fmt.Println("under one key:", store.Stats().Overflowed)
	// Output:
	// one 9 <nil>
	// two 9 <nil>
	// three 9 <nil>
	// four 8 <nil>
	// under one key: 2
}
