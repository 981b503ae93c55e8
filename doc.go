// Package weir limits rates: it decides whether a request fits a limit, for one process or
// for all hosts of a service that share a store.
//
//	limiter, err := weir.NewLimiter(memstore.New(memstore.Options{}), "api", weir.PerMinute(100))
//	if err != nil {
//		return err
//	}
//	d, err := limiter.Allow(ctx, "user:42")
//	switch {
//	case err != nil: // no decision was reached
//	case d.Allowed(): // serve the request
//	default: // refused by d.Limit; try again after d.RetryAfter
//	}
//
// # Limits
//
// A [Limit] grants Count units per Period in the long run, and at most Burst of them at
// once. Make one with [PerSecond], [PerMinute], [PerHour], [PerDay] or [Per], fill in the
// struct, or let [ParseLimit] read text such as "100/min burst 20". The [Algorithm] of a
// limit says how it counts.
//
// # Limiters
//
// A [Limiter] applies one or several limits to any number of keys. Its store is memory, see
// memstore, or a Redis that all hosts share, see redisstore. Its name begins every
// key in the store, so two limiters share a budget only if they have the same name.
// [Limiter.Allow] charges one unit and [Limiter.AllowN] several. [Limiter.AllowUpTo] charges
// as many as fit, and [Limiter.AllowOnce] charges once, however often a call is repeated.
// [Limiter.Peek] charges nothing, [Limiter.Refund] returns units, and [Limiter.Reset] makes
// a key fresh. [Limiter.SetOverride] gives one key another limit for a time.
//
// # Several keys
//
// [Together] charges several keys in one decision, all or none:
//
//	d, err := weir.Together(perUser.Cost(user, 1), perTenant.Cost(tenant, 1)).Allow(ctx)
//
// [Limiter.Otherwise] tries a second budget if the first one has no room, [Limiter.Keeping]
// leaves units to others, and [Shares] divide one budget.
//
// # Waiting
//
// [Limiter.Wait] sleeps until a unit may be used. If the deadline of the context is earlier, it
// returns a [*WaitError] at once. [Limiter.Reserve] books units ahead and says when they may
// be used.
//
// # Holding
//
// [Limiter.Hold] charges an estimate, or takes a slot of a [Concurrency] limit.
// [Hold.Settle] replaces it by the actual cost, and [Hold.Release] undoes the hold.
//
// # Answers
//
// A [Decision] says whether the request is granted, which limit decided, how many units
// remain, and how long to wait. A refusal is a decision, not an error.
//
// # Errors
//
// An error means that no decision was reached. It wraps one of five classes, which say what
// is known about the charge: [ErrInvalid], [ErrNotApplied], [ErrAmbiguous],
// [ErrMisconfigured], [ErrBackend].
//
// # For stores and layers
//
// Programs that only limit requests need nothing of this. A [Taker] decides acts: the stores
// in memstore and redisstore are Takers, and so is every layer around them. An [Act] is one
// caller's request at one instant, a [Charge] asks for units of one key, and a [Decision]
// answers one charge by the store's clock; a caller's clock never takes part.
package weir
