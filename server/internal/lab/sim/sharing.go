package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/server/internal/lab/report"
)

// Sharing is the name of the scenario of [RunSharing], and SharingSummary its
// description.
const (
	Sharing        = "sharing"
	SharingSummary = "100 a second for three classes; one floods, one pauses for a while"
)

// A class is one of those that share the budget. It sends requests almost evenly,
// or at random if it has no guarantee.
type class struct {
	name      string
	guarantee int64
	rate      int64 // requests a second
	// silent says in which seconds the class sends nothing.
	silent func(second int64) bool
}

const sharedSeconds = 60

var (
	sharedLimit    = weir.Limit{Count: 100, Period: time.Second, Burst: 40}
	sharedHeadroom = int64(16)
	sharedClasses  = []class{
		{"web", 30, 25, func(int64) bool { return false }},
		{"ads", 50, 40, func(s int64) bool { return s >= 25 && s < 45 }},
		{"crawler", 0, 400, func(s int64) bool { return s < 10 }},
	}
)

// A SharedResult has the grants of the classes, with guarantees and without them.
type SharedResult struct{ runs []sharedRun }

// A sharedRun has the requests and grants of each class in each second.
type sharedRun struct {
	name             string
	offered, granted [][]int64
}

// RunSharing plays three classes on one budget, first without guarantees, then with
// guaranteed shares.
func RunSharing(ctx context.Context) (*SharedResult, error) {
	guarantees := map[string]int64{}
	for _, c := range sharedClasses {
		if c.guarantee > 0 {
			guarantees[c.name] = c.guarantee
		}
	}
	shares, err := weir.Shares{Limit: sharedLimit, Guarantees: guarantees, Headroom: sharedHeadroom}.Compile()
	if err != nil {
		return nil, err
	}
	act := weir.Act{Charges: []weir.Charge{{Key: "k", Limit: shares.Pool(), Cost: 1}}, Decisions: make([]weir.Decision, 1)}
	return &SharedResult{[]sharedRun{
		playClasses(ctx, "one budget", func(string) *weir.Act { return &act }),
		playClasses(ctx, "guaranteed shares", func(class string) *weir.Act { return shares.Limiter(nil, "budget", class).Act(acts.KindTake, "k", 1) }),
	}}, ctx.Err()
}

// playClasses plays the classes to acts of a store.
func playClasses(ctx context.Context, name string, actOf func(class string) *weir.Act) sharedRun {
	var now time.Duration
	store := memengine.New(memengine.Options{Now: func() time.Time { return time.Unix(0, 0).Add(now) }})
	run := sharedRun{name: name}
	for range sharedClasses {
		run.offered = append(run.offered, make([]int64, sharedSeconds))
		run.granted = append(run.granted, make([]int64, sharedSeconds))
	}
	next, rng := make([]time.Duration, len(sharedClasses)), rand.New(rand.NewPCG(0, 4))
	for {
		i := 0
		for j := range next {
			if next[j] < next[i] {
				i = j
			}
		}
		c := &sharedClasses[i]
		if now = next[i]; now >= sharedSeconds*time.Second || ctx.Err() != nil {
			return run
		}
		gap := 0.5 + rng.Float64()
		if c.guarantee == 0 {
			gap = rng.ExpFloat64()
		}
		next[i] += time.Duration(gap * float64(time.Second) / float64(c.rate))
		second := int64(now / time.Second)
		if c.silent(second) {
			continue
		}
		act := actOf(c.name)
		store.Take(ctx, []*weir.Act{act})
		run.offered[i][second]++
		if act.Allowed() {
			run.granted[i][second]++
		}
	}
}

// Page shows the result.
func (r *SharedResult) Page() *report.Page {
	p := &report.Page{
		Title: "weir simulate " + Sharing + ": " + SharingSummary,
		Lead: fmt.Sprintf("Limit %s; %d of the burst are for guarantees: web 30 and ads 50 a second. web sends 25 requests a second, ads 40 but none for 20 s, crawler 400 after 10 s.",
			sharedLimit.String(), sharedHeadroom),
		Notes: []string{"A class gets the units that it asks for, up to its guarantee, from the first request after a pause. Units that it leaves unused go to the other classes."},
	}
	table := report.Table{Head: []string{"budget", "class", "offered", "granted", "refused", "refused %"}, Left: 2}
	for _, run := range slices.Backward(r.runs) {
		chart := report.Chart{Title: "Grants a second, " + run.name, Limit: float64(sharedLimit.Count)}
		for s := range sharedSeconds {
			chart.X = append(chart.X, float64(s))
		}
		for i, c := range sharedClasses {
			offered, granted := total(run.offered[i]), total(run.granted[i])
			table.Rows = append(table.Rows, []string{
				run.name, c.name, report.Count(offered), report.Count(granted), report.Count(offered - granted), report.Percent(offered-granted, offered),
			})
			chart.Series = append(chart.Series, series(c.name, run.granted[i], 1))
		}
		p.Charts = append(p.Charts, chart)
	}
	p.Tables = []report.Table{table}
	return p
}

func total(counts []int64) (n int64) {
	for _, k := range counts {
		n += k
	}
	return n
}

// JSON is the result as programs read it.
func (r *SharedResult) JSON() any {
	runs := []map[string]any{}
	for _, run := range r.runs {
		classes := []map[string]any{}
		for i, c := range sharedClasses {
			classes = append(classes, map[string]any{
				"class": c.name, "guarantee": c.guarantee, "offered": total(run.offered[i]), "granted": total(run.granted[i]),
				"course": map[string]any{"offered": run.offered[i], "granted": run.granted[i]},
			})
		}
		runs = append(runs, map[string]any{"budget": run.name, "classes": classes})
	}
	return map[string]any{"scenario": Sharing, "limit": sharedLimit.String(), "headroom": sharedHeadroom, "runs": runs}
}
