package weir

import "context"

// A Taker decides acts. Stores implement it, layers wrap it, and a [Limiter] or a
// server uses it.
//
// Take decides every act of the slice, in order, each separately. When it
// returns, each act has either an Err or a Decision for every charge, in the
// order of its charges; nothing else in the act has changed. No other goroutine may use
// the acts until then.
//
// An error never means that a charge was refused. It means that no decision was
// reached, and its class (see [ErrInvalid] and those after it) says what is
// known. Cancelling ctx ends the wait, but not necessarily the charge.
//
// Implementations are safe for concurrent use.
//
// A Taker that decides from memory may also have the method
//
//	TakeOne(prefix, key string, limit *Limit, cost int64) (d Decision, decided bool)
//
// It decides a take of one valid charge, whose Key is the prefix and the key, as Take would,
// without an Act. If decided is false,
// nothing was charged, and the caller calls Take instead. A [Limiter] with one limit uses
// it to save a tenth of its time.
type Taker interface {
	Take(ctx context.Context, acts []*Act)
}

type oneTaker interface {
	TakeOne(prefix, key string, limit *Limit, cost int64) (d Decision, decided bool)
}

// As returns the first Taker that is a T: t itself, the Taker that t wraps, and so on. A
// layer that wraps another Taker has a method Unwrap() Taker.
func As[T any](t Taker) (found T, ok bool) {
	for t != nil {
		if found, ok = t.(T); ok {
			return found, true
		}
		layer, wraps := t.(interface{ Unwrap() Taker })
		if !wraps {
			break
		}
		t = layer.Unwrap()
	}
	return found, false
}
