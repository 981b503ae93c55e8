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

// Month returns the rows of the month around an instant, in the order of their names.
func (l *Ledger) Month(ctx context.Context, at time.Time) ([]Row, error) {
	sums, err := l.book.month(ctx, at.In(l.Zone).Format(monthForm))
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
