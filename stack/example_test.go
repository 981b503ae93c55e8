package stack_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/lease"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/stack"
)

func ExampleNew_leases() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{}) // or one in Redis

	limits := stack.New(store, stack.Options{Lease: lease.Options{
		Leased: func(l *weir.Limit) bool { return l.Name == "events" },
	}})
	limits.Start()
	limiter, err := weir.NewLimiter(limits, weir.Limit{Name: "events", Count: 1_000_000, Period: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 1000 {
		if _, err := limiter.Allow(ctx, "tenant:7"); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("without asking the store:", limits.Lease().Stats().Spent > 900)
	fmt.Println("given back:", limits.Stop(ctx) == nil)
	// Output:
	// without asking the store: true
	// given back: true
}
