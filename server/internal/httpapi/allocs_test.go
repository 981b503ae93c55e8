package httpapi

import (
	"maps"
	"net/http"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/rules"
)

// sink is an answer that nobody reads.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header                   { return s.header }
func (s *sink) Write(text []byte) (int, error)        { return len(text), nil }
func (s *sink) WriteHeader(status int)                { s.status = status }
func (s *sink) reset()                                { maps.DeleteFunc(s.header, func(string, []string) bool { return true }) }
func (s *sink) serve(h http.Handler, r *http.Request) { s.reset(); h.ServeHTTP(s, r) }

// TestAuthAllocates bounds what GET /v1/auth costs besides the store and net/http:
// the context, the keys, the headers. They are 4 and 12; the race
// detector has pools forget at random what they hold, which is what the rest is for.
func TestAuthAllocates(t *testing.T) {
	set := rules.MustParse("shop.yaml", testRules)
	for name, c := range map[string]struct {
		decision weir.Decision
		status   int
		most     float64
	}{
		"granted": {weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 4, ResetAfter: 6e9}, http.StatusNoContent, 10},
		"refused": {weir.Decision{Outcome: weir.Refused, RetryAfter: 6e9, ResetAfter: 30e9}, http.StatusTooManyRequests, 24},
	} {
		h := New(Options{Rules: func() *rules.Set { return set }, Taker: answering{decision: c.decision}})
		r, w := subRequest("domain=shop&from=user=X-User"), &sink{header: http.Header{}}
		if got := testing.AllocsPerRun(1000, func() { w.serve(h, r) }); got > c.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, c.most)
		}
		if w.status != c.status {
			t.Errorf("%s: got %d, want %d", name, w.status, c.status)
		}
	}
}
