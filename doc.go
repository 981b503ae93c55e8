// Package weir decides whether a request fits a limit. All hosts of a service can
// share the limit.
//
// # Types
//
// A [Limit] is the rule: Count units per Period in the long run, and at most
// Burst of them at one instant. A [Charge] asks to spend Cost units of the
// budget that a key has under a limit. An [Act] is the request of one caller at one
// instant: all its charges are made, or none is. A [Decision] answers one
// charge. A [Taker] decides acts: the stores in memstore and redisstore are
// Takers, and so are the layers that wrap them. Programs use a [Limiter], which
// combines a Taker with the limits that apply to a key.
//
// # Structure
//
// Steps decide, stores run steps, layers wrap stores, front ends ask, and
// nothing points back. The steps are in internal/algo, each written once in Go
// and once in Lua. The store that holds the state runs them where the state
// is, with its own clock. A caller's clock never takes part in a decision.
//
// # Answers
//
// A refusal is a value: [Decision.Allowed] is false, and RetryAfter is the time after
// which the same charge would be granted. An error means that no decision was reached.
// Its class ([ErrInvalid], [ErrNotApplied], [ErrAmbiguous], [ErrMisconfigured],
// [ErrBackend]) says what is known about the charge.
package weir
