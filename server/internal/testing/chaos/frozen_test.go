package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/testserver"
)

// exactly are keys of the rules file and how many units each has for ever.
var exactly = map[string]int64{
	"late_concurrency": 11, "late_gcra": 31, "late_leaky_bucket": 1, "late_token_bucket": 19, "late_fixed_window": 29,
	"late_sliding_log": 23, "late_sliding_counter": 21, "late_rolling_window": 17,
}

const (
	lateClients = 24
	lateAsked   = 100                   // of each limit
	mayBeLate   = 40 * time.Millisecond // this machine, where outages are judged
)

// TestFrozenServer stops a server for 90 ms now and then, while clients ask each limit in turn,
// more often than it has units. Only a process of its own can be stopped.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	rounds := 3
	if *full {
		rounds = 30
	}
	i := serve(t, testserver.StartRedis(t).URL(), "--timeout", "1s", "--store-timeout", "250ms")
	c, thaw := startControl(nil), i.freeze()
	calls, undecided, left := 0, int64(0), error(nil)
	r := row{fault: "a server frozen for 90 ms, at random, HTTP", promise: "of each algorithm's limit neither more nor less; no outage"}
	for round := range rounds {
		for key, n := range exactly {
			p := i.poll(t, fmt.Sprint(key, "=", round))
			granted, late := p.granted.Load(), p.undecided.Load()
			calls, undecided = calls+lateAsked, undecided+late
			err := fmt.Errorf("%s: %d of %d granted, %d undecided, %d something else", key, granted, n, late, p.other.Load())
			if granted > n || p.other.Load() > 0 || late > lateClients {
				r.fail(t, "%v", err)
			} else if late > 0 || granted < n {
				left = errors.Join(left, err)
			}
		}
	}
	times, local, outages := thaw(), i.figure(t, "weir_fallback_local_total"), i.figure(t, "weir_store_outages_total")
	late := c.end()
	r.measured = fmt.Sprintf("%d calls, %d decisions by policy; %d times frozen, %d outages; this machine was up to %v late",
		calls, local, times, outages, late.Round(10*time.Microsecond))
	// A decision by policy leaves room for charges in flight, so that units left after one may be the machine's.
	byPolicy := int64(local) + undecided
	if r.unjudged = (left != nil && byPolicy > 0 || outages > 0) && (!*full || late > mayBeLate); left != nil && byPolicy == 0 {
		r.fail(t, "%v", left)
	} else if !r.unjudged && (left != nil || outages > 0) {
		r.fail(t, "%d outages, %v", outages, left)
	}
	report(r)
}

// A poll is the answers that clients got under one limit.
type poll struct{ granted, undecided, other atomic.Int64 }

// poll has clients ask for a key and value.
func (i *instance) poll(t *testing.T, entry string) *poll {
	t.Helper()
	p, client := new(poll), newClient(t)
	defer client.CloseIdleConnections() // many polls open more of them than a server keeps
	var clients sync.WaitGroup
	var asked atomic.Int64
	for range lateClients {
		clients.Go(func() {
			for asked.Add(1) <= lateAsked {
				time.Sleep(rand.N(8 * time.Millisecond))
				switch status, _, err := get(context.Background(), client, "http://"+i.http+"/v1/auth?domain=chaos&"+entry); status {
				case http.StatusNoContent:
					p.granted.Add(1)
				case http.StatusTooManyRequests, http.StatusForbidden:
				case http.StatusServiceUnavailable:
					// Only the store decides a take with an ID, and on a late machine some replies are late.
					p.undecided.Add(1)
				default:
					t.Logf("status %d, %v", status, err)
					p.other.Add(1)
				}
			}
		})
	}
	clients.Wait()
	return p
}

// figure is a metric of the server.
func (i *instance) figure(t *testing.T, name string) int {
	t.Helper()
	_, body, err := get(t.Context(), newClient(t), "http://"+i.admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(body), "\n"+name+" ")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(text, 64)
	if !found || err != nil {
		t.Fatalf("%s: %q, %v", name, text, err)
	}
	return int(n)
}

// freeze stops the server for 90 ms over and over, until the function that it returns is
// called.
func (i *instance) freeze() (enough func() int) {
	ctx, stop := context.WithCancel(context.Background())
	var freezing sync.WaitGroup
	times := 0
	freezing.Go(func() {
		for ; ctx.Err() == nil; times++ {
			pause(ctx, 10*time.Millisecond+rand.N(150*time.Millisecond))
			_ = i.Cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(90 * time.Millisecond)
			_ = i.Cmd.Process.Signal(syscall.SIGCONT)
		}
	})
	return func() int {
		stop()
		freezing.Wait()
		return times
	}
}
