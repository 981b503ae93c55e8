package rls_test

import (
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/memengine"
	overrides "github.com/weirlimit/weir/internal/layer/override"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/rls"
)

// TestOverridden: answers tell the limit that was in force for the key, also where
// a look goes through a wider one.
func TestOverridden(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, clock: storetest.NewClock()}
	b.clock.Set(midday)
	taker := overrides.Wrap(memengine.New(memengine.Options{Now: b.clock.Now}), overrides.Options{Now: b.clock.Now})
	b.service = newService(t, "domain: d\ndescriptors: [{key: m, rate_limit: {unit: minute, requests_per_unit: 5}}]", rls.Options{
		Now: b.clock.Now, Taker: taker,
	})
	b.wants(`
		m=1 +4 => OK | OK 5/MINUTE 1 56s
		m=1 +0 => OK | OK 5/MINUTE 1 56s`)
	for _, c := range []struct {
		limit *weir.Limit
		lines string
	}{
		{&weir.Limit{Count: 9, Period: time.Minute}, `
			m=1 +0 => OK | OK 9/MINUTE 5 56s
			m=1 +2 => OK | OK 9/MINUTE 3 56s
			m=2 +4 => OK | OK 5/MINUTE 1 56s`},
		{&weir.Limit{Count: 9, Period: 500 * time.Millisecond}, `
			m=3 +1 => OK | OK 5/MINUTE 4 56s
			m=1 +0 => OK | OK 18/SECOND 3 1s`},
		{&weir.Limit{Period: time.Second}, `
			m=1 +0 => OVER_LIMIT | OVER_LIMIT 0/MINUTE 0 56s
			m=1 => OVER_LIMIT | OVER_LIMIT 0/MINUTE 0 1h0m0s`},
		{nil, `
			m=1 +0 => OK | OK 4294967295/MINUTE 4294967289 56s
			m=1 +900000 => OK | OK 1000000000/MINUTE 1000000000 0s`},
	} {
		if err := taker.Set(overrides.Override{Key: "d/m=1;minute", Limit: c.limit, Until: b.clock.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		b.wants(c.lines)
	}
	taker.Delete("d/m=1;minute")
	b.wants("m=1 +0 => OVER_LIMIT | OVER_LIMIT 5/MINUTE 0 56s")
}
