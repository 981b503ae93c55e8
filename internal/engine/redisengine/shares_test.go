package redisengine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine/redisengine"
	"github.com/weirlimit/weir/internal/testing/testserver"
)

// TestAlternativesAreOneCall counts the script calls of takes with shares: one for each.
func TestAlternativesAreOneCall(t *testing.T) {
	t.Parallel()
	client := dialPatient(t, testserver.StartRedis(t).Addr())
	store, err := redisengine.New(client, redisengine.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	shares, err := weir.Shares{Limit: weir.Limit{Count: 10, Period: time.Hour}, Guarantees: map[string]int64{"a": 5}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	calls := func() (n int) {
		info := client.Info(t.Context(), "commandstats").Val()
		for line := range strings.Lines(info) {
			var each int
			if name, stats, _ := strings.Cut(line, ":calls="); strings.HasPrefix(name, "cmdstat_eval") {
				if _, err := fmt.Sscanf(stats, "%d", &each); err != nil {
					t.Fatal(err)
				}
				n += each
			}
		}
		return n
	}
	limiter := shares.Limiter(store, "budget", "a")
	if _, err := limiter.Peek(t.Context(), "k"); err != nil { // uploads the script
		t.Fatal(err)
	}
	before, granted := calls(), 0
	const takes = 12 // by the guarantee, then by what is lent, then refused
	for range takes {
		d, err := limiter.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		granted += int(d.Granted)
	}
	if n := calls() - before; n != takes || granted == 0 || granted == takes {
		t.Errorf("%d script calls for %d takes, of which %d were granted", n, takes, granted)
	}
}
