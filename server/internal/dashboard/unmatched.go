package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// Bounds of what is remembered of unmatched requests; the text is in bytes.
const (
	maxUnmatched     = 20
	maxUnmatchedKeys = 8
	maxUnmatchedText = 64
)

// Unmatched counts the requests that no rule applies to, and remembers the domains and
// keys of the latest ones. The zero value is ready for use. It is safe for concurrent use.
type Unmatched struct {
	total atomic.Uint64
	mu    sync.Mutex
	seen  map[unmatchedNames]time.Time // the latest request
}

// unmatchedNames are the domain and the keys, with commas, of a request.
type unmatchedNames struct{ domain, keys string }

// Add counts a request. It never waits: while another request is being remembered, it
// only counts.
func (u *Unmatched) Add(req *rules.Request, now time.Time) {
	u.total.Add(1)
	if !u.mu.TryLock() {
		return
	}
	defer u.mu.Unlock()
	var names unmatchedNames
	names.domain, names.keys = UnmatchedNames(req)
	if u.seen == nil {
		u.seen = map[unmatchedNames]time.Time{}
	}
	if _, known := u.seen[names]; !known && len(u.seen) >= maxUnmatched {
		delete(u.seen, oldest(u.seen, func(at time.Time) time.Time { return at }))
	}
	u.seen[names] = now
}

// UnmatchedNames returns the domain of a request and the keys of its first descriptor, with
// commas, both shortened: clients choose them.
func UnmatchedNames(req *rules.Request) (domain, keys string) {
	var names []string
	if len(req.Descriptors) > 0 {
		for _, e := range req.Descriptors[0][:min(len(req.Descriptors[0]), maxUnmatchedKeys)] {
			names = append(names, cut(e.Key))
		}
	}
	return cut(req.Domain), strings.Join(names, ",")
}

func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxUnmatchedText)], "") }

// unmatchedState is a kind of requests that no rule applies to.
type unmatchedState struct {
	Domain string `json:"domain"`
	Keys   string `json:"keys"`
	// Nearest is the domain, or the key, that was probably meant; empty if there is none.
	Nearest string `json:"nearest,omitempty"`
	At      int64  `json:"at"` // of the latest one, in Unix milliseconds
}

// states returns the kinds of requests that no rule of the set applies to, the latest
// first.
func (u *Unmatched) states(set *rules.Set) []unmatchedState {
	all := []unmatchedState{}
	u.mu.Lock()
	for names, at := range u.seen {
		all = append(all, unmatchedState{Domain: names.domain, Keys: names.keys, At: at.UnixMilli()})
	}
	u.mu.Unlock()
	slices.SortFunc(all, func(a, b unmatchedState) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Keys, b.Keys))
	})
	known := map[string][]string{} // the keys of each domain
	for _, r := range set.Rules() {
		for _, e := range r.Entries {
			if !slices.Contains(known[r.Domain], e.Key) {
				known[r.Domain] = append(known[r.Domain], e.Key)
			}
		}
	}
	for i := range all {
		all[i].Nearest = nearestOf(&all[i], set.Domains(), known)
	}
	return all
}

// nearestOf suggests a domain if the request's has no rules, or else a key.
func nearestOf(s *unmatchedState, domains []string, known map[string][]string) string {
	if !slices.Contains(domains, s.Domain) {
		return config.Nearest(s.Domain, domains)
	}
	for key := range strings.SplitSeq(s.Keys, ",") {
		if !slices.Contains(known[s.Domain], key) {
			return config.Nearest(key, known[s.Domain])
		}
	}
	return ""
}
