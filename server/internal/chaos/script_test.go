package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/internal/testserver"
	"github.com/weirlimit/weir/server/internal/loadtest"
)

// TestScriptLoss has Redis forget the scripts every 10 ms under a steady load: nobody
// gets an error, and the text of a script goes out at most twice for each time that a
// node forgot it.
func TestScriptLoss(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*world) place{
		"one Redis": bare,
		"three masters": func(w *world) place {
			var c *testserver.Cluster
			return onCluster(&c)(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, makeup{start: start})
			where := place{addrs: []string{w.nodes[0].Options().Addr}, cluster: len(w.nodes) > 1}
			taker := stopped(t, stack.New(store(t, where.options(time.Minute), nil), stack.Options{
				Remote: patientRemote(),
			}))
			load := loadtest.Load{Ask: asksKeys(t, taker), Rate: 500, Duration: time.Second, Callers: 64}
			if *full {
				load.Rate, load.Duration = 5000, 10*time.Second
			}
			heard, flushes, texts := w.forgetScripts(&load)
			r := row{
				fault:   fmt.Sprintf("SCRIPT FLUSH every 10 ms, %s, %.0f requests/s", name, load.Rate),
				promise: "no error, at most two texts for each time that a node forgot",
				measured: fmt.Sprintf("%d of %d failed; %d texts for %d × %d",
					heard.Failed, heard.Requests(), texts, flushes, len(w.nodes)),
			}
			if heard.Failed > 0 || heard.Granted == 0 || texts > 2*flushes*len(w.nodes) || texts == 0 {
				r.fail(t, "%s", r.measured)
			}
			report(r)
		})
	}
}

// asksKeys asks for one unit of one key of a thousand.
func asksKeys(t *testing.T, taker weir.Taker) func(context.Context, int) loadtest.Outcome {
	plenty := limit(ledger)
	return func(_ context.Context, i int) loadtest.Outcome {
		a := storetest.NewAct(weir.Charge{Key: fmt.Sprint("key ", i%1000), Limit: plenty, Cost: 1})
		taker.Take(context.Background(), []*weir.Act{a})
		switch {
		case a.Err != nil:
			t.Log(a.Err)
			return loadtest.Failed
		case a.Allowed():
			return loadtest.Granted
		}
		return loadtest.Refused
	}
}

// forgetScripts has all nodes forget while a load lasts, and returns what its callers
// were told, how often that was, and how many texts came.
func (w *world) forgetScripts(load *loadtest.Load) (heard loadtest.Report, flushes, texts int) {
	w.t.Helper()
	var ended atomic.Bool
	var flushing sync.WaitGroup
	flushing.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for ; !ended.Load(); <-pace.C {
			for _, node := range w.nodes {
				if err := node.ScriptFlush(w.t.Context()).Err(); err != nil {
					w.t.Error(err)
				}
			}
			flushes++
		}
	})
	heard, err := load.Run(w.t.Context())
	if err != nil {
		w.t.Error(err)
	}
	ended.Store(true)
	flushing.Wait()
	for _, node := range w.nodes {
		texts += calls(w.t, node, "eval")
	}
	return heard, flushes, texts
}

// calls is how often a node was sent a command.
func calls(t *testing.T, node *redis.Client, command string) int {
	t.Helper()
	info, err := node.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	text, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
