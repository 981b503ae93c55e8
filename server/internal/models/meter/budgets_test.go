package meter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlimit/weir"
)

// TestBudgets wants to know what is used, held and left of each budget of dollars under which a
// request was admitted; of the last ones that were known if the store does not answer.
func TestBudgets(t *testing.T) {
	t.Parallel()
	file := people(map[string]string{"ann": "user: ann, team: web, company: acme", "bo": "user: bo, team: web"})
	for store, open := range stores(t) {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan bool), make(chan bool)
			down := new(atomic.Bool)
			b := newBench(t, meRules, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), `"open"`) {
					arrived <- true
					<-release
				}
				fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":250}}`)
			}), open, withCallers(t, file), func(o *Options) { o.Taker = breakable{o.Taker, down} })
			if got := b.proxy.Budgets(t.Context()); len(got) > 0 {
				t.Errorf("%+v before the first request", got)
			}
			var ended sync.WaitGroup
			ended.Go(func() { b.as("ann", `{"model":"open","max_tokens":40,"messages":[]}`) })
			<-arrived
			if a := b.as("bo", `{"model":"m","max_tokens":300,"messages":[]}`); a.StatusCode != http.StatusOK {
				t.Errorf("%d %s", a.StatusCode, a.text)
			}
			b.eventually("the settlement", func() bool { return b.proxy.open.of("llm/user=bo;user;user").requests == 0 })
			const used, held = 250_000, 40_000
			budget := func(key, name string, limit, used, held int64) Budget {
				return Budget{Key: key, Name: name, Limit: limit, Period: "month", Used: used, Held: held, Remaining: limit - used - held}
			}
			want := []Budget{
				budget("llm/company=acme;company;company", "company", 20_000_000_000, 0, held),
				budget("llm/team=web;team;team", "team", 3_000_500_000, used, held),
				budget("llm/user=ann;user;user", "user", 200_000_000, 0, held),
				budget("llm/user=bo;user;user", "user", 200_000_000, used, 0),
			}
			got := b.proxy.Budgets(t.Context())
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Budget{}, "ResetsAt")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i := range got {
				if in := time.Until(got[i].ResetsAt); in <= 0 || in > 32*24*time.Hour {
					t.Errorf("%s resets in %v", got[i].Key, in)
				}
			}
			close(release)
			ended.Wait()
			down.Store(true)
			b.proxy.budgets.asked = time.Time{}
			if diff := cmp.Diff(got, b.proxy.Budgets(t.Context())); diff != "" {
				t.Errorf("during an outage (-want +got):\n%s", diff)
			}
			down.Store(false)
			b.proxy.budgets.asked = time.Time{}
			if got := b.proxy.Budgets(t.Context()); got[2].Used != used || got[2].Held != 0 || got[1].Used != 2*used {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A breakable store reaches no decision while it is down.
type breakable struct {
	weir.Taker
	down *atomic.Bool
}

func (b breakable) Take(ctx context.Context, acts []*weir.Act) {
	if !b.down.Load() {
		b.Taker.Take(ctx, acts)
		return
	}
	for _, a := range acts {
		a.Err = errors.New("down")
	}
}
