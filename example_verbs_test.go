package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
)

// newLimiter is NewLimiter over a new memory store, for limits that are known to
// be right.
func newLimiter(limits ...weir.Limit) *weir.Limiter {
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", limits...)
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// A client that tries passwords is kept out for a while.
func ExampleLimit_block() {
	logins := newLimiter(weir.Limit{Count: 5, Period: time.Minute, Algorithm: weir.SlidingLog, Block: 15 * time.Minute})
	for range 5 {
		if _, err := logins.Allow(context.Background(), "ann"); err != nil {
			log.Fatal(err)
		}
	}
	d, err := logins.Allow(context.Background(), "ann")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Allowed(), d.Blocked, d.RetryAfter)
	// Output:
	// false true 15m0s
}

// A worker keeps to a rate, and gives up at once where its deadline cannot be
// met.
func ExampleLimiter_Wait() {
	limiter := newLimiter(weir.Limit{Count: 1, Period: time.Minute, Burst: 2})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for job := range 3 {
		err := limiter.Wait(ctx, "mailbox")
		var late *weir.WaitError
		switch {
		case errors.As(err, &late):
			fmt.Println("job", job, "would have to wait", late.RetryAfter().Round(time.Minute))
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("job", job, "sent")
		}
	}
	// Output:
	// job 0 sent
	// job 1 sent
	// job 2 would have to wait 1m0s
}

// A turn is booked ahead, and given back because it comes too late.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	limiter := newLimiter(weir.Limit{Count: 1, Period: time.Minute})
	for range 2 {
		r, err := limiter.Reserve(ctx, "printer", 1, time.Hour)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.OK(), "in", r.Delay().Round(time.Minute))
		if r.Delay() > 30*time.Second {
			given, err := r.Cancel(ctx)
			fmt.Println("gave back", given, err)
		}
	}
	// Output:
	// true in 0s
	// true in 1m0s
	// gave back 1 <nil>
}

// Tokens of a model are known only once it has answered: an estimate is charged,
// and corrected.
func ExampleLimiter_Hold() {
	ctx := context.Background()
	limiter := newLimiter(weir.PerDay(1000))
	h, err := limiter.Hold(ctx, "tenant:7", 800, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	if !h.OK() {
		fmt.Println("try again in", h.Decision().RetryAfter)
		return
	}
	// Gives all back if the answer fails before it begins, and does nothing
	// after Settle.
	defer h.Release(ctx)
	fmt.Println("left beside the estimate:", h.Decision().Remaining)

	d, err := h.Settle(ctx, 120)
	fmt.Println("left:", d.Remaining, err)
	// Output:
	// left beside the estimate: 200
	// left: 880 <nil>
}

// A place in a concurrency limit is held, and free again after Release, or once
// its lease has ended.
func ExampleLimiter_Hold_place() {
	ctx := context.Background()
	limiter := newLimiter(weir.Limit{Algorithm: weir.Concurrency, Count: 1, Period: time.Minute})
	for range 2 {
		h, err := limiter.Hold(ctx, "export", 1, 0)
		if err != nil {
			log.Fatal(err)
		}
		other, err := limiter.Hold(ctx, "export", 1, 0)
		fmt.Println(h.OK(), other.OK(), err)
		if err := h.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// true false <nil>
	// true false <nil>
}

// A request that failed is not counted.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	limiter := newLimiter(weir.Limit{Algorithm: weir.SlidingLog, Count: 10, Period: time.Hour})
	d, err := limiter.AllowN(ctx, "user:42", 3)
	if err != nil {
		log.Fatal(err)
	}
	given, err := limiter.Refund(ctx, "user:42", d, 2)
	fmt.Println("gave back", given, err)

	d, err = limiter.Peek(ctx, "user:42")
	fmt.Println("left:", d.Remaining, err)
	// Output:
	// gave back 2 <nil>
	// left: 9 <nil>
}

// A message that is delivered twice is charged once.
func ExampleLimiter_AllowOnce() {
	limiter := newLimiter(weir.PerDay(10))
	for range 2 {
		d, err := limiter.AllowOnce(context.Background(), "user:42", 4, "message 9f3c")
		fmt.Println(d.Allowed(), d.Remaining, err)
	}
	// Output:
	// true 6 <nil>
	// true 6 <nil>
}

// Batch jobs leave the last 30 units of a budget to interactive requests.
func ExampleLimiter_Keeping() {
	ctx := context.Background()
	interactive := newLimiter(weir.Limit{Count: 100, Period: time.Minute})
	batch := interactive.Keeping(30)
	for _, ask := range []struct {
		limiter *weir.Limiter
		units   int64
	}{{batch, 71}, {batch, 70}, {batch, 1}, {interactive, 1}} {
		d, err := ask.limiter.AllowN(ctx, "model", ask.units)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ask.units, d.Outcome, "remaining", d.Remaining)
	}
	// Output:
	// 71 refused remaining 70
	// 70 granted remaining 0
	// 1 refused remaining 0
	// 1 granted remaining 29
}

