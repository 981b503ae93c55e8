package weir_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

const (
	aDay   = 24 * time.Hour
	aWeek  = 7 * aDay
	aMonth = 30 * aDay
	aYear  = 365 * aDay
)

// window returns the calendar window of a limit around an instant: the starts of
// the windows before, of and after it are the middle ones of four.
func window(t testing.TB, l weir.Limit, now time.Time) (start, end time.Time) {
	t.Helper()
	r := l.MustCompile().RuleAt(now.UnixMicro())
	zone, err := time.LoadLocation(l.TimeZone)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(r.Starts) - 1 {
		if r.Starts[i] >= r.Starts[i+1] {
			t.Fatalf("%v at %v: starts %v", l, now, r.Starts)
		}
	}
	return time.UnixMicro(r.Starts[1]).In(zone), time.UnixMicro(r.Starts[2]).In(zone)
}

func TestCalendarWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone            string
		period          time.Duration
		anchor          int
		now, start, end string
	}{
		{"UTC", aDay, 0, "2025-06-15T12:00:00Z", "2025-06-15T00:00:00Z", "2025-06-16T00:00:00Z"},
		{"UTC", aDay, 0, "2025-06-15T00:00:00Z", "2025-06-15T00:00:00Z", "2025-06-16T00:00:00Z"},
		{"Asia/Kolkata", aDay, 0, "2025-06-15T20:00:00Z", "2025-06-16T00:00:00+05:30", "2025-06-17T00:00:00+05:30"},
		// The days on which clocks change have 23 and 25 hours.
		{"Europe/Paris", aDay, 0, "2025-03-30T12:00:00+02:00", "2025-03-30T00:00:00+01:00", "2025-03-31T00:00:00+02:00"},
		{"Europe/Paris", aDay, 0, "2025-10-26T12:00:00+01:00", "2025-10-26T00:00:00+02:00", "2025-10-27T00:00:00+01:00"},
		{"America/New_York", aDay, 0, "2025-11-02T01:30:00-05:00", "2025-11-02T00:00:00-04:00", "2025-11-03T00:00:00-05:00"},
		// Here midnight itself is skipped: the day begins at one o'clock.
		{"America/Sao_Paulo", aDay, 0, "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		{"America/Sao_Paulo", aDay, 0, "2018-11-03T12:00:00-03:00", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00"},
		// Here midnight comes twice: the day begins with the first one.
		{"Asia/Gaza", aDay, 0, "2012-09-20T12:00:00+03:00", "2012-09-20T00:00:00+03:00", "2012-09-21T00:00:00+03:00"},
		{"Asia/Gaza", aDay, 0, "2012-09-21T00:30:00+02:00", "2012-09-21T00:00:00+03:00", "2012-09-22T00:00:00+02:00"},
		{"Asia/Gaza", aDay, 0, "2017-10-27T12:00:00+03:00", "2017-10-27T00:00:00+03:00", "2017-10-28T00:00:00+03:00"},
		{"Asia/Gaza", aDay, 0, "2020-10-23T12:00:00+03:00", "2020-10-23T00:00:00+03:00", "2020-10-24T00:00:00+03:00"},
		{"America/Havana", aDay, 0, "2024-11-03T12:00:00-05:00", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00"},
		// Here the last hour of a day comes again once the day is over.
		{"America/St_Johns", aDay, 0, "2008-11-02T00:00:30-02:30", "2008-11-02T00:00:00-02:30", "2008-11-03T00:00:00-03:30"},
		{"America/St_Johns", aDay, 0, "2008-11-01T23:30:00-03:30", "2008-11-02T00:00:00-02:30", "2008-11-03T00:00:00-03:30"},
		// Weeks begin on Monday.
		{"UTC", aWeek, 0, "2025-06-15T23:59:59Z", "2025-06-09T00:00:00Z", "2025-06-16T00:00:00Z"},
		{"UTC", aWeek, 0, "2025-06-16T00:00:00Z", "2025-06-16T00:00:00Z", "2025-06-23T00:00:00Z"},
		{"UTC", aMonth, 0, "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"UTC", aMonth, 1, "2025-12-31T12:00:00Z", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"UTC", aMonth, 15, "2025-01-14T23:00:00Z", "2024-12-15T00:00:00Z", "2025-01-15T00:00:00Z"},
		{"UTC", aMonth, 15, "2025-01-15T00:00:00Z", "2025-01-15T00:00:00Z", "2025-02-15T00:00:00Z"},
		// The 31st is the last day where there is none.
		{"UTC", aMonth, 31, "2025-02-27T12:00:00Z", "2025-01-31T00:00:00Z", "2025-02-28T00:00:00Z"},
		{"UTC", aMonth, 31, "2025-02-28T12:00:00Z", "2025-02-28T00:00:00Z", "2025-03-31T00:00:00Z"},
		{"UTC", aMonth, 30, "2024-03-01T12:00:00Z", "2024-02-29T00:00:00Z", "2024-03-30T00:00:00Z"},
		{"UTC", aMonth, 31, "2025-04-30T12:00:00Z", "2025-04-30T00:00:00Z", "2025-05-31T00:00:00Z"},
		{"Europe/Paris", aYear, 0, "2024-12-31T23:30:00Z", "2025-01-01T00:00:00+01:00", "2026-01-01T00:00:00+01:00"},
		{"UTC", aYear, 0, "2024-12-31T23:30:00Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"},
	} {
		l := weir.Limit{Algorithm: weir.FixedWindow, Count: 1, Period: c.period, TimeZone: c.zone, AnchorDay: c.anchor}
		start, end := window(t, l, at(t, c.now))
		if !start.Equal(at(t, c.start)) || !end.Equal(at(t, c.end)) {
			t.Errorf("%v at %s: %v … %v, want %s … %s", l, c.now, start, end, c.start, c.end)
		}
	}
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

// TestCalendarWindowsTile draws instants and zones: the window around an instant
// holds it, and the next one begins where it ends.
func TestCalendarWindowsTile(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		l := weir.Limit{
			Algorithm: weir.FixedWindow, Count: 1,
			Period: rapid.SampledFrom([]time.Duration{aDay, aWeek, aMonth, aYear}).Draw(r, "period"),
			TimeZone: rapid.SampledFrom([]string{
				"UTC", "Europe/Paris", "America/Sao_Paulo", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Beirut",
				"Asia/Gaza", "America/Havana", "America/St_Johns", "Asia/Amman",
			}).Draw(r, "zone"),
		}
		if l.Period == aMonth {
			l.AnchorDay = rapid.IntRange(0, 31).Draw(r, "anchor")
		}
		now := time.UnixMicro(rapid.Int64Range(1e15, 2e15).Draw(r, "now"))
		start, end := window(t, l, now)
		if now.Before(start) || !now.Before(end) {
			r.Fatalf("%v: %v is not in %v … %v", l, now, start, end)
		}
		if next, _ := window(t, l, end); !next.Equal(end) {
			r.Fatalf("%v: after %v comes %v", l, end, next)
		}
		if _, before := window(t, l, start.Add(-time.Microsecond)); !before.Equal(start) {
			r.Fatalf("%v: before %v ends %v", l, start, before)
		}
		if length := end.Sub(start); length.Microseconds() > l.MustCompile().Rule().Drain {
			r.Fatalf("%v: %v is longer than keys live", l, length)
		}
	})
}
