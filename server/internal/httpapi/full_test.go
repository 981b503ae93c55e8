package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
)

const fullRules = `
domain: shop
descriptors:
  - key: user
    rate_limits:
      - {name: log, requests_per_unit: 100, unit: hour, algorithm: sliding_log}
      - {name: ring, requests_per_unit: 100, unit: hour, algorithm: rolling_window}
      - {name: slots, requests_per_unit: 100, period: 1h, algorithm: concurrency}
`

// TestFullStoreServesHolds fills the store with invented keys. Holds over two keys that then
// have to share are taken, renewed, settled and released all the same, and the store stays
// within its bound.
func TestFullStoreServesHolds(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	store := memstore.New(memstore.Options{MaxBytes: most, MaxIDBytes: 64 << 20, Now: storetest.NewClock().Now})
	h := handlerOf(t, fullRules, Options{Taker: store})
	for i := 0; store.Stats().Overflowed < 3000; i++ {
		if w := take(h, takeOf(``, fmt.Sprint("user=invented ", i))); w.Code >= 500 {
			t.Fatalf("invented key %d: %d %s", i, w.Code, w.Body)
		}
		if i == 100_000 {
			t.Fatalf("the store does not fill: %+v", store.Stats())
		}
	}
	// The invented keys have used up the budget that new keys share.
	h = handlerOf(t, strings.ReplaceAll(fullRules, "100,", "1000,"), Options{Taker: store})
	for i := range 200 {
		entries := []string{fmt.Sprint("user=a", i), fmt.Sprint("user=b", i)}
		steps := []struct{ kind, rest string }{{"take", `,"cost":2,"hold_ms":60000`}, {"renew", ``}, {"release", ``}}
		if i%2 == 0 {
			steps[2].kind, steps[2].rest = "settle", `,"cost":1`
		}
		for _, step := range steps {
			wantStatus(t, post(h, step.kind, takeOf(fmt.Sprintf(`%s,"id":"hold %d"`, step.rest, i), entries...)), http.StatusOK)
		}
	}
	if stats := store.Stats(); stats.Bytes > most*5/4 {
		t.Errorf("%+v, bound to %d", stats, most)
	}
}
