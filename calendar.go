package weir

import (
	"time"

	"github.com/weirlimit/weir/internal/algo"
)

const (
	day   = 24 * time.Hour
	week  = 7 * day
	month = 30 * day
	year  = 365 * day
)

func (l *Limit) checkCalendar() error {
	if l.TimeZone == "" {
		if l.AnchorDay != 0 {
			return invalid("anchor_day", l.AnchorDay, "none: only calendar months, which need a time_zone, have one")
		}
		return nil
	}
	switch {
	case !algo.TraitsOf(l.Algorithm).Calendars:
		return invalidBeside("time_zone", quoted(l.TimeZone), "algorithm", "none: only fixed_window has calendar windows")
	case l.Anchor != AnchorEpoch:
		return invalidBeside("time_zone", quoted(l.TimeZone), "anchor", "none: windows begin with their first charge")
	case l.Period != day && l.Period != week && l.Period != month && l.Period != year:
		return invalidBeside("period", l.Period, "time_zone", "24h, 168h, 720h or 8760h: a calendar has days, weeks, months and years")
	case l.AnchorDay < 0 || l.AnchorDay > 31:
		return invalidNumber("anchor_day", l.AnchorDay, 1, 31, "1")
	case l.AnchorDay != 0 && l.Period != month:
		return invalidBeside("anchor_day", l.AnchorDay, "period", "none: only calendar months have one")
	}
	zone, err := time.LoadLocation(l.TimeZone)
	if err != nil || l.TimeZone == "Local" {
		return invalid("time_zone", quoted(l.TimeZone), `an IANA time zone such as "Europe/Paris" or "UTC"`)
	}
	l.zone = zone
	return nil
}

// starts returns when the calendar windows before, around and after an instant
// begin, and the one after that.
func (l *Limit) starts(now time.Time) [4]int64 {
	var s [4]int64
	for i := range s {
		s[i] = l.start(now, i-1).UnixMicro()
	}
	return s
}

// start returns the beginning of the calendar window that lies offset windows
// after that of now.
func (l *Limit) start(now time.Time, offset int) time.Time {
	y, m, d := now.In(l.zone).Date()
	at := func(y int, m time.Month, d int) time.Time { return midnight(y, m, d, l.zone) }
	if !now.Before(at(y, m, d+1)) {
		// A clock that went back over midnight repeats the end of a day that is over.
		d++
	}
	today := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	y, m, d = today.Date()
	switch l.Period {
	case day:
		return at(y, m, d+offset)
	case week:
		return at(y, m, d-(int(today.Weekday())+6)%7+7*offset)
	case year:
		return at(y+offset, time.January, 1)
	}
	anchor := func(m time.Month) time.Time {
		// Day 0 of the next month is the last of this one.
		last := time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day()
		return at(y, m, min(max(1, l.AnchorDay), last))
	}
	if now.Before(anchor(m)) {
		m--
	}
	return anchor(m + time.Month(offset))
}

// midnight is the first instant of a day. Where a zone skips midnight, time.Date
// may answer with an instant of the day before, and where midnight comes twice, with
// the second one.
func midnight(y int, m time.Month, d int, zone *time.Location) time.Time {
	t, want := time.Date(y, m, d, 0, 0, 0, 0, zone), time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	if t.Day() != want.Day() {
		return time.Date(y, m, d, 1, 0, 0, 0, zone)
	}
	if changed, _ := t.ZoneBounds(); !changed.IsZero() {
		_, before := changed.Add(-time.Second).Zone()
		if first := want.Add(-time.Duration(before) * time.Second); first.Before(changed) {
			return first.In(zone)
		}
	}
	return t
}
