package redisengine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// A reader takes numbers from the front of a reply.
type reader struct {
	rest  string
	short bool // the reply ended too early
}

func (r *reader) number(bytes int) int64 {
	if len(r.rest) < bytes {
		r.rest, r.short = "", true
		return 0
	}
	var n int64
	for i := range bytes {
		n = n<<8 | int64(r.rest[i])
	}
	r.rest = r.rest[bytes:]
	return n
}

// An answer is the rest of a reply, without the decisions.
type answer struct {
	foreign int64
	outside int64  // the store's time, if calendar windows did not reach it; else 0
	more    string // what an extension added
}

const (
	codeOutside  = 7
	codeAmended  = 8
	codeLost     = 9
	codePossible = 10
)

// decode answers the acts.
func (b *batch) decode(reply string) (answer, error) {
	r := &reader{rest: reply}
	got := answer{foreign: r.number(2)}
	if b.plain {
		at := r.number(7)
		for _, i := range b.order {
			b.items[i].read(r, at)
		}
	} else if err := b.decodeWhole(r, &got); err != nil {
		return got, err
	}
	if b.extended {
		got.more, r.rest = r.rest, ""
	}
	if r.short || r.rest != "" {
		return got, fmt.Errorf("%w: %d bytes for %d acts", weir.ErrBackend, len(reply), len(b.acts))
	}
	for i, a := range b.acts {
		switch it := &b.items[b.itemOf[i]]; {
		case it.outside:
			a.Err = errOutside
		case it.isRun:
			it.answer(&a.Decisions[0])
			if err := possible(&a.Decisions[0]); err != nil {
				return got, err
			}
		}
	}
	return got, nil
}

func (b *batch) decodeWhole(r *reader, got *answer) error {
	for i := range b.items {
		it := &b.items[i]
		code, at := r.number(1), r.number(7)
		switch {
		case code == 0 && it.isRun:
			it.read(r, at)
		case code == 0 || code == codeAmended:
			if it.part != nil {
				it.part.amended = code == codeAmended
			}
			if err := r.decisions(it.act, at); err != nil {
				return err
			}
			if it.fills && (it.part == nil || it.part.whole == nil) {
				acts.FillRest(it.act)
			}
		case code == codeLost:
			it.act.Err = fmt.Errorf("weir: %v: %w", it.act.Kind, weir.ErrUnknownID)
			if it.part != nil {
				it.part.lost = true
			}
		case code == codePossible && it.act.Dry:
		case code < codeOutside:
			it.act.Err = fmt.Errorf("weir: %v: %w", it.act.Kind, weir.IDError(code))
		default:
			got.outside, it.outside = at, true
		}
	}
	return nil
}

// errOutside marks an act whose calendar windows did not reach the store's time.
var errOutside = fmt.Errorf("%w: the store's time lies outside the calendar windows sent", weir.ErrBackend)

var outcomes = [...]weir.Outcome{1: weir.Granted, 2: weir.Refused, 3: weir.NotCharged, 4: weir.Refused, 5: weir.NotEvaluated, 6: weir.Refused, 7: weir.Granted}

const (
	refusedForEver = 4
	waived         = 5
	refusedByBlock = 6
	grantedBlocked = 7
)

func (r *reader) decisions(a *weir.Act, at int64) error {
	for i := range a.Decisions {
		code := r.number(1)
		if code < 0 || code >= int64(len(outcomes)) {
			return fmt.Errorf("%w: outcome %d", weir.ErrBackend, code)
		}
		d := weir.Decision{Outcome: outcomes[code], Blocked: code == refusedByBlock || code == grantedBlocked, Source: acts.SourceStore, At: time.UnixMicro(at)}
		if code == 0 {
			d = weir.Decision{}
		} else if code == waived {
			d = weir.Decision{Source: acts.SourceStore}
		}
		d.Granted, d.Remaining = r.number(7), r.number(7)
		d.RetryAfter, d.ResetAfter, d.Delay = r.duration(), r.duration(), r.duration()
		if code == refusedForEver {
			d.RetryAfter = weir.Never
		}
		if err := possible(&d); err != nil || d.Outcome == weir.NotEvaluated && (d != (weir.Decision{Source: d.Source, Remaining: d.Remaining}) || !mayBeLeftOut(a, i, code)) {
			return cmp.Or(err, fmt.Errorf("%w: charge %d was not evaluated: %+v", weir.ErrBackend, i, d))
		}
		a.Decisions[i] = d
	}
	return nil
}

// mayBeLeftOut reports whether the script may leave the i-th charge of an act alone: another
// alternative was granted, the charge was waived, or the take that the act repeats or is about
// had no such charge.
func mayBeLeftOut(a *weir.Act, i int, code int64) bool {
	return a.ID != "" || code != waived && acts.Optional(a, i)
}

// possible rejects a decision that the script never makes: the reply belongs to another
// call, or was changed in transit.
func possible(d *weir.Decision) error {
	if min(d.Granted, d.Remaining, int64(d.RetryAfter), int64(d.ResetAfter), int64(d.Delay)) < 0 {
		return fmt.Errorf("%w: impossible decision: %+v", weir.ErrBackend, *d)
	}
	return nil
}

func (r *reader) duration() time.Duration { return algo.Duration(r.number(7)) }
