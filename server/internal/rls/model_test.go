package rls_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/server/internal/rls"
)

// counters is envoyproxy/ratelimit's whole arithmetic: a number for each text,
// unit and window, which hits are added to and which is then compared.
type counters map[string]uint64

// A drawn is a limit of a number of units, which are this long.
type drawn struct {
	requests   uint32
	unit       string
	length     int64 // s
	multiplier int64
}

// status is how show writes the status of a descriptor.
func (c counters) status(value string, l drawn, hits uint64, now int64) string {
	seconds := l.length * l.multiplier
	key := fmt.Sprint(value, seconds, now-now%seconds)
	// A limit of none is not asked of the store, and counts nothing.
	if l.requests > 0 || hits == 0 {
		c[key] += hits
	}
	limit := fmt.Sprintf("%d/%s", l.requests, l.unit)
	if l.multiplier > 1 {
		limit += fmt.Sprint("*", l.multiplier)
	}
	reset := time.Duration(seconds-now%seconds) * time.Second
	if after := c[key]; after > uint64(l.requests) || l.requests == 0 && hits > 0 {
		return fmt.Sprintf("OVER_LIMIT %s 0 %v", limit, reset)
	}
	return fmt.Sprintf("OK %s %d %v", limit, uint64(l.requests)-c[key], reset)
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
		b, model := newBench(t, yaml, rls.Mode{}), counters{}
		for range rapid.IntRange(1, 30).Draw(r, "calls") {
			b.clock.Advance(time.Duration(rapid.IntRange(0, 5_000).Draw(r, "ms")) * time.Millisecond)
			req, want := drawRequest(t, r, model, b.clock.Now().Unix())
			answer, err := b.call(req)
			if err != nil {
				r.Fatal(err)
			}
			if got := show(answer); got != want {
				r.Fatalf("%v:\n got %s\nwant %s", req, got, want)
			}
		}
	})
}

// drawRequest draws a request and has the model answer it.
func drawRequest(t *testing.T, r *rapid.T, model counters, now int64) (*rlsv3.RateLimitRequest, string) {
	req := &rlsv3.RateLimitRequest{Domain: "d", HitsAddend: rapid.SampledFrom([]uint32{0, 1, 3, math.MaxUint32}).Draw(r, "request's hits")}
	want := []string{"OK"}
	for range rapid.IntRange(1, 4).Draw(r, "descriptors") {
		value, limit := rapid.SampledFrom([]string{"a", "b", ""}).Draw(r, "value"), drawn{7, "MINUTE", 60, 1}
		text := "k=" + value
		if rapid.Bool().Draw(r, "override") {
			limit = rapid.SampledFrom([]drawn{{unit: "SECOND", length: 1}, {unit: "MINUTE", length: 60}, {unit: "HOUR", length: 3600}}).Draw(r, "unit")
			// No limit is wider than the largest, so that a look cannot tell
			// whether that one is spent or exceeded.
			limit.requests = rapid.SampledFrom([]uint32{0, 1, 4, 10, math.MaxUint32 - 1}).Draw(r, "requests")
			limit.multiplier = rapid.SampledFrom([]int64{1, 2, 7}).Draw(r, "multiplier")
			text += fmt.Sprintf(" @%d/%s*%d", limit.requests, limit.unit, limit.multiplier)
		}
		hits := uint64(max(1, req.GetHitsAddend()))
		if rapid.Bool().Draw(r, "own hits") {
			hits = rapid.SampledFrom([]uint64{0, 1, 2, 9, math.MaxUint32}).Draw(r, "hits")
			text += fmt.Sprint(" +", hits)
		}
		req.Descriptors = append(req.Descriptors, descriptor(t, text))
		status := model.status(value, limit, hits, now)
		if want = append(want, status); strings.HasPrefix(status, "OVER") {
			want[0] = "OVER_LIMIT"
		}
	}
	return req, strings.Join(want, " | ")
}
