package keylimit_test

import (
	"context"
	"fmt"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/memstore"
)

// Made-up names share one budget once a limit has as many keys as it may.
func ExampleWrap() {
	store := memstore.New(memstore.Options{})
	limits := keylimit.Wrap(store, keylimit.Options{Budget: func(l *weir.Limit) keylimit.Budget {
		return keylimit.Budget{MaxKeys: 100_000, Overflow: "too many of " + l.Name}
	}}) // or stack.Options.Distinct
	limiter, err := weir.NewLimiter(limits, weir.PerMinute(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := limiter.Allow(context.Background(), "user:7")
	fmt.Println(d.Allowed(), d.Remaining, err)
	// Output: true 9 <nil>
}
