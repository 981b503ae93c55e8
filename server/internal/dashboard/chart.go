package dashboard

import (
	"net/url"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/server/internal/traffic"
)

// A span is a time range that a page can show.
type span struct {
	Name  string
	Title string
	long  time.Duration
}

// Each is as long as its resolution is kept, without the current step.
var spans = []span{
	{"5m", "5 min", 299 * time.Second},
	{"1h", "1 h", 359 * 10 * time.Second},
	{"6h", "6 h", 359 * time.Minute},
}

// A view is the part of the past that a page shows.
type view struct {
	span         time.Duration
	domain, rule string // of one limit; empty: all
	sent         int64  // start of the last point that was sent; 0: none
}

func parseView(query url.Values) (view, *weir.InvalidError) {
	name := query.Get("span")
	for _, s := range spans {
		if s.Name == name {
			return view{span: s.long, domain: query.Get("domain"), rule: query.Get("rule")}, nil
		}
	}
	return view{}, &weir.InvalidError{Field: "span", Value: strconv.Quote(name[:min(len(name), 20)]), Want: "5m, 1h or 6h"}
}

// A chart is the results of charges and the latency of calls over time. All lists have
// one element per point.
type chart struct {
	Start  int64 `json:"start"`  // of the first point, in Unix seconds
	Step   int64 `json:"step"`   // in seconds
	Points int   `json:"points"` // that the whole span has
	results[[]uint32]
	// P50 and P99 are in nanoseconds, 0 without calls: of the calls that charge the
	// limit, or of all.
	P50 []int64 `json:"p50"`
	P99 []int64 `json:"p99"`
	// Sources counts decisions by source, in the whole span; errors are [undecided].
	Sources map[string]uint64 `json:"sources"`
}

// chart returns the points that were not sent yet; nil before the end of the first
// second.
func (v *view) chart(r *traffic.Recorder) *chart {
	w := r.History(v.span)
	if w.Latency == nil {
		return nil
	}
	step := int64(w.Step / time.Second)
	c := &chart{Start: w.Start.Unix(), Step: step, Points: w.Points, Sources: map[string]uint64{}}
	skip := 0
	if v.sent > 0 {
		skip = min(max(0, int((v.sent-c.Start)/step)+1), w.Points)
	}
	c.Start += int64(skip) * step
	for d := traffic.Granted; d <= traffic.Failed; d++ {
		*c.of(d) = make([]uint32, w.Points-skip)
	}
	c.P50, c.P99 = []int64{}, []int64{}
	v.sent = w.Start.Unix() + int64(w.Points-1)*step
	for i := range w.Series {
		if s := &w.Series[i]; v.rule == "" && !s.Trial || v.wants(s.Domain, s.Rule, s.Trial) {
			to := c.of(s.Decision)
			*to = sum(*to, s.Counts[skip:])
			for _, n := range s.Counts {
				c.Sources[decider(s.Decision, s.Source)] += uint64(n)
			}
		}
	}
	for _, l := range v.latency(&w)[skip:] {
		c.P50 = append(c.P50, l.P50.Nanoseconds())
		c.P99 = append(c.P99, l.P99.Nanoseconds())
	}
	return c
}

// wants reports whether the page shows only this limit.
func (v *view) wants(domain, rule string, trial bool) bool {
	return shown(rule, trial) == v.rule && domain == v.domain
}

// latency returns the latency of the calls that the page shows.
func (v *view) latency(w *traffic.Window) []traffic.Latency {
	if v.rule == "" {
		return w.Latency
	}
	for i := range w.Timings {
		if t := &w.Timings[i]; v.wants(t.Domain, t.Rule, t.Trial) {
			return t.Steps
		}
	}
	return make([]traffic.Latency, w.Points)
}

// undecided stands for the source of errors.
const undecided = "error"

// decider names the source of a decision.
func decider(d traffic.Decision, source weir.Source) string {
	if d == traffic.Failed {
		return undecided
	}
	return source.String()
}
