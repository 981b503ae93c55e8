// Package report sums up what requests to language models have used in a month, by person, team and
// model, for people and for their spreadsheets.
package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/models/ledger"
)

// The groups of a report.
const (
	ByTeam  = "team"
	ByUser  = "user"
	ByModel = "model"
)

// groups are all groups, in the order of [ledger.Row].
var groups = []string{ByTeam, ByUser, ByModel}

// A Report has the sums of a month. It is not safe for concurrent use.
type Report struct {
	domain, month string
	by            []string
	sums          map[[3]string]*ledger.Numbers
	lacks         []string
}

// New returns a report without rows, by some of [ByTeam], [ByUser] and [ByModel], each at most once.
// The error is a [*weir.InvalidError].
func New(domain, month string, by []string) (*Report, error) {
	for i, group := range by {
		if !slices.Contains(groups, group) || slices.Contains(by[:i], group) {
			return nil, &weir.InvalidError{Field: "by", Value: strconv.Quote(strings.Join(by, ",")), Want: "some of " + strings.Join(groups, ", ") + ", each once"}
		}
	}
	return &Report{domain: domain, month: month, by: by, sums: map[[3]string]*ledger.Numbers{}}, nil
}

// Add adds what a person and a team have used of a model.
func (r *Report) Add(row *ledger.Row) {
	var names [3]string
	for i, group := range r.by {
		names[i] = [...]string{row.Team, row.User, row.Model}[slices.Index(groups, group)]
	}
	if r.sums[names] == nil {
		r.sums[names] = &ledger.Numbers{}
	}
	r.sums[names].Add(&row.Numbers)
}

// Lack says something that the numbers lack.
func (r *Report) Lack(text string) { r.lacks = append(r.lacks, text) }

// Lacks returns what the numbers lack: holds that were never settled, and what was said to Lack.
func (r *Report) Lacks() []string {
	all := []string{}
	if total := r.total(); total.Unsettled != 0 {
		all = append(all, "holds that were never settled: "+config.AmountText(config.MeterUSD, total.Unsettled))
	}
	return append(all, r.lacks...)
}

func (r *Report) total() *ledger.Numbers {
	total := new(ledger.Numbers)
	for _, n := range r.sums {
		total.Add(n)
	}
	return total
}

// sorted returns the names of the rows in their order.
func (r *Report) sorted() [][3]string {
	var all [][3]string
	for names := range r.sums {
		all = append(all, names)
	}
	slices.SortFunc(all, func(a, b [3]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), cmp.Compare(a[2], b[2]))
	})
	return all
}

// columns are the columns behind the groups.
var columns = []string{"requests", "refused", "input_tokens", "cached_tokens", "output_tokens", "usd", "unsettled_usd"}

// WriteCSV writes a line of names, the rows in the order of their names, and a line of totals, which
// has "total" as its first group. Texts that a spreadsheet would take for a formula begin with an
// apostrophe.
func (r *Report) WriteCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	line := func(names []string, n *ledger.Numbers) {
		fields := make([]string, 0, len(names)+len(columns))
		for _, name := range names {
			fields = append(fields, field(name))
		}
		for _, n := range []int64{n.Requests, n.Refused, n.Input, n.Cached, n.Output} {
			fields = append(fields, strconv.FormatInt(n, 10))
		}
		_ = w.Write(append(fields, config.DollarsText(n.USD), config.DollarsText(n.Unsettled))) // Error returns it.
	}
	_ = w.Write(append(slices.Clone(r.by), columns...))
	for _, names := range r.sorted() {
		line(names[:len(r.by)], r.sums[names])
	}
	if len(r.by) > 0 {
		line(append([]string{"total"}, make([]string, len(r.by)-1)...), r.total())
	}
	w.Flush()
	return w.Error()
}

// field makes a text safe for spreadsheets and terminals.
func field(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}, text)
	if bare := strings.TrimSpace(text); bare != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(bare)[0]) {
		return "'" + text
	}
	return text
}

// page is a report as JSON.
type page struct {
	Domain string `json:"domain"`
	Month  string `json:"month"`
	Rows   []line `json:"rows"`
	Total  line   `json:"total"`
	// Lacks says what the numbers lack, for people.
	Lacks []string `json:"lacks"`
}

// line is a row as JSON. Dollars are texts, so that they stay exact.
type line struct {
	Team         *string `json:"team,omitempty"`
	User         *string `json:"user,omitempty"`
	Model        *string `json:"model,omitempty"`
	Requests     int64   `json:"requests"`
	Refused      int64   `json:"refused"`
	Input        int64   `json:"input_tokens"`
	Cached       int64   `json:"cached_tokens"`
	Output       int64   `json:"output_tokens"`
	USD          string  `json:"usd"`
	UnsettledUSD string  `json:"unsettled_usd"`
}

func lineOf(n *ledger.Numbers) line {
	return line{
		Requests: n.Requests, Refused: n.Refused, Input: n.Input, Cached: n.Cached, Output: n.Output,
		USD: config.DollarsText(n.USD), UnsettledUSD: config.DollarsText(n.Unsettled),
	}
}

// JSON returns what to write as JSON, with the rows in the order of their names.
func (r *Report) JSON() any {
	p := page{Domain: r.domain, Month: r.month, Rows: []line{}, Total: lineOf(r.total()), Lacks: r.Lacks()}
	for _, names := range r.sorted() {
		l := lineOf(r.sums[names])
		for i, group := range r.by {
			*[...]**string{&l.Team, &l.User, &l.Model}[slices.Index(groups, group)] = &names[i]
		}
		p.Rows = append(p.Rows, l)
	}
	return p
}

// Empty reports whether nothing was added.
func (r *Report) Empty() bool { return len(r.sums) == 0 }

// CheckMonth checks the name of a month. The error is a [*weir.InvalidError].
func CheckMonth(month string) error {
	if !ledger.IsMonth(month) {
		return &weir.InvalidError{Field: "month", Value: strconv.Quote(month), Want: "a month such as 2026-11"}
	}
	return nil
}

// String describes the report for messages.
func (r *Report) String() string { return fmt.Sprintf("%s of domain %s", r.month, r.domain) }
