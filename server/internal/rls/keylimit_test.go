package rls_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/keylimit"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/rls"
)

// TestNegativeHitsBeyondTheKeyLimit has a client's hits and negative hits arrive at two servers
// of one store, of which only the first tracks its key. All other keys share a budget of 10, and
// no negative hit of the tracked key adds to it.
func TestNegativeHitsBeyondTheKeyLimit(t *testing.T) {
	t.Parallel()
	forms := map[string]string{"without algorithm": ""}
	for id := range algo.Steps {
		forms[algo.Steps[id].Name] = ", algorithm: " + algo.Steps[id].Name
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock()
			store := memengine.New(memengine.Options{Now: clock.Now})
			var servers [2]*bench
			for i := range servers {
				taker := keylimit.Wrap(store, keylimit.Options{Now: clock.Now, Budget: func(*weir.Charge) weir.KeyLimit {
					return weir.KeyLimit{MaxKeys: 1, Overflow: "all others"}
				}})
				servers[i] = &bench{t: t, clock: clock, service: newService(t, "domain: d\ndescriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 10"+form+"}}]", rls.Options{Taker: taker, Now: clock.Now})}
			}
			hit := func(server int, descriptor string) bool {
				m, err := servers[server].call(ask(t, descriptor))
				if err != nil {
					t.Fatal(err)
				}
				return strings.HasPrefix(show(m), "OK")
			}
			hit(0, "path=/tracked")
			hit(1, "path=/of-the-other")
			granted := 0
			for i := range 30 {
				hit(0, "path=/tracked")
				hit(1, "path=/tracked -1")
				if hit(i%2, fmt.Sprint("path=/stranger", i)) {
					granted++
				}
			}
			want := 10
			if name == "leaky_bucket" {
				want = 1 // Envoy cannot wait for a place behind another one
			}
			if granted != want {
				t.Errorf("%d were granted to the keys that share a budget, want %d", granted, want)
			}
		})
	}
}
