package weir_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]weir.Limit{
		"10/s":                             weir.PerSecond(10),
		"100/min burst 20":                 {Count: 100, Period: time.Minute, Burst: 20},
		"100/m":                            weir.PerMinute(100),
		"10r/s":                            weir.PerSecond(10),
		"30r/m":                            weir.PerMinute(30),
		"1000-H":                           weir.PerHour(1000),
		"5/30s sliding_log":                {Count: 5, Period: 30 * time.Second, Algorithm: weir.SlidingLog},
		"5/day rolling_window buckets 24":  {Count: 5, Period: 24 * time.Hour, Algorithm: weir.RollingWindow, Buckets: 24},
		"9/hour fixed_window anchor first": {Count: 9, Period: time.Hour, Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst},
		"9/w fixed_window charge_refused":  {Count: 9, Period: 168 * time.Hour, Algorithm: weir.FixedWindow, ChargeRefused: true},
		"0/s":                              weir.PerSecond(0),
		"999999999999999/w fixed_window":   {Count: 999_999_999_999_999, Period: 168 * time.Hour, Algorithm: weir.FixedWindow},
		"counter/60s":                      {Count: math.MaxUint32, Period: time.Minute, Algorithm: weir.FixedWindow, Anchor: weir.AnchorFirst, ChargeRefused: true},
		"5/month fixed_window time_zone Europe/Paris anchor_day 15": {
			Count: 5, Period: 30 * 24 * time.Hour, Algorithm: weir.FixedWindow, TimeZone: "Europe/Paris", AnchorDay: 15,
		},
		"7/1h30m": weir.Per(7, 90*time.Minute),
	} {
		got, err := weir.ParseLimit(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseLimitRefuses(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		"": "limit", "x": "limit", "5": "limit", "5-X": "limit", "x-H": "limit",
		"counter/5x": "period", "counter/s gcra": "count", "x/s": "count", "/s": "count", "-1/s": "count", "1e3/s": "count", "99999999999999999999/s": "count", "1000000001/s": "count", "1000000000000000/w fixed_window": "count", "4294967296/w fixed_window charge_refused": "count",
		"5/": "period", "5/x": "period", "5/-1s": "period", "5/1us": "period", "5/1500us": "period", "5/9000h": "period",
		"5/s burst": "burst", "5/s burst 0": "burst", "5/s burst x": "burst", "5/s burst 1000000001": "burst", "5/s sliding_log burst 7": "burst",
		"5/s buckets 5": "buckets", "5/s rolling_window buckets 1": "buckets", "5/s rolling_window buckets 3601": "buckets",
		"5/s anchor first": "anchor", "5/s fixed_window anchor last": "anchor",
		"5/s concurrency charge_refused": "charge_refused", "5/s slding_log": "limit",
		"5/day time_zone UTC": "time_zone", "5/day fixed_window time_zone Mars/Base": "time_zone", "5/day fixed_window time_zone Local": "time_zone",
		"5/h fixed_window time_zone UTC": "period", "5/day fixed_window time_zone UTC anchor first": "time_zone", "5/day fixed_window anchor_day 3": "anchor_day",
		"5/month fixed_window time_zone UTC anchor_day 32": "anchor_day", "5/week fixed_window time_zone UTC anchor_day 3": "anchor_day",
		"1000000000/8784h sliding_counter": "count",
		"100001/s sliding_log":             "count", "1/8784h burst 1000000000": "burst", "1/8784h burst 1000000000 token_bucket": "burst",
	} {
		_, err := weir.ParseLimit(text)
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field || !errors.Is(err, weir.ErrInvalid) {
			t.Errorf("%q: %v; want one of %s", text, err, field)
		}
	}
}

// TestMistakesOfTwoFields wants the field that a value does not fit, and none for a value
// that is wrong by itself.
func TestMistakesOfTwoFields(t *testing.T) {
	t.Parallel()
	for text, beside := range map[string]string{
		"-1/s": "", "1000000001/s": "", "5/9000h": "", "5/s burst 1000000001": "", "5/s rolling_window buckets 1": "",
		"5/month fixed_window time_zone UTC anchor_day 32": "", "5/day fixed_window time_zone Mars/Base": "", "5/day fixed_window anchor_day 3": "",
		"100001/s sliding_log": "algorithm", "5/s sliding_log burst 7": "algorithm", "5/s buckets 5": "algorithm", "5/s anchor first": "algorithm",
		"5/s concurrency charge_refused": "algorithm", "5/day time_zone UTC": "algorithm",
		"5/day fixed_window time_zone UTC anchor first": "anchor", "5/h fixed_window time_zone UTC": "time_zone",
		"5/week fixed_window time_zone UTC anchor_day 3": "period", "1000000000/8784h sliding_counter": "period",
		"1/8784h burst 1000000000": "count",
	} {
		_, err := weir.ParseLimit(text)
		var invalid *weir.InvalidError
		if !errors.As(err, &invalid) || invalid.Beside != beside {
			t.Errorf("%q: %#v; want one beside %q", text, err, beside)
		}
	}
}

// TestTextFormIsReadBack writes random valid limits and reads them.
func TestTextFormIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := weir.Per(rapid.Int64Range(0, 1e5).Draw(t, "count"), time.Duration(rapid.Int64Range(1, 366*86400_000).Draw(t, "period"))*time.Millisecond)
		l.Algorithm = rapid.SampledFrom([]weir.Algorithm{weir.GCRA, weir.FixedWindow, weir.SlidingLog, weir.RollingWindow, weir.TokenBucket}).Draw(t, "algorithm")
		switch l.Algorithm {
		case weir.GCRA, weir.TokenBucket:
			l.Burst = rapid.Int64Range(0, 1000).Draw(t, "burst")
		case weir.RollingWindow:
			l.Buckets = rapid.IntRange(2, 3600).Draw(t, "buckets")
		case weir.FixedWindow:
			l.Anchor = weir.Anchor(rapid.IntRange(0, 1).Draw(t, "anchor"))
			l.ChargeRefused = rapid.Bool().Draw(t, "charge refused")
		}
		compiled, err := l.Compile()
		if err != nil {
			t.Skip(err)
		}
		read, err := weir.ParseLimit(compiled.String())
		if err != nil {
			t.Fatalf("%q: %v", compiled, err)
		}
		again, err := read.Compile()
		if err != nil || *again != *compiled {
			t.Fatalf("%q: read as %+v, was %+v (%v)", compiled, again, compiled, err)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{"10/s", "100/min burst 20", "10r/s", "1000-H", "counter/h", "5/30s rolling_window buckets 7", "9/h fixed_window anchor first"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l weir.Limit
		var err error
		fuzztest.Within(t, fuzztest.MostBytes, len(text), func() { l, err = weir.ParseLimit(text) })
		if err != nil {
			if !errors.Is(err, weir.ErrInvalid) || len(err.Error()) > 500 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if again, err := weir.ParseLimit(l.String()); err != nil || again.String() != l.String() {
			t.Errorf("%q reads as %q, which reads as %q, %v", text, l, again, err)
		}
	})
}

// TestProductsStayExact compiles limits at the corners and checks that no
// product of theirs reaches 2⁵³.
func TestProductsStayExact(t *testing.T) {
	t.Parallel()
	corners := []int64{1, 2, 3, 7, 999_983, 1_000_000, 999_999_937, 1_000_000_000}
	periods := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, time.Hour, 24 * time.Hour, 366*24*time.Hour - time.Millisecond, 366 * 24 * time.Hour}
	const exact = 1 << 53
	below := func(a, b int64) bool { return float64(a)*float64(b) < exact }
	for _, count := range corners {
		for _, burst := range corners {
			for _, period := range periods {
				for _, algorithm := range []weir.Algorithm{weir.GCRA, weir.TokenBucket} {
					l, err := weir.Limit{Algorithm: algorithm, Count: count, Burst: burst, Period: period}.Compile()
					if err != nil {
						continue
					}
					r := l.Rule()
					if r.Cap < 2*r.Burst || r.Drain <= 0 {
						t.Errorf("%v: %+v", l, r)
					}
					if algorithm == weir.GCRA && (!below(r.Cap, r.Den) || !below(r.Full, r.Num) || !below(r.Full, r.Tick) || r.Num > math.MaxUint32) {
						t.Errorf("%v: %+v", l, r)
					}
					if algorithm == weir.TokenBucket && !below((r.Cap+count-1)/count, r.Period) {
						t.Errorf("%v: %+v", l, r)
					}
				}
			}
		}
	}
}

func TestResolutionIsTheFinestThatIsExact(t *testing.T) {
	t.Parallel()
	for text, tick := range map[string]int64{
		"3/s": 1, "7/min": 1, "999983/h": 1, "999983/day": 1000, "1000000000/day": 1, "9999991/8784h burst 100000000": 1_000_000,
	} {
		l, err := weir.ParseLimit(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := l.MustCompile().Rule().Tick; got != tick {
			t.Errorf("%s: tick %d µs, want %d", text, got, tick)
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	t.Parallel()
	for _, name := range strings.Split(algo.Names(), ", ") {
		if a, err := weir.ParseAlgorithm(name); err != nil || a.String() != name {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	if _, err := weir.ParseAlgorithm("leaky"); !errors.Is(err, weir.ErrInvalid) {
		t.Error(err)
	}
	if got := weir.Algorithm(99).String(); got != "Algorithm(99)" {
		t.Error(got)
	}
}
