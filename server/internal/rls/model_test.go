package rls_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/internal/memstore"
	"github.com/weirlimit/weir/internal/storetest"
	"github.com/weirlimit/weir/server/internal/rls"
	"github.com/weirlimit/weir/server/internal/rules"
)

// counters is envoyproxy/ratelimit's whole arithmetic: a number for each text,
// unit and window, which hits are added to and which is then compared.
type counters map[string]uint64

func (c counters) status(value string, l rls.Override, hits uint64, now int64) rls.Status {
	seconds := map[rls.Unit]int64{rls.Second: 1, rls.Minute: 60, rls.Hour: 3600}[l.Unit] * int64(l.Multiplier)
	key := fmt.Sprint(value, seconds, now-now%seconds)
	s := rls.Status{
		Limit: &rls.CurrentLimit{Requests: l.Requests, Unit: l.Unit, Multiplier: l.Multiplier},
		Reset: time.Duration(seconds-now%seconds) * time.Second,
	}
	// A limit of none is not asked of the store, and counts nothing.
	if l.Requests > 0 || hits == 0 {
		c[key] += hits
	}
	if after := c[key]; after > uint64(l.Requests) || l.Requests == 0 && hits > 0 {
		s.Over = true
	} else {
		s.Remaining = l.Requests - uint32(after)
	}
	return s
}

// TestModel asks at random and compares every answer with the model's.
func TestModel(t *testing.T) {
	t.Parallel()
	const yaml = `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: minute, requests_per_unit: 7}}
`
	rapid.Check(t, func(r *rapid.T) {
		clock, model := storetest.NewClock(), counters{}
		clock.Set(midday)
		s := newService(t, yaml, rls.Options{Now: clock.Now, Taker: memstore.New(memstore.Options{Now: clock.Now})})
		for range rapid.IntRange(1, 30).Draw(r, "calls") {
			clock.Advance(time.Duration(rapid.IntRange(0, 5_000).Draw(r, "ms")) * time.Millisecond)
			req, want := drawRequest(r, model, clock.Now().Unix())
			answer, err := s.Decide(t.Context(), req)
			if err != nil {
				r.Fatal(err)
			}
			if len(answer.Statuses) != len(want) {
				r.Fatalf("%d answers to %d descriptors", len(answer.Statuses), len(want))
			}
			over := false
			for i, got := range answer.Statuses {
				over = over || want[i].Over
				if g, w := plainly(got), plainly(want[i]); g != w {
					r.Fatalf("descriptor %d of %+v: got %s, want %s", i, req, g, w)
				}
			}
			if answer.Over != over {
				r.Fatalf("over: %v, want %v", answer.Over, over)
			}
		}
	})
}

// plainly writes a status with the limit that it points to.
func plainly(s rls.Status) string {
	return fmt.Sprintf("%v %+v %d %v", s.Over, *s.Limit, s.Remaining, s.Reset)
}

// drawRequest draws a request and has the model answer it.
func drawRequest(r *rapid.T, model counters, now int64) (*rls.Request, []rls.Status) {
	req := &rls.Request{Domain: "d", HitsAddend: rapid.SampledFrom([]uint32{0, 1, 3, math.MaxUint32}).Draw(r, "request's hits")}
	var want []rls.Status
	for range rapid.IntRange(1, 4).Draw(r, "descriptors") {
		value, limit := rapid.SampledFrom([]string{"a", "b", ""}).Draw(r, "value"), rls.Override{Requests: 7, Unit: rls.Minute, Multiplier: 1}
		d := rls.Descriptor{Entries: []rules.Entry{{Key: "k", Value: value}}}
		if rapid.Bool().Draw(r, "override") {
			// No limit is wider than the largest, so that a look cannot tell
			// whether that one is spent or exceeded.
			limit = rls.Override{
				Requests:   rapid.SampledFrom([]uint32{0, 1, 4, 10, math.MaxUint32 - 1}).Draw(r, "requests"),
				Unit:       rapid.SampledFrom([]rls.Unit{rls.Second, rls.Minute, rls.Hour}).Draw(r, "unit"),
				Multiplier: rapid.SampledFrom([]uint32{1, 2, 7}).Draw(r, "multiplier"),
			}
			d.Limit = &limit
		}
		hits := uint64(max(1, req.HitsAddend))
		if rapid.Bool().Draw(r, "own hits") {
			hits = rapid.SampledFrom([]uint64{0, 1, 2, 9, math.MaxUint32}).Draw(r, "hits")
			d.HitsAddend = &hits
		}
		req.Descriptors = append(req.Descriptors, d)
		want = append(want, model.status(value, limit, hits, now))
	}
	return req, want
}
