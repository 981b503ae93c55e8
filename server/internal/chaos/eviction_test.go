package chaos

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// TestEviction exhausts limits and floods Redis with other keys until its memory is
// full: where it may evict, keys get their budgets anew; where it may not, none does.
func TestEviction(t *testing.T) {
	t.Parallel()
	const keys = 200
	limit := weir.PerHour(3).MustCompile()
	for _, tc := range []struct {
		policy, promise string
		fresh           func(n int) bool
	}{
		{"noeviction", "no budget is handed out twice; not applied is not charged", func(n int) bool { return n == 0 }},
		{"allkeys-random", "an evicted key has one more budget, and no error", func(n int) bool { return n > keys/2 }},
	} {
		t.Run(tc.policy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, makeup{args: []string{"--maxmemory-policy", tc.policy}})
			exhausted := &subject{name: "exhausted", limit: limit}
			ask := func(i int) op {
				return w.history.ask(t.Context(), w.direct, op{subject: exhausted, key: fmt.Sprint("victim ", i), cost: 3})
			}
			for i := range keys {
				if o := ask(i); o.outcome != granted {
					t.Fatalf("a fresh key: %v", &o)
				}
			}
			w.flood(200 << 10)
			counts := map[outcome]int{}
			for i := range keys {
				counts[ask(i).outcome]++
			}
			r := row{
				fault: "memory full, " + tc.policy, promise: tc.promise,
				measured: fmt.Sprintf("of %d exhausted keys %d granted anew, %d refused, %d not applied",
					keys, counts[granted], counts[refused], counts[unapplied]),
			}
			if !tc.fresh(counts[granted]) || counts[failed]+counts[unknown] > 0 || counts[granted]+counts[refused]+counts[unapplied] != keys {
				r.fail(t, "%v", counts)
			}
			report(r)
		})
	}
}

// flood fills Redis's memory, and some bytes more, with keys of somebody else's.
func (w *world) flood(room int) {
	w.t.Helper()
	info, err := w.admin.Info(w.t.Context(), "memory").Result()
	if err != nil {
		w.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "used_memory:")
	text, _, _ := strings.Cut(rest, "\r\n")
	used, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	w.do([]any{"config", "set", "maxmemory", used + room})
	for i := range 20_000 {
		if err := w.admin.Set(w.t.Context(), fmt.Sprint("flood:", i), "", time.Hour).Err(); err != nil {
			return // it is full
		}
	}
}
