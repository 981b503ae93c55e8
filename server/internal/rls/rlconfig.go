package rls

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/server/internal/rules"
)

// Config answers with the rules in force, one limit per line, in the order of the files
// and in the format of envoyproxy/ratelimit at /rlconfig. Limits that name an algorithm
// add it at the end.
func (s *Service) Config() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var text strings.Builder
		for _, r := range s.options.Rules().Rules() {
			writeRule(&text, r)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(text.String()))
	})
}

func writeRule(text *strings.Builder, r *rules.Rule) {
	if r.Unlimited {
		writeLimit(text, r, &CurrentLimit{Multiplier: 1})
		text.WriteByte('\n')
	}
	for _, l := range r.Limits {
		current := currentLimit(&rules.Applied{Rule: r, Of: l, Limit: l.Limit})
		writeLimit(text, r, &current)
		if r.Grouped {
			fmt.Fprintf(text, ", algorithm: %s", l.Algorithm)
		}
		if current.Multiplier > 1 {
			fmt.Fprintf(text, ", unit_multiplier: %d", current.Multiplier)
		}
		if l.Burst > 0 {
			fmt.Fprintf(text, ", burst: %d", l.Burst)
		}
		text.WriteByte('\n')
	}
}

// oneLine keeps the names of a rule on its line.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

// writeLimit writes the part that envoyproxy/ratelimit writes.
func writeLimit(text *strings.Builder, r *rules.Rule, l *CurrentLimit) {
	text.WriteString(oneLine.Replace(r.Domain))
	for _, e := range r.Entries {
		text.WriteString("." + oneLine.Replace(e.Key))
		if e.Value != "" {
			text.WriteString("_" + oneLine.Replace(e.Value))
		}
	}
	unit := "UNKNOWN"
	if l.Unit > 0 {
		unit = strings.ToUpper(unitNames[l.Unit])
	}
	fmt.Fprintf(text, ": unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t", unit, l.Requests, r.Shadow, r.Quota)
}
