package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
)

// isFailure reports whether a case wants an act to be an error.
func isFailure(want string) bool {
	return idErrors[want] != 0 || strings.HasPrefix(want, "invalid ")
}

// fails puts an act that is an error, and changes nothing.
func (s *script) fails(a *weir.Act, want string) {
	peek := NewAct(slices.Clone(a.Charges)...)
	for i := range peek.Charges {
		c := &peek.Charges[i]
		*c = weir.Charge{Key: c.Key, HashTag: c.HashTag, Limit: c.Limit}
	}
	before := again(peek)
	s.take(before)
	s.taker.Take(context.Background(), []*weir.Act{a})
	var invalid *weir.InvalidError
	field, isInvalid := strings.CutPrefix(want, "invalid ")
	switch {
	case !errors.Is(a.Err, weir.ErrInvalid):
		s.Errorf("%s: %v", s.at, a.Err)
	case isInvalid && (!errors.As(a.Err, &invalid) || invalid.Path() != field), !isInvalid && !errors.Is(a.Err, idErrors[want]):
		s.Errorf("%s: %v", s.at, a.Err)
	}
	if s.take(peek); !slices.Equal(before.Decisions, peek.Decisions) {
		s.Errorf("%s: an error changed the keys:\n%+v\n%+v", s.at, before.Decisions, peek.Decisions)
	}
}

// idErrors are the errors about an ID by their names.
var idErrors = map[string]weir.IDError{
	"unknown": weir.ErrUnknownID, "reused": weir.ErrIDReused, "settled": weir.ErrSettled, "released": weir.ErrReleased, "over-refund": weir.ErrOverRefund,
}

// want compares an act with what a case wants of it.
func (s *script) want(a *weir.Act, want string) {
	strictest, d := a.Verdict()
	if a.Allowed() != (strictest >= 0 && d.Allowed()) {
		s.Errorf("%s: allowed: %v, but the strictest is %d: %+v", s.at, a.Allowed(), strictest, a.Decisions)
	}
	for _, d := range a.Decisions {
		if d.Outcome == weir.NotEvaluated && a.Scope.Owner == "" && d != (weir.Decision{Remaining: d.Remaining}) {
			s.Errorf("%s: not evaluated, but %+v", s.at, d)
		}
	}
	for i, part := range strings.Split(want, ";") {
		switch words := strings.Fields(part); {
		case len(words) == 0:
		case words[0] == "speaks":
			if int64(strictest) != s.number(words[1]) {
				s.Errorf("%s: %d speaks for the act: %+v", s.at, strictest, a.Decisions)
			}
		case words[0] == "remaining":
			if a.Remaining() != s.number(words[1]) {
				s.Errorf("%s: %d remain: %+v", s.at, a.Remaining(), a.Decisions)
			}
		default:
			s.decision(&a.Charges[i], a.Decisions[i], words)
		}
	}
}

// outcomeNames are the outcomes as cases name them.
var outcomeNames = map[string]weir.Outcome{
	"granted": weir.Granted, "refused": weir.Refused, "not-charged": weir.NotCharged, "not-evaluated": weir.NotEvaluated,
}

// decision compares one decision with the words about it.
func (s *script) decision(c *weir.Charge, got weir.Decision, words []string) {
	got.Source = 0
	want := got
	if words[0] == "exactly" {
		want, words = weir.Decision{At: got.At, Limit: got.Limit, Alternative: got.Alternative}, words[1:]
	}
	for len(words) > 0 {
		word, value := words[0], ""
		if words = words[1:]; len(words) > 0 {
			value = words[0]
		}
		if outcome, found := outcomeNames[word]; found {
			want.Outcome = outcome
			if n, err := strconv.ParseInt(value, 10, 64); err == nil {
				want.Granted, words = n, words[1:]
			} else if outcome != weir.Granted {
				want.Granted = 0
			}
			continue
		}
		words = words[1:]
		switch word {
		case "left":
			want.Remaining = s.number(value)
		case "retry":
			want.RetryAfter = s.time(got.RetryAfter, value)
		case "reset":
			want.ResetAfter = s.time(got.ResetAfter, value)
		case "delay":
			want.Delay = s.time(got.Delay, value)
		case "=":
			if known, found := s.marks[value]; found {
				want = known.decision
				continue
			}
			s.marks[value] = mark{*c, got}
		default:
			s.mistake("nothing to want is called " + word)
		}
	}
	if got != want {
		s.Errorf("%s\n got %+v\nwant %+v", s.at, got, want)
	}
}

// time returns the wanted time; "some" is any positive one.
func (s *script) time(got time.Duration, word string) time.Duration {
	if word != "some" {
		return s.duration(word)
	}
	if got <= 0 || got == weir.Never {
		s.Errorf("%s: got %v", s.at, got)
	}
	return got
}
