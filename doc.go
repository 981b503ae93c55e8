// Package weir decides whether a request fits a limit, and makes the answer
// hold across every host of a service.
//
// # The words
//
// A [Limit] is the rule: Count units per Period in the long run, and at most
// Burst of them at one instant. A [Charge] asks to spend Cost units of the
// budget that a key has under a limit. An [Act] is what one caller asks at one
// instant: all its charges are made, or none is. A [Decision] answers one
// charge. A [Taker] decides acts: the stores in memstore and redisstore are
// Takers, and so is everything that wraps them. A [Limiter] is what a program
// holds: a Taker and the limits that apply to a key.
//
// # The shape
//
// Steps decide, stores run steps, decorators wrap stores, front-ends ask, and
// nothing points back. The steps are in internal/algo, each written once in Go
// and once in Lua; the store that holds the state runs them where the state
// lives, at its own clock. A caller's clock never takes part in a decision.
//
// # Answers
//
// A denial is a value: [Decision.Allowed] is false and RetryAfter says when the
// same charge would pass. An error means that no decision was reached, and says
// by its class ([ErrInvalid], [ErrNotApplied], [ErrAmbiguous],
// [ErrMisconfigured], [ErrBackend]) what is known about the charge.
package weir
