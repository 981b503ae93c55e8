package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/models/ledger"
)

// filled returns a report with rows.
func filled(t testing.TB, by []string, rows ...ledger.Row) *Report {
	t.Helper()
	r, err := New("llm", "2026-11", by)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		r.Add(&rows[i])
	}
	return r
}

// rows are those of two people, one in two teams.
var rows = []ledger.Row{
	{User: "bo", Team: "web", Model: "small", Numbers: ledger.Numbers{Requests: 1, USD: 1, Refused: 4}},
	{User: "ann", Team: "web", Model: "large", Numbers: ledger.Numbers{Requests: 2, Input: 30, Cached: 5, Output: 40, USD: 160_420_000, Unsettled: 1_200_000}},
	{User: "ann", Team: "ml", Model: "small", Numbers: ledger.Numbers{Requests: 3, Input: 1, Output: 1, USD: 999_999_999_999_999}},
}

// TestCSV wants rows in order, exact dollars and a line of totals.
func TestCSV(t *testing.T) {
	t.Parallel()
	const head = ",requests,refused,input_tokens,cached_tokens,output_tokens,usd,unsettled_usd\n"
	for by, want := range map[string]string{
		"team,user,model": "team,user,model" + head +
			"ml,ann,small,3,0,1,0,1,999999999.999999,0\n" +
			"web,ann,large,2,0,30,5,40,160.42,1.2\n" +
			"web,bo,small,1,4,0,0,0,0.000001,0\n" +
			"total,,,6,4,31,5,41,1000000160.42,1.2\n",
		"user": "user" + head +
			"ann,5,0,31,5,41,1000000160.419999,1.2\n" +
			"bo,1,4,0,0,0,0.000001,0\n" +
			"total,6,4,31,5,41,1000000160.42,1.2\n",
		"model,team": "model,team" + head +
			"large,web,2,0,30,5,40,160.42,1.2\n" +
			"small,ml,3,0,1,0,1,999999999.999999,0\n" +
			"small,web,1,4,0,0,0,0.000001,0\n" +
			"total,,6,4,31,5,41,1000000160.42,1.2\n",
	} {
		out := new(bytes.Buffer)
		if err := filled(t, strings.Split(by, ","), rows...).WriteCSV(out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", by, diff)
		}
	}
}

// TestFields wants names that clients choose to be no formulas of spreadsheets, no commands of
// terminals, and one field each.
func TestFields(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"ann": "ann", "o'neil, \"ann\"": "o'neil, \"ann\"", "": "", "a=b": "a=b", "'": "'",
		"=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@SUM(A1)": "'@SUM(A1)", "  =1": "'  =1", "＝1": "'＝1",
		"\t=1": "\ufffd=1", "a\r\nb": "a\ufffd\ufffdb", "\x1b[31m": "\ufffd[31m",
	} {
		out := new(bytes.Buffer)
		if err := filled(t, []string{ByUser}, ledger.Row{User: name}).WriteCSV(out); err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(out).ReadAll()
		if err != nil || len(lines) != 3 || lines[1][0] != want {
			t.Errorf("%q: %q, %v", name, lines, err)
		}
	}
}

// TestJSON wants the same numbers as JSON, with dollars that stay exact, and what they lack.
func TestJSON(t *testing.T) {
	t.Parallel()
	r := filled(t, []string{ByTeam}, append(rows, ledger.Row{Numbers: ledger.Numbers{Requests: 1, Unsettled: -2_000_000}})...)
	r.Lack("the days after the 15th")
	got, err := json.Marshal(r.JSON())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"domain":"llm","month":"2026-11","rows":[` +
		`{"team":"","requests":1,"refused":0,"input_tokens":0,"cached_tokens":0,"output_tokens":0,"usd":"0","unsettled_usd":"-2"},` +
		`{"team":"ml","requests":3,"refused":0,"input_tokens":1,"cached_tokens":0,"output_tokens":1,"usd":"999999999.999999","unsettled_usd":"0"},` +
		`{"team":"web","requests":3,"refused":4,"input_tokens":30,"cached_tokens":5,"output_tokens":40,"usd":"160.420001","unsettled_usd":"1.2"}],` +
		`"total":{"requests":7,"refused":4,"input_tokens":31,"cached_tokens":5,"output_tokens":41,"usd":"1000000160.42","unsettled_usd":"-0.8"},` +
		`"lacks":["holds that were never settled: -$0.8","the days after the 15th"]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTotals wants every grouping to have the same totals, which are the sums of its lines, in any
// order of rows.
func TestTotals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.SampledFrom([]string{"", "a", "b", "total", "=a"})
		number := rapid.Int64Range(0, 1<<45)
		var all []ledger.Row
		for range rapid.IntRange(0, 20).Draw(r, "rows") {
			all = append(all, ledger.Row{
				User: name.Draw(r, "user"), Team: name.Draw(r, "team"), Model: name.Draw(r, "model"),
				Numbers: ledger.Numbers{Requests: 1, Input: number.Draw(r, "input"), Output: number.Draw(r, "output"), USD: number.Draw(r, "usd")},
			})
		}
		other := rapid.Permutation(all).Draw(r, "other")
		totals := ""
		for _, by := range [][]string{{ByTeam}, {ByUser}, {ByModel}, {ByModel, ByUser}, {ByTeam, ByUser, ByModel}} {
			first, second := new(bytes.Buffer), new(bytes.Buffer)
			if err := filled(t, by, all...).WriteCSV(first); err != nil {
				r.Fatal(err)
			}
			if err := filled(t, by, other...).WriteCSV(second); err != nil || first.String() != second.String() {
				r.Fatalf("%v\n%s\n%s", err, first, second)
			}
			lines, err := csv.NewReader(first).ReadAll()
			if err != nil {
				r.Fatal(err)
			}
			for column := len(by); column < len(lines[0]); column++ {
				sum, want := new(big.Rat), new(big.Rat)
				for i, line := range lines[1:] {
					n, ok := new(big.Rat).SetString(line[column])
					if !ok {
						r.Fatal(line)
					}
					if i < len(lines)-2 {
						sum.Add(sum, n)
					} else {
						want = n
					}
				}
				if sum.Cmp(want) != 0 {
					r.Fatalf("%s is %v, and the lines come to %v", lines[0][column], want, sum)
				}
			}
			got := strings.Join(lines[len(lines)-1][len(by):], ",")
			if totals != "" && got != totals {
				r.Fatalf("by %v %s, and else %s", by, got, totals)
			}
			totals = got
		}
	})
}

// TestInvalid wants groups and months refused that are none, by name.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"", "people", "team,team", "team,,user"} {
		_, err := New("llm", "2026-11", strings.Split(by, ","))
		if invalid := new(weir.InvalidError); !errors.As(err, &invalid) || invalid.Field != "by" {
			t.Errorf("%s: %v", by, err)
		}
	}
	for month, valid := range map[string]bool{"2026-11": true, "2026-13": false, "2026-1": false, "november": false, "": false, "2026-11-01": false} {
		if err := CheckMonth(month); (err == nil) != valid {
			t.Errorf("%s: %v", month, err)
		}
	}
}
