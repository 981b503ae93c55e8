package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Row is what requests of one person and one team to one model have used in a month.
type Row struct {
	User, Team, Model string
	Numbers
}

// Add adds other numbers.
func (n *Numbers) Add(by *Numbers) {
	others := by.all()
	for i, own := range n.all() {
		*own += *others[i]
	}
}

// IsMonth reports whether a text names a month, such as 2026-11.
func IsMonth(text string) bool {
	_, err := time.Parse(monthForm, text)
	return err == nil && len(text) == len(monthForm)
}

// Month returns the rows of a month such as 2026-11, in the order of their names. It reads them a
// thousand at a time: what is recorded meanwhile may be in some numbers of a row and not in others.
func (l *Ledger) Month(ctx context.Context, month string) ([]Row, error) {
	sums, err := l.book.month(ctx, month)
	if err != nil {
		return nil, err
	}
	rows := map[string]*Row{}
	for field, n := range sums {
		name, text, _ := strings.Cut(field, " ")
		i := slices.Index(numbers[:], name)
		if i < 0 {
			return nil, fmt.Errorf("%w: %s", errMonth, strings.ToValidUTF8(field, ""))
		}
		if rows[text] == nil {
			var names [3]string
			if err := json.Unmarshal([]byte(text), &names); err != nil {
				return nil, fmt.Errorf("%w: %w", errMonth, err)
			}
			rows[text] = &Row{User: names[0], Team: names[1], Model: names[2]}
		}
		*rows[text].all()[i] = n
	}
	var all []Row
	for _, r := range rows {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Team, b.Team), cmp.Compare(a.Model, b.Model))
	})
	return all, nil
}
