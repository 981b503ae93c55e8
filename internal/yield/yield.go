// Package yield has a call announce that it is about to wait, so that another goroutine takes
// over what its own would keep from others.
//
// One goroutine reads a connection and answers itself what memory decides. A call that waits
// for the store passes the reading on:
//
//	reader 1   read a ── decide a in memory ── write ── read b ── Before ─┐ wait for the store ── write
//	reader 2                                                              └─ read c ── decide c ── write ── …
//
// The listener puts a [Yielder] into the context of each call, and the layers that wait for
// anything but memory call Before first. Neither knows the other.
package yield

import "context"

// A Yielder is notified when a call is about to wait for anything but memory.
type Yielder interface{ Yield() }

// Key is the key of a [Yielder] among the values of a call's context.
type Key struct{}

// Before tells the context's Yielder, if it has one, that the call is about to wait.
func Before(ctx context.Context) {
	if y, found := ctx.Value(Key{}).(Yielder); found {
		y.Yield()
	}
}
