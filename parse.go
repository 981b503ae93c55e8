package weir

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/algo"
)

// A unit is a period that has a name.
type unit struct {
	period time.Duration
	names  []string // the first is how String writes it
}

var units = []unit{
	{time.Second, []string{"s", "sec", "second"}},
	{time.Minute, []string{"min", "m", "minute"}},
	{time.Hour, []string{"h", "hr", "hour"}},
	{day, []string{"day", "d"}},
	{week, []string{"week", "w"}},
	{month, []string{"month"}},
	{year, []string{"year"}},
}

const limitForm = `a limit such as "100/min", "10/30s burst 20" or "5/s sliding_log"`

// ParseLimit reads the text form of a limit:
//
//	COUNT/PERIOD [burst N] [ALGORITHM] [buckets N] [anchor first]
//	             [time_zone ZONE] [anchor_day N] [charge_refused] [block DURATION]
//
// PERIOD is s, min, h, day, week, month (30 days) or year (365 days), or a
// duration such as 30s or 1h30m. ParseLimit also reads the forms of nginx
// ("10r/s", "30r/m") and ulule ("1000-H"). "counter/PERIOD" is a limit that never refuses and
// whose Remaining tells how much was charged: 4294967295 less that, in windows that begin with
// the first charge. It checks the limit as [Limit.Compile]
// does; the error is an [*InvalidError].
func ParseLimit(text string) (Limit, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Limit{}, invalid("limit", quoted(text), limitForm)
	}
	limit, err := parseRate(words[0])
	if err != nil {
		return Limit{}, err
	}
	if err := limit.parseOptions(words[1:]); err != nil {
		return Limit{}, err
	}
	if _, err := limit.Compile(); err != nil {
		return Limit{}, err
	}
	return limit, nil
}

func parseRate(text string) (Limit, error) {
	count, period, found := strings.Cut(text, "/")
	if !found {
		return parseUlule(text)
	}
	if count == "counter" {
		d, err := parsePeriod(period)
		return Limit{Algorithm: FixedWindow, Count: math.MaxUint32, Period: d, Anchor: AnchorFirst, ChargeRefused: true}, err
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(count, "r"), 10, 64)
	if err != nil {
		return Limit{}, invalid("count", quoted(count), "a whole number")
	}
	d, err := parsePeriod(period)
	if err != nil {
		return Limit{}, err
	}
	return Per(n, d), nil
}

// parseUlule reads COUNT-S, -M, -H or -D.
func parseUlule(text string) (Limit, error) {
	count, letter, found := strings.Cut(text, "-")
	periods := map[string]time.Duration{"S": time.Second, "M": time.Minute, "H": time.Hour, "D": 24 * time.Hour}
	n, err := strconv.ParseInt(count, 10, 64)
	if d, known := periods[letter]; found && known && err == nil {
		return Per(n, d), nil
	}
	return Limit{}, invalid("limit", quoted(text), limitForm)
}

func parsePeriod(text string) (time.Duration, error) {
	for _, u := range units {
		for _, name := range u.names {
			if text == name {
				return u.period, nil
			}
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, invalid("period", quoted(text), "s, min, h, day, week, month, year or a duration such as 30s")
	}
	return d, nil
}

func (l *Limit) parseOptions(words []string) error {
	for len(words) > 0 {
		taken := 1
		switch words[0] {
		case "charge_refused":
			l.ChargeRefused = true
		case "burst", "buckets", "anchor", "time_zone", "anchor_day", "block":
			if len(words) < 2 {
				return invalid(words[0], "missing", "a value after it")
			}
			if err := l.parseOption(words[0], words[1]); err != nil {
				return err
			}
			taken = 2
		default:
			algorithm, err := ParseAlgorithm(words[0])
			if err != nil {
				return invalid("limit", quoted(words[0]), "burst, buckets, anchor, time_zone, anchor_day, charge_refused, block or an algorithm: "+algo.Names())
			}
			l.Algorithm = algorithm
		}
		words = words[taken:]
	}
	return nil
}

func (l *Limit) parseOption(name, value string) error {
	switch name {
	case "time_zone":
		l.TimeZone = value
		return nil
	case "block":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return invalid(name, quoted(value), "a duration such as 10m")
		}
		l.Block = d
		return nil
	case "anchor":
		if value != "first" && value != "epoch" {
			return invalid(name, quoted(value), "epoch or first")
		}
		if value == "first" {
			l.Anchor = AnchorFirst
		}
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 1 {
		return invalid(name, quoted(value), "a whole number from 1 on")
	}
	switch name {
	case "burst":
		l.Burst = n
	case "buckets":
		l.Buckets = int(n)
	case "anchor_day":
		l.AnchorDay = int(n)
	}
	return nil
}

// quoted returns a piece of input in quotes, cut to a length that fits a message.
func quoted(text string) string {
	const most = 64
	if len(text) > most {
		for text = text[:most]; !utf8.ValidString(text) && len(text) > most-utf8.UTFMax; {
			text = text[:len(text)-1]
		}
		return fmt.Sprintf("%q…", text)
	}
	return strconv.Quote(text)
}

// String returns the text form of the limit, without its name. [ParseLimit] reads it.
func (l Limit) String() string {
	b := strconv.AppendInt(make([]byte, 0, 32), l.Count, 10)
	b = append(append(b, '/'), periodText(l.Period)...)
	if l.Burst != 0 && l.Burst != l.Count {
		b = strconv.AppendInt(append(b, " burst "...), l.Burst, 10)
	}
	if l.Algorithm != GCRA {
		b = append(append(b, ' '), l.Algorithm.String()...)
	}
	if l.Buckets != 0 && l.Buckets != defaultBuckets {
		b = strconv.AppendInt(append(b, " buckets "...), int64(l.Buckets), 10)
	}
	if l.Anchor == AnchorFirst {
		b = append(b, " anchor first"...)
	}
	if l.TimeZone != "" {
		b = append(append(b, " time_zone "...), l.TimeZone...)
	}
	if l.AnchorDay != 0 {
		b = strconv.AppendInt(append(b, " anchor_day "...), int64(l.AnchorDay), 10)
	}
	if l.ChargeRefused {
		b = append(b, " charge_refused"...)
	}
	if l.Block != 0 {
		b = append(append(b, " block "...), l.Block.String()...)
	}
	return string(b)
}

func periodText(d time.Duration) string {
	for _, u := range units {
		if u.period == d {
			return u.names[0]
		}
	}
	return d.String()
}
