package rlqs

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/server/internal/rules"
)

// TestOverrides: the limit that a key has at run time counts from the next lease on.
func TestOverrides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		set, store := parsed(t, some), stack.New(memengine.New(memengine.Options{}), stack.Options{})
		s := New(Options{Rules: func() *rules.Set { return set }, Taker: store})
		e := dial(t, s)
		key := "edge/a=1;a#1"
		override := func(limit *weir.Limit) {
			t.Helper()
			if err := store.Override.Set(override.Override{Key: key, Limit: limit, Until: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		// Envoy wants more than the limits grant.
		e.report(0, 1, "a", "1")
		spend := func() (last string) {
			t.Helper()
			for range 3 {
				if got := e.next(4 * time.Second); got != "" {
					last = got
				}
				e.report(20, 140, "a", "1")
			}
			return last[max(0, len(last)-32):]
		}
		for _, c := range []struct {
			limit *weir.Limit
			want  string
		}{
			{&weir.Limit{Count: 7, Period: time.Second}, "DENY_ALL for 6s, 7 for 6s"},
			{&weir.Limit{Period: time.Second}, "DENY_ALL for 6s"},
			{nil, "1000000000 for 6s"},
		} {
			limit := c.limit
			if limit != nil {
				limit = limit.MustCompile()
			}
			override(limit)
			if got := spend(); len(got) < len(c.want) || got[len(got)-len(c.want):] != c.want {
				t.Errorf("%v: got %q, want %q", c.limit, got, c.want)
			}
		}
		store.Override.Delete(key)
		if got := spend(); got[len(got)-len("30 for 6s"):] != "30 for 6s" {
			t.Errorf("afterwards: %q", got)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
	})
}
