package ratelimitheader

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestQuotedName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":            `""`,
		"user":        `"user"`,
		"a b;c=d,e":   `"a b;c=d,e"`,
		`say "hi"`:    `"say \"hi\""`,
		`back\slash`:  `"back\\slash"`,
		"100%":        `"100%25"`,
		"größe":       `"gr%C3%B6%C3%9Fe"`,
		"a\r\nX-Y: 1": `"a%0D%0AX-Y: 1"`,
		"\x7f\xff":    `"%7F%FF"`,
	} {
		if got := string(appendQuoted(nil, name)); got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

func TestQuotaOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		count          int64
		period         time.Duration
		quota, seconds int64
	}{
		{100, time.Minute, 100, 60},
		{5, time.Second, 5, 1},
		{10, 100 * time.Millisecond, 100, 1},
		{1, 700 * time.Millisecond, 1, 1},
		{10, 1500 * time.Millisecond, 13, 2},
		{0, time.Second, 0, 1},
		{weir.MaxCost, time.Millisecond, weir.MaxCost * 1000, 1},
		{999_999_999_999_999, time.Millisecond, 999_999_999_999_999, 1},
		{1<<32 - 1, 366 * 24 * time.Hour, 1<<32 - 1, 366 * 24 * 3600},
	} {
		quota, seconds := QuotaOf(&weir.Limit{Count: test.count, Period: test.period})
		if quota != test.quota || seconds != test.seconds {
			t.Errorf("%d per %s: got %d in %d s, want %d in %d s", test.count, test.period, quota, seconds, test.quota, test.seconds)
		}
	}
}

func TestAnswerOfSeveral(t *testing.T) {
	t.Parallel()
	limits := []weir.Limit{
		{Name: "burst", Count: 10, Period: time.Second},
		weir.PerDay(100),
		{Name: "open", Count: 5, Period: time.Minute, Algorithm: weir.Concurrency},
		{Name: "burst", Count: 10, Period: time.Second},
	}
	act := &weir.Act{Decisions: []weir.Decision{
		{Outcome: weir.Granted, Remaining: 9, ResetAfter: 100 * time.Millisecond},
		{Outcome: weir.Granted, Remaining: 50, ResetAfter: time.Hour},
		{Outcome: weir.Granted, Remaining: 1, ResetAfter: time.Minute},
		{Outcome: weir.Granted, Remaining: 9},
	}}
	for _, limit := range limits {
		act.Charges = append(act.Charges, weir.Charge{Limit: limit.MustCompile()})
	}
	answer := AnswerOf(act)
	want := `"burst";q=10;w=1, "100/day";q=100;w=86400, "open";q=5;qu="concurrent-requests"`
	if got := answer.Policies(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := answer.Available(), `"open";r=1`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	limit := (&weir.Limit{Name: "user", Count: 1000, Period: time.Minute}).MustCompile()
	answer := Answer{
		Limits:   []*weir.Limit{limit},
		Decision: weir.Decision{Limit: limit, Outcome: weir.Granted, Remaining: 998, ResetAfter: 120 * time.Millisecond},
	}
	h := http.Header{}
	answer.Write(h, Draft11)
	want := http.Header{
		keyPolicy: {`"user";q=1000;w=60`}, keyRateLimit: {`"user";r=998;t=1`},
		keyLimit: {"1000"}, keyRemaining: {"998"}, keyReset: {"1"},
	}
	if !maps.EqualFunc(h, want, slices.Equal) {
		t.Errorf("got %v, want %v", h, want)
	}
	// What an inner limit writes stands behind the outer one's, and overrules it
	// where there is room for one only.
	answer.Decision.Remaining = 5
	answer.Write(h, Draft11)
	want[keyPolicy] = append(want[keyPolicy], want[keyPolicy][0])
	want[keyRateLimit] = append(want[keyRateLimit], `"user";r=5;t=1`)
	want[keyRemaining] = []string{"5"}
	if !maps.EqualFunc(h, want, slices.Equal) {
		t.Errorf("got %v, want %v", h, want)
	}
}

// TestWriteAllocates not more than the text and its pieces.
func TestWriteAllocates(t *testing.T) {
	limit := (&weir.Limit{Name: "user", Count: 1000, Period: time.Minute}).MustCompile()
	answer := Answer{Limits: []*weir.Limit{limit}, Decision: weir.Decision{Limit: limit}}
	h := http.Header{}
	if got := testing.AllocsPerRun(100, func() { clear(h); answer.Write(h, Draft11) }); got > 2 {
		t.Errorf("%v allocations, want 2", got)
	}
}

func TestStyleNames(t *testing.T) {
	t.Parallel()
	for style := range styles {
		if got, err := ParseStyle(style.String()); err != nil || got != style {
			t.Errorf("%s: got %s, %v", style, got, err)
		}
	}
	if _, err := ParseStyle("draft-3"); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("draft-3: got %v, want an error", err)
	}
}
