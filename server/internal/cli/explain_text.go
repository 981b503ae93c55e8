package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/rules"
)

// limitText returns the settings of a limit in words.
func limitText(l *weir.Limit) string {
	parts := []string{fmt.Sprintf("%s, %s per %s", l.Algorithm, config.AmountText(l.Meter, l.Count), l.Period)}
	switch traits := algo.TraitsOf(l.Algorithm); {
	case traits.Bursts:
		parts = append(parts, fmt.Sprintf("%s %s", traits.BurstName, config.AmountText(l.Meter, l.Burst)))
	case traits.Buckets:
		parts = append(parts, fmt.Sprintf("%d buckets", l.Buckets))
	case traits.HoldsSlots:
		parts[0] = fmt.Sprintf("%s, %d slots, each held for at most %s", l.Algorithm, l.Count, l.Period)
	case traits.Calendars:
		parts = append(parts, windowText(l))
	}
	if l.ChargeRefused {
		parts = append(parts, "charges refused requests")
	}
	if l.Block > 0 {
		parts = append(parts, fmt.Sprintf("blocks a key that it refuses for %s", l.Block))
	}
	return strings.Join(parts, ", ")
}

// windowText returns the start of fixed windows in words.
func windowText(l *weir.Limit) string {
	switch {
	case l.AnchorDay > 0:
		return fmt.Sprintf("calendar windows in %s from day %d on", l.TimeZone, l.AnchorDay)
	case l.TimeZone != "":
		return "calendar windows in " + l.TimeZone
	case l.Anchor == weir.AnchorFirst:
		return "windows from the first charge on"
	default:
		return "windows from the epoch on"
	}
}

// decisionText returns the limit's decision for a request whose key is new.
func decisionText(a *rules.Applied) string {
	d := a.Decision()
	if d.Outcome == weir.NotEvaluated && a.Of.Alternative > 0 && a.Act.Allowed() {
		return "not evaluated: an earlier alternative has room"
	}
	if d.Outcome == weir.NotEvaluated {
		return "not evaluated: another limit of its act refuses"
	}
	meter := a.Limit.Meter
	text := fmt.Sprintf("%s, %s of %s left", d.Outcome, config.AmountText(meter, d.Remaining), config.AmountText(meter, a.Limit.Capacity()))
	switch {
	case d.Source == acts.SourceShadow:
		text += "; it would be refused, but the rule only watches"
	case d.Outcome == weir.Refused && d.RetryAfter == weir.Never:
		text += "; never granted"
	case d.Outcome == weir.Refused:
		text += fmt.Sprintf("; retry after %s", d.RetryAfter)
	case d.Outcome == weir.NotCharged:
		text += "; not charged, because another limit of its act refuses"
	}
	if d.Outcome == weir.Granted && d.ResetAfter > 0 && relative(a.Limit) {
		text += fmt.Sprintf("; fresh after %s", d.ResetAfter)
	}
	return text
}

// relative reports whether the time until a key is as new is the same at any
// time: the ends of aligned windows are not.
func relative(l *weir.Limit) bool {
	return l.Anchor == weir.AnchorFirst || !algo.TraitsOf(l.Algorithm).Aligned
}

// entryText is an entry as a request is written; one without value has no "=".
func entryText(e rules.Entry) string {
	if e.Value == "" {
		return plainly(e.Key)
	}
	return plainly(e.Key) + "=" + plainly(e.Value)
}

// plainly is a text that needs no quotes, or the text in quotes.
func plainly(text string) string {
	special := func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`"\,;=`, r)
	}
	if text == "" || strings.ContainsFunc(text, special) {
		return strconv.Quote(text)
	}
	return text
}

// listed is a list of names, not too many of them.
func listed(names []string) string {
	const most = 10
	texts := make([]string, 0, most+1)
	for _, name := range names[:min(len(names), most)] {
		texts = append(texts, plainly(name))
	}
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		texts = append(texts, fmt.Sprintf("and %d more", len(names)-most))
	}
	return strings.Join(texts, ", ")
}
