package dashboard

import (
	"fmt"

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

// Budgets returns the budgets of a page, as text, and how many it leaves out.
func Budgets(classes []traffic.Class) (all []string, left int) {
	states, left := budgets(classes)
	for _, b := range states {
		var rules []string
		for _, c := range b.Classes {
			rules = append(rules, c.Rule)
		}
		all = append(all, fmt.Sprint(b.Budget, " ", rules))
	}
	return all, left
}
