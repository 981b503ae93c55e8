package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/testing/storetest"
	"github.com/weirlimit/weir/server/internal/lab/accesslog"
)

// asking asks one unit of each limit for each client.
func asking(limits ...Limit) func(*accesslog.Record) (Question, error) {
	return func(r *accesslog.Record) (Question, error) {
		client, ok := r.Get("remote_addr")
		if !ok {
			return Question{}, errors.New("no client")
		}
		q := Question{Matched: true}
		for i, l := range limits {
			act := storetest.NewAct(weir.Charge{Key: l.Name + ":" + client, Limit: l.Limit, Cost: 1})
			q.Acts = append(q.Acts, act)
			q.Asked = append(q.Asked, Asked{Limit: i, Act: act})
		}
		return q, nil
	}
}

// failing is what a test and a property have in common.
type failing interface {
	Helper()
	Fatal(args ...any)
}

func play(t failing, text string, o Options) *Result {
	t.Helper()
	log, err := accesslog.Open([]string{"-"}, strings.NewReader(text), accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := New(o)
	for {
		record, err := log.Next()
		if errors.Is(err, io.EOF) {
			return r.Result(log.Stats())
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Add(record)
	}
}

// noon is an ordinary day.
const noon = 1_750_000_000

func line(b *strings.Builder, at float64, client string) {
	fmt.Fprintf(b, `{"time":%.6f,"remote_addr":%q}`+"\n", noon+at, client)
}

// TestModel: what is refused is what the definition of the rule refuses, and so is
// what is suggested.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := weir.Limit{
			Algorithm: weir.Algorithm(rapid.IntRange(0, int(weir.Concurrency)-1).Draw(t, "algorithm")),
			Count:     rapid.Int64Range(1, 40).Draw(t, "count"),
			Period:    time.Duration(rapid.IntRange(1, 20).Draw(t, "seconds")) * time.Second,
		}
		limit := l.MustCompile()
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var text strings.Builder
		judges, refused := map[string]*storetest.Judge{}, int64(0)
		at, n := int64(noon*1e6), rapid.IntRange(1, 200).Draw(t, "requests")
		type request struct {
			at     int64
			client string
		}
		var requests []request
		for range n {
			at += rng.Int64N(2 * int64(1e6) * int64(l.Period.Seconds()) / l.Count)
			client := string(rune('a' + rng.IntN(2)))
			fmt.Fprintf(&text, `{"time":"%s","remote_addr":"%s"}`+"\n", time.UnixMicro(at).UTC().Format(time.RFC3339Nano), client)
			requests = append(requests, request{at, client})
			if judges[client] == nil {
				judges[client] = storetest.NewJudge(limit)
			}
			if !judges[client].Take(at, 1) {
				refused++
			}
		}
		limits := []Limit{{Name: "l", Limit: limit}}
		r := play(t, text.String(), Options{Limits: limits, Ask: asking(limits...), Suggest: 0.1})
		got := &r.Limits[0]
		if got.Refused != refused || got.Matched != int64(n) || r.Totals.Refused != refused {
			t.Fatalf("%v: %d of %d refused, the rule says %d of %d", limit, got.Refused, got.Matched, refused, n)
		}
		s := got.Suggestion
		clear(judges)
		refused = 0
		for _, q := range requests {
			if judges[q.client] == nil {
				judges[q.client] = storetest.NewJudge(&s.Limit)
			}
			if !judges[q.client].Take(q.at, 1) {
				refused++
			}
		}
		if s.Refused != refused || s.Found && float64(refused) > 0.1*float64(n) {
			t.Fatalf("%v is said to refuse %d, the rule says %d", &s.Limit, s.Refused, refused)
		}
	})
}

