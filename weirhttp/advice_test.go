package weirhttp

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testing/fuzztest"
)

func TestReadAdvice(t *testing.T) {
	t.Parallel()
	const none = -1
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	date := func(after time.Duration) string { return now.Add(after).Format(http.TimeFormat) }
	for name, test := range map[string]struct {
		headers string // "Name: value" in lines
		epoch   bool
		refusal time.Duration // what a refusal asks for
		empty   time.Duration // what any answer asks for
	}{
		"nothing":                     {"", false, none, none},
		"retry after":                 {"Retry-After: 7", false, 7 * time.Second, none},
		"retry after, at once":        {"Retry-After: 0", false, 0, none},
		"retry after, part":           {"Retry-After: 1.5", false, 1500 * time.Millisecond, none},
		"retry after, date":           {"Retry-After: " + date(time.Minute), false, time.Minute, none},
		"retry after, server's date":  {"Date: " + date(-time.Hour) + "\nRetry-After: " + date(-time.Hour+time.Minute), false, time.Minute, none},
		"retry after, past":           {"Retry-After: " + date(-time.Minute), false, 0, none},
		"retry after, nonsense":       {"Retry-After: soon", false, none, none},
		"retry after, negative":       {"Retry-After: -1", false, none, none},
		"retry after, without end":    {"Retry-After: 1e300", false, maxAdvice, none},
		"retry after, not a number":   {"Retry-After: NaN", false, none, none},
		"retry after wins":            {"Retry-After: 7\nRateLimit: \"a\";r=0;t=90", false, 7 * time.Second, 90 * time.Second},
		"draft-11":                    {`RateLimit: "a";r=0;t=9`, false, 9 * time.Second, 9 * time.Second},
		"draft-11, something left":    {`RateLimit: "a";r=1;t=9`, false, 9 * time.Second, none},
		"draft-11, several":           {`RateLimit: "a";r=0;t=9, "b";r=3;t=99, "c";r=0;t=8`, false, 9 * time.Second, 9 * time.Second},
		"draft-11, two fields":        {"RateLimit: \"a\";r=0;t=8\nRateLimit: \"b\";r=0;t=9", false, 9 * time.Second, 9 * time.Second},
		"draft-11, no window":         {`RateLimit: "a";r=0`, false, none, none},
		"draft-11, name like params":  {`RateLimit: "a;r=5, \"x\"=1";r=0;t=9;pk=:AA==:`, false, 9 * time.Second, 9 * time.Second},
		"draft-11, renamed":           {`RateLimit: default;a=0;w=9`, false, 9 * time.Second, 9 * time.Second},
		"draft-11, spaces":            {`RateLimit: "a" ; r=0 ; t=9`, false, 9 * time.Second, 9 * time.Second},
		"draft-11, broken":            {`RateLimit: "a;r=0;t=9`, false, none, none},
		"dictionary":                  {`RateLimit: limit=100, remaining=0, reset=9`, false, 9 * time.Second, 9 * time.Second},
		"triple":                      {"RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 9", false, 9 * time.Second, 9 * time.Second},
		"X-RateLimit":                 {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 9", false, 9 * time.Second, 9 * time.Second},
		"X-RateLimit, decimals":       {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 9.25", false, 9250 * time.Millisecond, 9250 * time.Millisecond},
		"X-RateLimit, reset only":     {"X-RateLimit-Reset: 9", false, 9 * time.Second, none},
		"X-RateLimit, remaining only": {"X-RateLimit-Remaining: 0", false, none, none},
		"X-RateLimit, date":           {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: " + date(time.Minute), false, time.Minute, time.Minute},
		"X-RateLimit, epoch":          {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1777636809", true, 9 * time.Second, 9 * time.Second},
		"X-RateLimit, epoch in ms":    {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1777636809500", true, 9500 * time.Millisecond, 9500 * time.Millisecond},
		"X-RateLimit, epoch past":     {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1777636000", true, 0, 0},
		"X-RateLimit, epoch unknown":  {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1777636809", false, maxAdvice, maxAdvice},
		"triple in epoch mode":        {"RateLimit-Remaining: 0\nRateLimit-Reset: 9", true, 9 * time.Second, 9 * time.Second},
		"RateLimit before X":          {"RateLimit: \"a\";r=0;t=9\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", false, 9 * time.Second, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for line := range strings.Lines(test.headers) {
				name, value, _ := strings.Cut(line, ":")
				h.Add(name, strings.TrimSpace(value))
			}
			a := readAdvice(h, now, test.epoch)
			want(t, "a refusal", test.refusal, a.afterRefusal)
			want(t, "an answer", test.empty, a.empty)
		})
	}
}

func want(t *testing.T, what string, wait time.Duration, of func() (time.Duration, bool)) {
	t.Helper()
	if got, ok := of(); ok != (wait >= 0) || ok && got != wait {
		t.Errorf("%s: got %v, %t, want %v", what, got, ok, wait)
	}
}

// FuzzReadAdvice holds that no header makes a client wait less than nothing or more
// than a year.
func FuzzReadAdvice(f *testing.F) {
	f.Add("120", `"a;r=0";r=0;t=1, "b";r=5`, "", "0", "60")
	f.Add("Fri, 01 May 2026 12:00:00 GMT", `limit=10, remaining=0, reset=30`, "\\", "", "1777636800123")
	f.Add("-1", `"\`, "1e400", "NaN", "-5")
	f.Add("7", `"a";r=0;t=9, limit=1, remaining=0`, "", "1e400", "0x1p-2")
	f.Fuzz(func(t *testing.T, retryAfter, rateLimit, date, remaining, reset string) {
		h := http.Header{}
		for name, value := range map[string]string{
			"Retry-After": retryAfter, "RateLimit": rateLimit, "Date": date,
			"X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": reset,
		} {
			h.Set(name, value)
		}
		for _, epoch := range []bool{false, true} {
			var said advice
			fuzztest.Within(t, fuzztest.MostBytes, len(retryAfter)+len(rateLimit)+len(date)+len(remaining)+len(reset), func() {
				said = readAdvice(h, time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC), epoch)
			})
			for _, read := range []func() (time.Duration, bool){said.afterRefusal, said.empty} {
				if wait, ok := read(); wait < 0 || wait > maxAdvice || !ok && wait != 0 {
					t.Fatalf("%v, %v", wait, ok)
				}
			}
		}
	})
}
