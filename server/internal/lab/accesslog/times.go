package accesslog

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A dater reads instants. Lines of one second have the same text in many logs: it
// remembers the last one.
type dater struct {
	text   string
	micros int64
}

const commonTime = "02/Jan/2006:15:04:05 -0700"

var layouts = []string{time.RFC3339Nano, commonTime, "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02T15:04:05Z0700"}

// read returns the µs since 1970 of an instant in one of the layouts, or of a
// number of seconds, ms, µs or ns since then, whichever is of this age.
func (d *dater) read(text, layout string) (int64, error) {
	if text == d.text && text != "" {
		return d.micros, nil
	}
	micros, err := parseTime(text, layout)
	if err == nil {
		d.text, d.micros = text, micros
	}
	return micros, err
}

func parseTime(text, layout string) (int64, error) {
	if layout != "" {
		if t, err := time.Parse(layout, text); err == nil {
			return within(t, text)
		}
		return 0, fmt.Errorf("the time %s is not of the form %s", shortened(text), layout)
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return epoch(n, text)
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return within(t, text)
		}
	}
	return 0, fmt.Errorf("the time %s is of no known form", shortened(text))
}

// epoch takes a number for seconds up to the year 5138, for ms beyond that and
// so on.
func epoch(n float64, text string) (int64, error) {
	for _, perMicro := range []float64{1e6, 1e3, 1, 1e-3} {
		if n >= 0 && n < 1e17/perMicro {
			return int64(math.Round(n * perMicro)), nil
		}
	}
	return 0, fmt.Errorf("the time %s is no number of seconds since 1970", shortened(text))
}

// within keeps to times that stores can count.
func within(t time.Time, text string) (int64, error) {
	if y := t.Year(); y < 1970 || y > 5000 {
		return 0, fmt.Errorf("the time %s is before 1970 or after 5000", shortened(text))
	}
	return max(0, t.UnixMicro()), nil
}

// shortened quotes a piece of a line.
func shortened(text string) string {
	const most = 40
	if len(text) > most {
		return strconv.QuoteToASCII(text[:most]) + "…"
	}
	return strconv.QuoteToASCII(text)
}