// TestResult: who was refused, when, how often, and how close the others came.
func TestResult(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 20 {
		line(&text, float64(i)/10, "abuser")
	}
	for i := range 5 {
		line(&text, 2, fmt.Sprint("client", i))
	}
	line(&text, 2.5, "client0")
	text.WriteString(`{"time":1750000003.5}` + "\n")
	limits := []Limit{
		{Name: "ten", Limit: weir.Limit{Algorithm: weir.SlidingLog, Count: 10, Period: time.Minute}.MustCompile()},
		{Name: "watched", Limit: weir.Limit{Algorithm: weir.SlidingLog, Count: 1, Period: time.Minute}.MustCompile(), Shadow: true},
	}
	r := play(t, text.String(), Options{Limits: limits, Ask: asking(limits...), Suggest: 0, Top: 3})
	if r.Totals.Requests != 27 || r.Totals.Refused != 10 || r.Totals.Invalid != 1 || r.Totals.Matched != 26 || !r.Totals.Fractions {
		t.Errorf("totals %+v", r.Totals)
	}
	ten, watched := &r.Limits[0], &r.Limits[1]
	first, last := time.Unix(noon+1, 0), time.UnixMicro(noon*1e6+1_900_000)
	if ten.Matched != 26 || ten.Refused != 10 || !ten.First.Equal(first) || !ten.Last.Equal(last) {
		t.Errorf("ten: %+v", ten)
	}
	if watched.Refused != 20 {
		t.Errorf("watched: %+v", watched)
	}
	if k := ten.Denied; len(k) != 1 || k[0].Key != "ten:abuser" || k[0].Count != 10 {
		t.Errorf("denied: %+v", k)
	}
	if k := ten.Busiest; len(k) != 3 || k[0].Refused != 10 || k[0].Closest != 1 || k[1].Key != "ten:client0" || k[1].Closest != 0.2 {
		t.Errorf("busiest: %+v", k)
	}
	// The abuser's ten grants, then one each of the five, and the second of one.
	if want := [levels]int64{6, 2, 1, 1, 1, 1, 1, 1, 1, 1}; ten.Used != want {
		t.Errorf("used %v, want %v", ten.Used, want)
	}
	if s := ten.Suggestion; !s.Found || s.Refused != 0 || s.Limit.Count != 20 {
		t.Errorf("suggestion %+v", s)
	}
	var page bytes.Buffer
	if err := r.Page().WriteText(&page, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10 of 27 requests refused", "watched (shadow)", "20/min sliding_log", "abuser", "Requests that could not be decided, because a value is too long: 1."} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
}

// TestSuggestionBounds: where no limit does, or any would, that is what is said.
func TestSuggestionBounds(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 600 {
		line(&text, float64(i)/1e4, "one")
	}
	for limit, want := range map[string]string{
		"1/min":             "more than 250/min sliding_log",
		"1000000/min":       "64000/min sliding_log or less",
		"600/min":           "600/min sliding_log",
		"0/min":             "",
		"100000/min":        "6400/min sliding_log or less",
		"16/min burst 1000": "256/min burst 16000 or less",
	} {
		l, err := weir.ParseLimit(limit)
		if err != nil {
			t.Fatal(err)
		}
		if l.Burst == 0 {
			l.Algorithm = weir.SlidingLog
		}
		if l.Count > 100_000 {
			l.Algorithm = weir.FixedWindow
			want = strings.Replace(want, "sliding_log", "fixed_window", 1)
		}
		limits := []Limit{{Name: "l", Limit: l.MustCompile()}}
		r := play(t, text.String(), Options{Limits: limits, Ask: asking(limits...)})
		rows := r.suggestions().Rows
		got := ""
		if len(rows) > 0 {
			got = rows[0][1]
		}
		if limit == "16/min burst 1000" {
			// The burst alone takes all of them, down to 600 of 1000.
			want = "10/min burst 625"
		}
		if got != want {
			t.Errorf("%s: suggested %q, want %q", limit, got, want)
		}
	}
}

// TestAxis: a course keeps its sum however long it gets.
func TestAxis(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var x axis
		one, other := x.add(), x.add()
		at, n := int64(1e15), int64(0)
		for _, gap := range rapid.SliceOfN(rapid.Int64Range(0, 5e9), 1, 50).Draw(t, "gaps") {
			at += gap
			point := x.index(at)
			if from := x.start + int64(point)*x.width; at < from || at >= from+x.width || point >= maxPoints {
				t.Fatalf("%d is not in point %d of %+v", at, point, x)
			}
			one.count(point)
			if n++; n%3 == 0 {
				other.count(point)
			}
		}
		for c, want := range map[*course]int64{one: n, other: n / 3} {
			sum := int64(0)
			for _, v := range c.counts {
				sum += v
			}
			if sum != want || len(c.counts) > x.points {
				t.Fatalf("%d of %d in %d points of %d", sum, want, len(c.counts), x.points)
			}
		}
	})
}

// TestMemory: without room for all keys, what was shared is told.
func TestMemory(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 3000 {
		line(&text, float64(i)/1e4, fmt.Sprintf("client-%d", i))
	}
	limits := []Limit{{Name: "l", Limit: weir.PerHour(10).MustCompile()}}
	r := play(t, text.String(), Options{Limits: limits, Ask: asking(limits...), Suggest: -1, MaxBytes: 64 << 10})
	if r.Shared == 0 || !strings.Contains(strings.Join(r.notes(), "\n"), "because memory was short") {
		t.Errorf("shared %d, notes %q", r.Shared, r.notes())
	}
}
