package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir/server/internal/config"
)

// A Budget is a limit of dollars, and what is used of its period, in millionths of a dollar.
type Budget struct {
	Key  string // of the store
	Name string // of the limit
	// Limit is what is granted in a period; Period is its unit, such as month.
	Limit  int64
	Period string
	// Used is what is settled, and what requests of other instances hold. Held is what open
	// requests of this instance hold.
	Used, Held, Remaining int64
	// ResetsAt is when all of it is free again; zero if it is now.
	ResetsAt time.Time
}

// maxDollars bounds the budgets of one kind that a page lists.
const maxDollars = 12

// A dollarsState is the budgets of all who have the same labels, such as those of all users. Those
// that have most of their limit used come first.
type dollarsState struct {
	By   string          `json:"by"` // the names of the labels
	All  []dollarsBudget `json:"all"`
	Left int             `json:"left,omitempty"` // how many are not shown
}

// A dollarsBudget is the budget of one of them. Amounts are in millionths of a dollar.
type dollarsBudget struct {
	key
	Name      string `json:"name"`
	Limit     string `json:"limit"` // such as $200/month
	Used      int64  `json:"used"`
	Held      int64  `json:"held"`
	Remaining int64  `json:"remaining"`
	ResetsAt  int64  `json:"resets_at,omitempty"` // in Unix milliseconds; 0: nothing is used
}

// part is the part of the budget that is used or held.
func (b *dollarsBudget) part() float64 {
	return float64(b.Used+b.Held) / float64(max(1, b.Used+b.Held+b.Remaining))
}

// dollars returns the budgets of the callers of language models, those of the largest groups first.
func (d *Dashboard) dollars(ctx context.Context) []dollarsState {
	all := []dollarsState{}
	if d.Dollars == nil {
		return all
	}
	at, most := map[string]int{}, map[string]int64{}
	for _, b := range d.Dollars(ctx) {
		shown := d.dollarsBudget(&b)
		var names []string
		for _, e := range shown.Entries {
			name, _, _ := strings.Cut(e, "=")
			names = append(names, name)
		}
		by := strings.Join(names, ", ")
		i, known := at[by]
		if !known {
			i = len(all)
			at[by], all = i, append(all, dollarsState{By: by})
		}
		all[i].All, most[by] = append(all[i].All, shown), max(most[by], b.Limit)
	}
	for i := range all {
		kind := &all[i]
		slices.SortFunc(kind.All, func(a, b dollarsBudget) int {
			return cmp.Or(cmp.Compare(b.part(), a.part()), cmp.Compare(a.Key, b.Key))
		})
		kind.Left = max(0, len(kind.All)-maxDollars)
		kind.All = kind.All[:len(kind.All)-kind.Left]
	}
	slices.SortFunc(all, func(a, b dollarsState) int {
		return cmp.Or(cmp.Compare(most[b.By], most[a.By]), cmp.Compare(a.By, b.By))
	})
	return all
}

func (d *Dashboard) dollarsBudget(b *Budget) dollarsBudget {
	shown := dollarsBudget{key: d.key(b.Key), Name: b.Name, Limit: "$" + config.DollarsText(b.Limit) + "/" + b.Period, Used: b.Used, Held: b.Held, Remaining: b.Remaining}
	if !b.ResetsAt.IsZero() {
		shown.ResetsAt = b.ResetsAt.UnixMilli()
	}
	return shown
}
