package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// words explains how a key does under a limit.
func words(t *target, answer *limitAnswer, cost int64) string {
	s := answer.State
	var b strings.Builder
	b.WriteString(answer.Rule)
	if len(t.rule.Limits) > 1 {
		b.WriteString(" " + answer.Name)
	}
	fmt.Fprintf(&b, " (%s): ", answer.At)
	switch o := answer.Override; {
	case o == nil:
		b.WriteString(answer.Limit)
	case o.Blocked:
		fmt.Fprintf(&b, "blocked for another %s, until %s, instead of %s", inWords(o.ForMS), o.Until, answer.Limit)
	case o.Limit == "":
		fmt.Fprintf(&b, "no limit for another %s, until %s, instead of %s", inWords(o.ForMS), o.Until, answer.Limit)
	default:
		fmt.Fprintf(&b, "%s for another %s, until %s, instead of %s", s.Limit, inWords(o.ForMS), o.Until, answer.Limit)
	}
	if o := answer.Override; o != nil && o.Blocked {
		b.WriteString("; nothing passes until then")
	} else {
		b.WriteString(counts(t, s) + "; " + passing(s, cost))
	}
	b.WriteString(watching(answer))
	return b.String()
}

// watching says that the limit never refuses the key, and why.
func watching(answer *limitAnswer) string {
	switch {
	case answer.Trial:
		return "; on trial: it never refuses"
	case answer.Enforce != "" && answer.Shadow:
		return "; only watched (enforce: " + answer.Enforce + " of the keys, not this one): it never refuses"
	case answer.Enforce != "":
		return "; enforced (enforce: " + answer.Enforce + " of the keys, this one too)"
	case answer.Shadow:
		return "; only watched (shadow_mode): it never refuses"
	}
	return ""
}

// counts says what was counted.
func counts(t *target, s *stateAnswer) string {
	unit := "used"
	if t.limit.Algorithm == weir.Concurrency {
		unit = "held"
	}
	text := fmt.Sprintf("; %d %s", s.Used, unit)
	if s.Limit != "" {
		text += fmt.Sprintf(", %d remain", s.Remaining)
	}
	if s.ResetAfterMS > 0 {
		text += ", as new in " + inWords(s.ResetAfterMS)
	}
	return text
}

// passing says when the cost passes.
func passing(s *stateAnswer, cost int64) string {
	switch {
	case s.Passes:
		return fmt.Sprintf("a cost of %d passes now", cost)
	case s.RetryAfterMS == nil:
		return "the next one passes when a holder leaves or its lease ends"
	case *s.RetryAfterMS < 0:
		return fmt.Sprintf("a cost of %d can never pass", cost)
	}
	return fmt.Sprintf("a cost of %d passes in %s", cost, inWords(*s.RetryAfterMS))
}

func unlimitedWords(t *target) string {
	return fmt.Sprintf("%s (%s): unlimited; nothing is counted", t.rule.Path, place(t.rule))
}

// throttleWords explains a key of CL.THROTTLE, whose limits come with the commands.
func throttleWords(answer *limitAnswer) string {
	text := "CL.THROTTLE: the limit comes with each command"
	switch o := answer.Override; {
	case o == nil:
		return text + "; no override"
	case o.Blocked:
		return fmt.Sprintf("%s; blocked for another %s, until %s", text, inWords(o.ForMS), o.Until)
	case o.Limit == "":
		return fmt.Sprintf("%s; no limit for another %s, until %s", text, inWords(o.ForMS), o.Until)
	default:
		return fmt.Sprintf("%s; %s for another %s, until %s", text, o.Limit, inWords(o.ForMS), o.Until)
	}
}

// inWords is a number of milliseconds as a duration that is read at a glance.
func inWords(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= 10*time.Second {
		// Rounded up, as whoever waits that long must not be early.
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
