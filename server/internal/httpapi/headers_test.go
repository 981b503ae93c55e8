package httpapi

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/rules"
)

// verdictOn is a verdict of one limit of 10 a minute.
func verdictOn(d weir.Decision) *verdict {
	limit := weir.Limit{Name: "m", Count: 10, Period: time.Minute}.MustCompile()
	act := &weir.Act{Charges: []weir.Charge{{Limit: limit, Cost: 1}}, Decisions: []weir.Decision{d}}
	v := new(verdict)
	v.read(&rules.Request{Cost: 1}, &rules.Plan{
		Acts:    []*weir.Act{act},
		Applied: []rules.Applied{{Rule: &rules.Rule{}, Of: &rules.Limit{}, Limit: limit, Act: act}},
	})
	return v
}

func TestWriteHeaders(t *testing.T) {
	t.Parallel()
	granted := weir.Decision{Outcome: weir.Granted, Granted: 1, Remaining: 9, ResetAfter: 5900 * time.Millisecond}
	refused := weir.Decision{Outcome: weir.Refused, Remaining: 0, RetryAfter: 2100 * time.Millisecond, ResetAfter: time.Minute}
	never := weir.Decision{Outcome: weir.Refused, Remaining: 10, RetryAfter: weir.Never}
	neverFits := weir.Decision{Outcome: weir.Refused, Remaining: 4, RetryAfter: weir.Never, ResetAfter: time.Minute}
	soon := weir.Decision{Outcome: weir.Refused, RetryAfter: time.Microsecond, ResetAfter: time.Second}
	for name, test := range map[string]struct {
		style    ratelimitheader.Style
		decision weir.Decision
		want     map[string]string
	}{
		"draft-11, granted": {ratelimitheader.Draft11, granted, map[string]string{
			"Ratelimit-Policy": `"m";q=10;w=60`, "Ratelimit": `"m";r=9;t=6`,
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "6",
		}},
		"draft-11, refused": {ratelimitheader.Draft11, refused, map[string]string{
			"Ratelimit-Policy": `"m";q=10;w=60`, "Ratelimit": `"m";r=0;t=3`, "Retry-After": "3",
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60",
		}},
		"draft-11, never": {ratelimitheader.Draft11, never, map[string]string{
			"Ratelimit-Policy": `"m";q=10;w=60`, "Ratelimit": `"m";r=10`,
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "10", "X-Ratelimit-Reset": "2147483647",
		}},
		"draft-11, never while used": {ratelimitheader.Draft11, neverFits, map[string]string{
			"Ratelimit-Policy": `"m";q=10;w=60`, "Ratelimit": `"m";r=4`,
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "2147483647",
		}},
		"draft-03, never": {ratelimitheader.Draft03, never, map[string]string{
			"Ratelimit-Limit": "10", "Ratelimit-Remaining": "10", "Ratelimit-Reset": "2147483647",
		}},
		"x-ratelimit-epoch, never": {ratelimitheader.XRateLimitEpoch, at(never, 1_700_000_000_000_000), map[string]string{
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "10", "X-Ratelimit-Reset": "3847483647",
		}},
		"x-ratelimit, at once": {ratelimitheader.XRateLimit, soon, map[string]string{
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1", "Retry-After": "1",
		}},
		"draft-03, refused": {ratelimitheader.Draft03, refused, map[string]string{
			"Ratelimit-Limit": "10", "Ratelimit-Remaining": "0", "Ratelimit-Reset": "60", "Retry-After": "3",
		}},
		"x-ratelimit-epoch, granted": {ratelimitheader.XRateLimitEpoch, at(granted, 1_700_000_000_000_001), map[string]string{
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "9", "X-Ratelimit-Reset": "1700000006",
		}},
		"x-ratelimit-epoch, on the second": {ratelimitheader.XRateLimitEpoch, at(refused, 1_700_000_000_000_000), map[string]string{
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "1700000060", "Retry-After": "3",
		}},
		"none, granted": {ratelimitheader.None, granted, map[string]string{}},
		"none, refused": {ratelimitheader.None, refused, map[string]string{"Retry-After": "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			(&api{Options: Options{Headers: test.style}}).writeHeaders(h, verdictOn(test.decision))
			got := map[string]string{}
			for name := range h {
				got[name] = h.Get(name)
			}
			test.want["Cache-Control"] = "no-store"
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

// at is the decision at an instant of the store.
func at(d weir.Decision, us int64) weir.Decision {
	d.At = time.UnixMicro(us)
	return d
}
