package dashboard

import (
	"context"
	"encoding/json"

	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// Remembered returns how many kinds of requests are remembered, and the size of their
// names.
func Remembered(u *Unmatched) (n, bytes int) {
	for names := range u.seen {
		bytes += len(names.domain) + len(names.keys)
	}
	return len(u.seen), bytes
}

// Budgets returns the budgets of a page, as JSON of one line each, and how many it leaves
// out.
func Budgets(classes []traffic.Class, set *rules.Set) (all []string, left int) {
	states, left := budgets(classes, set)
	for _, b := range states {
		text, err := json.Marshal(b)
		if err != nil {
			panic(err)
		}
		all = append(all, string(text))
	}
	return all, left
}

// Dollars returns the budgets of a page, as JSON of one line for each kind.
func Dollars(ctx context.Context, of func(context.Context) []Budget) (all []string) {
	for _, kind := range (&Dashboard{Options: Options{Dollars: of}}).dollars(ctx) {
		text, err := json.Marshal(kind)
		if err != nil {
			panic(err)
		}
		all = append(all, string(text))
	}
	return all
}
