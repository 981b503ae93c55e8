package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/testserver"
)

// shared is a limit that three servers share, as in the rules file.
var shared = &subject{"shared", limit(weir.Limit{Algorithm: weir.SlidingLog, Count: 300, Period: 10 * time.Second}), crowd}

// TestThreeServers takes Redis away from three servers in the middle of a window: what
// they grant in any window is at most the limit and their shares, so twice the limit; in
// the long run it is no more than without the outage.
func TestThreeServers(t *testing.T) {
	t.Parallel()
	before, away, after := time.Second, 1500*time.Millisecond, time.Second
	if *full {
		before, away, after = 2*time.Second, 5*time.Second, 12*time.Second
	}
	store := testserver.StartRedis(t)
	h := newHistory()
	ctx, enough := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for n := range 3 {
		i := serve(t, "redis://"+store.Addr(), "--store-timeout", "12ms", "--instances", "3")
		asking.Go(func() { i.asksShared(ctx, n, h) })
	}
	time.Sleep(before)
	store.Pause()
	back, gone := h.absent(), h.now()
	time.Sleep(away)
	// A busy machine may have asked nothing yet.
	for deadline := time.Now().Add(startTimeout); h.since(gone+int64(lead)) < 3 && time.Now().Before(deadline); {
		time.Sleep(lead / 10)
	}
	back()
	store.Resume()
	time.Sleep(after)
	enough()
	asking.Wait()
	reportShared(t, h)
}

// asksShared asks a server for one unit after the other.
func (i *instance) asksShared(ctx context.Context, number int, h *history) {
	client := newClient(i.t)
	const question = `{"domain":"chaos","descriptors":[{"entries":[{"key":"shared","value":"1"}]}]}`
	for ctx.Err() == nil {
		o := op{caller: number, subject: shared, key: "shared", cost: 1, call: h.now(), outcome: failed}
		resp, err := client.Post("http://"+i.http+"/v1/take", "application/json", strings.NewReader(question))
		if err == nil {
			o.hear(resp)
		}
		o.ret = h.now()
		h.note(o)
		pause(ctx, 35*time.Millisecond)
	}
}

// hear files what POST /v1/take said.
func (o *op) hear(resp *http.Response) {
	defer resp.Body.Close()
	var body bytes.Buffer
	var a answer
	if _, err := body.ReadFrom(resp.Body); err != nil || json.Unmarshal(body.Bytes(), &a) != nil || len(a.Limits) != 1 {
		o.err = fmt.Errorf("%d %s", resp.StatusCode, &body)
		return
	}
	o.outcome, o.Granted = refused, a.Granted
	if resp.StatusCode == http.StatusOK {
		o.outcome = granted
	}
	if a.Limits[0].Source == "fallback" {
		o.Source = acts.SourceFallback
	}
}

func reportShared(t *testing.T, h *history) {
	t.Helper()
	var stamps []span
	var grants []op
	sum, here, elsewhere := int64(0), 0, 0
	for i := range h.ops {
		o := &h.ops[i]
		// Those that were on their way were promised the answer of either.
		if away := h.away[0]; o.call > away.from+int64(lead) && o.ret < away.to {
			if here++; o.Source != acts.SourceFallback {
				elsewhere++
			}
		}
		if o.outcome == granted {
			sum += o.Granted
			grants, stamps = append(grants, *o), append(stamps, span{o.call, o.ret})
		}
	}
	r := row{
		fault:    fmt.Sprintf("Redis stopped for %v, 3 servers", time.Duration(h.away[0].to-h.away[0].from).Round(100*time.Millisecond)),
		promise:  "in any 10 s at most the limit and all shares, 2 × 300; in the long run no more than ever",
		measured: fmt.Sprintf("%d asked, %d granted in %v; meanwhile %d answers, %d of them not by the fallback", len(h.ops), sum, time.Duration(h.now()).Round(time.Second), here, elsewhere),
	}
	if err := within(shared, stamps, grants, 1); err != nil {
		r.fail(t, "%v", err)
	}
	if most := shared.most(time.Duration(h.now())); *full && sum > most {
		r.fail(t, "%d granted in all, at most %d", sum, most)
	}
	if n := h.count(failed); n > 0 || elsewhere > 0 || here == 0 {
		r.fail(t, "%d failed, %d of %d not by the fallback", n, elsewhere, here)
	}
	report(r)
}
