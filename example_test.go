package weir_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// A limit for each user, in this process.
func Example() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerMinute(3))
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		d, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(d.Allowed(), d.Remaining, d.RetryAfter.Round(time.Second), err)
	}
	// Output:
	// true 2 0s <nil>
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 20s <nil>
}

// A burst limit and a daily quota: a request is charged to both or to neither.
func ExampleNewLimiter_several() {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api",
		weir.Limit{Name: "burst", Count: 10, Period: time.Second},
		weir.Limit{Name: "quota", Count: 25, Period: 24 * time.Hour, Algorithm: weir.FixedWindow},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range []int64{8, 8} {
		d, _ := limiter.AllowN(context.Background(), "tenant:7", n)
		fmt.Println(d.Allowed(), d.Remaining)
	}
	d, _ := limiter.AllowUpTo(context.Background(), "tenant:7", 8)
	fmt.Println(d.Allowed(), d.Granted)
	// Output:
	// true 2
	// false 2
	// true 2
}

// The text form is what people write in flags and files.
func ExampleParseLimit() {
	for _, text := range []string{"100/min burst 20", "5/30s sliding_log", "10r/s", "5/fortnight"} {
		limit, err := weir.ParseLimit(text)
		fmt.Println(limit, err)
	}
	// Output:
	// 100/min burst 20 <nil>
	// 5/30s sliding_log <nil>
	// 10/s <nil>
	// 0/0s weir: period is "fortnight": want s, min, h, day, week, month, year or a duration such as 30s
}
