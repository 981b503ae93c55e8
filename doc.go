// Package weir limits rates: it decides whether a request fits a limit, in this process or
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
// A [Limit] is Count units per Period in the long run, and at most Burst of them at one
// instant: [PerSecond], [PerMinute], [PerHour], [PerDay], [Per], or [ParseLimit] for text
// such as "100/min burst 20". Its [Algorithm] says how it counts.
//
// # Limiters
//
// A [Limiter] has a name, a store and one or several limits, which it applies to any number
// of keys. The name begins every key in the store, so two limiters share a budget only if
// they have the same name. [Limiter.Allow] charges one unit, [Limiter.AllowN] several,
// [Limiter.AllowUpTo] as many as fit, [Limiter.AllowOnce] once for each ID; [Limiter.Peek]
// charges nothing, [Limiter.Refund] returns units, and [Limiter.Reset] makes a key fresh.
// [Limiter.SetOverride] gives one key another limit for a time.
//
// # Several keys
//
// [Together] charges several keys of several limiters in one decision, all or none:
//
//	d, err := weir.Together(perUser.Cost(user, 1), perTenant.Cost(tenant, 1)).Allow(ctx)
//
// [Limiter.Otherwise] tries a second budget if the first one has no room,
// [Limiter.Keeping] leaves units to others, and [Shares] divide one budget.
//
// # Waiting
//
// [Limiter.Wait] sleeps until a unit may be used, and returns a [*WaitError] if that would
// take longer than the context lasts. [Limiter.Reserve] books ahead and says when.
//
// # Holding
//
// [Limiter.Hold] charges an estimate, or takes a slot of a [Concurrency] limit.
// [Hold.Settle] corrects the estimate afterwards, and [Hold.Release] undoes the hold.
//
// # Answers
//
// A [Decision] says whether the request is granted, which limit decided, how many units
// remain, and how long to wait. A refusal is a value, not an error.
//
// # Errors
//
// An error means that no decision was reached. It wraps one of five classes, which say what
// is known about the charge: [ErrInvalid], [ErrNotApplied], [ErrAmbiguous],
// [ErrMisconfigured], [ErrBackend].
//
// # For stores and layers
//
// A [Taker] decides acts: the stores in memstore and redisstore are Takers, and so is
// everything that wraps them. An [Act] is one caller's request at one instant, a [Charge]
// asks for units of one key, and a [Decision] answers one charge. The algorithms are in
// internal/algo, each written once in Go and once in Lua. The store that has the state runs
// them with its own clock; a caller's clock never takes part in a decision. Programs need
// none of this.
package weir
