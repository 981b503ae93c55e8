package chaos

import (
	"time"

	"github.com/weirlimit/weir"
)

// A subject is a limit under which callers ask, and how.
type subject struct {
	name  string
	limit *weir.Limit
	how   manner
}

// A manner is how callers ask.
type manner uint8

const (
	crowd  manner = iota // everybody, one key
	holder               // so, each as a holder of its own
	book                 // so, and the units are counted at the end
	repeat               // so, each under an id that is repeated until it is answered
	chain                // keys whose histories are judged as one sequence
	rope                 // so, under ids
)

const (
	window  = 250 * time.Millisecond
	decades = 96 * time.Hour // longer than any run
)

func limit(l weir.Limit) *weir.Limit { return l.MustCompile() }

// subjects are every algorithm, with windows that pass often during a run, and
// keys whose units are counted.
var subjects = []*subject{
	{"fixed_window", limit(weir.Limit{Algorithm: weir.FixedWindow, Count: 20, Period: window}), crowd},
	{"sliding_log", limit(weir.Limit{Algorithm: weir.SlidingLog, Count: 20, Period: window}), crowd},
	{"rolling_window", limit(weir.Limit{Algorithm: weir.RollingWindow, Count: 20, Period: window, Buckets: 5}), crowd},
	{"sliding_counter", limit(weir.Limit{Algorithm: weir.SlidingCounter, Count: 20, Period: window}), crowd},
	{"token_bucket", limit(weir.Limit{Algorithm: weir.TokenBucket, Count: 5, Period: window / 5, Burst: 12}), crowd},
	{"gcra", limit(weir.Limit{Algorithm: weir.GCRA, Count: 20, Period: window, Burst: 8}), crowd},
	{"leaky_bucket", limit(weir.Limit{Algorithm: weir.LeakyBucket, Count: 20, Period: window, Burst: 8}), crowd},
	{"concurrency", limit(weir.Limit{Algorithm: weir.Concurrency, Count: 5, Period: window / 2}), holder},
	{"book", limit(ledger), book},
	{"repeat", limit(ledger), repeat},
	{"chain", limit(weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 30, Period: decades}), chain},
	{"rope", limit(weir.Limit{Algorithm: weir.GCRA, Count: 100, Period: time.Second, Burst: 10}), rope},
}

var ledger = weir.Limit{Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, Count: 1_000_000, Period: decades}

// most is how many units any stretch of time, both ends included, may be granted.
func (s *subject) most(d time.Duration) int64 {
	l := s.limit
	periods := int64(d / l.Period)
	switch l.Algorithm {
	case weir.FixedWindow:
		return l.Count * (periods + 2)
	case weir.SlidingCounter:
		return (2*l.Count - 1) * (periods + 1)
	case weir.TokenBucket:
		return l.Burst + l.Count*(periods+1)
	case weir.GCRA, weir.LeakyBucket:
		return l.Capacity() + int64(d)*l.Count/int64(l.Period)
	}
	return l.Count * (periods + 1)
}
