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
	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), limits...)
	if err != nil {
		log.Fatal(err)
	}
	return limiter
}

// A worker keeps to a rate, and gives up at once where its deadline cannot be
// met.
func ExampleLimiter_Wait() {
	limiter := newLimiter(weir.Limit{Count: 1, Period: time.Minute, Burst: 2})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for job := range 3 {
		err := limiter.Wait(ctx, "mailbox")
		var late interface{ RetryAfter() time.Duration }
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
func ExampleCharge_keep() {
	limiter := newLimiter(weir.Limit{Count: 100, Period: time.Minute})
	take := func(class string, cost, keep int64) {
		a := limiter.Act(weir.KindTake, "model", cost)
		a.Charges[0].Keep = keep
		limiter.Take(context.Background(), []*weir.Act{a})
		if a.Err != nil {
			log.Fatal(a.Err)
		}
		fmt.Println(class, a.Decisions[0].Outcome, "remaining", a.Decisions[0].Remaining)
	}
	take("batch", 70, 30)
	take("batch", 1, 30)
	take("interactive", 1, 0)
	// Output:
	// batch granted remaining 0
	// batch refused remaining 0
	// interactive granted remaining 29
}

// A request is charged to the free tier, or else to the credits.
func ExampleAct_alternatives() {
	free, credits := weir.PerDay(10).MustCompile(), weir.PerDay(1000).MustCompile()
	store := memstore.New(memstore.Options{})
	for _, cost := range []int64{8, 8} {
		a := &weir.Act{
			Charges: []weir.Charge{
				{Key: "42 free", HashTag: "42", Limit: free, Cost: cost},
				{Key: "42 credits", HashTag: "42", Limit: credits, Cost: cost, Alt: 1},
			},
			Decisions: make([]weir.Decision, 2),
		}
		if store.Take(context.Background(), []*weir.Act{a}); a.Err != nil {
			log.Fatal(a.Err)
		}
		fmt.Println("free:", a.Decisions[0].Outcome, "credits:", a.Decisions[1].Outcome)
	}
	// Output:
	// free: granted credits: not_evaluated
	// free: not_evaluated credits: granted
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
		d, err := shares.AllowN(context.Background(), store, "gpu", ask.team, ask.units)
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
