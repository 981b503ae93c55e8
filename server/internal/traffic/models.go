package traffic

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/topk"
)

// maxModelUses is the number of pairs of a caller and a model that are kept.
const maxModelUses = 256

// A ModelUse is what one caller has used of one language model, since the pair is kept.
type ModelUse struct {
	Key   string `json:"key"`
	Model string `json:"model"`
	// Requests are those whose answer has ended.
	Requests int64 `json:"requests"`
	Input    int64 `json:"input"` // tokens
	Cached   int64 `json:"cached"`
	Output   int64 `json:"output"`
	// USD is in millionths of a dollar. Priced says that the rules have a price.
	USD     int64 `json:"usd"`
	Priced  bool  `json:"priced"`
	Streams int   `json:"streams"` // open now
}

// ModelUses counts what callers use of language models. Of more pairs than it keeps, those
// with the most requests stay. The zero value is ready for use. It is safe for concurrent
// use.
type ModelUses struct {
	mu   sync.Mutex
	kept *topk.Counter[*ModelUse]
	open map[string]int // streams by pair; as many as there are connections
}

// pairOf names a caller and a model. Names of callers have no control characters.
func pairOf(key, model string) string { return key + "\x00" + model }

// Settled counts what a request has used, by what limits count.
func (u *ModelUses) Settled(key, model string, used map[string]int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.kept == nil {
		u.kept = topk.New[*ModelUse](maxModelUses)
	}
	kept := u.kept.Add(pairOf(key, model), 1)
	if kept == nil {
		return
	}
	if kept.Value == nil {
		kept.Value = &ModelUse{Key: key, Model: model}
	}
	of := kept.Value
	of.Requests++
	of.Input += used[config.MeterInput]
	of.Cached += used[config.MeterCached]
	of.Output += used[config.MeterOutput]
	usd, priced := used[config.MeterUSD]
	of.USD, of.Priced = of.USD+usd, of.Priced || priced
}

// Stream counts streams that begin, 1, and end, -1.
func (u *ModelUses) Stream(key, model string, change int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open == nil {
		u.open = map[string]int{}
	}
	pair := pairOf(key, model)
	if u.open[pair] += change; u.open[pair] == 0 {
		delete(u.open, pair)
	}
}

// Top returns the n pairs with the most requests and streams, the most first, and how many
// more are kept.
func (u *ModelUses) Top(n int) (top []ModelUse, left int) {
	u.mu.Lock()
	all := make([]ModelUse, 0, len(u.open))
	seen := map[string]bool{}
	if u.kept != nil {
		for _, k := range u.kept.Keys() {
			of := *k.Value
			of.Streams, seen[k.Name] = u.open[k.Name], true
			all = append(all, of)
		}
	}
	for pair, streams := range u.open {
		if !seen[pair] {
			key, model, _ := strings.Cut(pair, "\x00")
			all = append(all, ModelUse{Key: key, Model: model, Streams: streams})
		}
	}
	u.mu.Unlock()
	slices.SortFunc(all, func(a, b ModelUse) int {
		return cmp.Or(cmp.Compare(b.Requests+int64(b.Streams), a.Requests+int64(a.Streams)), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Model, b.Model))
	})
	top = all[:min(n, len(all))]
	return top, len(all) - len(top)
}