// A request is charged to the free tier, or else to the credits.
func ExampleLimiter_Otherwise() {
	ctx := context.Background()
	store := memstore.New(memstore.Options{})
	free, err := weir.NewLimiter(store, "free", weir.Limit{Count: 10, Period: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	credits, err := weir.NewLimiter(store, "credits", weir.Limit{Count: 1000, Period: 720 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := free.Otherwise(credits)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := limiter.AllowN(ctx, "user:42", 8)
		fmt.Println(d.Outcome, err)
	}
	left, err := credits.Peek(ctx, "user:42")
	fmt.Println("credits:", left.Remaining, err)
	// Output:
	// granted <nil>
	// granted <nil>
	// granted <nil>
	// credits: 984 <nil>
}

// Teams share a budget. The others may use what a team leaves unused, and the team gets its
// share again with its next request.
func ExampleShares() {
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 1000, Period: time.Minute, Burst: 200},
		Guarantees: map[string]int64{"search": 300, "ads": 500},
		Headroom:   60,
	}.Compile()
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{})
	for _, ask := range []struct {
		team  string
		units int64
	}{{"reports", 152}, {"reports", 1}, {"ads", 30}, {"search", 18}} {
		d, err := shares.Limiter(store, "budget", ask.team).AllowN(context.Background(), "gpu", ask.units)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ask.team, ask.units, d.Outcome)
	}
	// Output:
	// reports 152 granted
	// reports 1 refused
	// ads 30 granted
	// search 18 granted
}

// The tokens of an answer are known when it ends. A team holds an estimate, of what it is
// guaranteed or of what is left, and settles it.
func ExampleShares_Limiter() {
	ctx := context.Background()
	shares, err := weir.Shares{
		Limit:      weir.Limit{Count: 100_000, Period: time.Hour},
		Guarantees: map[string]int64{"search": 30_000, "ads": 50_000},
	}.Compile()
	if err != nil {
		log.Fatal(err)
	}
	ads := shares.Limiter(memstore.New(memstore.Options{}), "budget", "ads")
	h, err := ads.Hold(ctx, "tokens", 4000, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	if !h.OK() {
		fmt.Println("try again in", h.Decision().RetryAfter)
		return
	}
	defer h.Release(ctx)
	_, err = h.Settle(ctx, 1500)
	fmt.Println("settled:", err == nil)
	// Output: settled: true
}

// A user, a tenant and everyone are limited in one decision.
func ExampleTogether() {
	store := memstore.New(memstore.Options{})
	limiter := func(name string, count int64) *weir.Limiter {
		l, err := weir.NewLimiter(store, name, weir.Limit{Name: name, Count: count, Period: time.Minute})
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	perUser, perTenant, everyone := limiter("user", 2), limiter("tenant", 100), limiter("everyone", 1000)
	for range 3 {
		d, err := weir.Together(perUser.Cost("42", 1), perTenant.Cost("acme", 1), everyone.Cost("all", 1)).Allow(context.Background())
		fmt.Println(d.Outcome, "by the limit of", d.Limit.Name, err)
	}
	// Output:
	// granted by the limit of user <nil>
	// granted by the limit of user <nil>
	// refused by the limit of user <nil>
}

// Requests, tokens and a slot are held at once, and settled by what was used.
func ExampleJoint_Hold() {
	ctx, store := context.Background(), memstore.New(memstore.Options{})
	limiter := func(name string, limit weir.Limit) *weir.Limiter {
		l, err := weir.NewLimiter(store, name, limit)
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	requests := limiter("requests", weir.PerDay(1000))
	tokens := limiter("tokens", weir.PerDay(100_000))
	slots := limiter("slots", weir.Limit{Algorithm: weir.Concurrency, Count: 2, Period: time.Minute})

	h, err := weir.Together(requests.Cost("acme", 1), tokens.Cost("acme", 800), slots.Cost("acme", 1)).Hold(ctx, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	if !h.OK() {
		fmt.Println("try again in", h.Decision().RetryAfter)
		return
	}
	defer h.Release(ctx)
	_, err = h.Settle(ctx, 1, 120, 0) // what was used
	left, _ := tokens.Peek(ctx, "acme")
	fmt.Println(left.Remaining, "tokens are left", err)
	// Output: 99880 tokens are left <nil>
}
