package redisstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
)

const (
	flagChargeRefused = 1
	flagAnchorFirst   = 2
	flagCalendar      = 4

	flagMore      = 1
	flagImmediate = 2
)

func appendRule(p []byte, r *algo.Rule) []byte {
	flags := byte(0)
	if r.ChargeRefused {
		flags |= flagChargeRefused
	}
	if r.AnchorFirst {
		flags |= flagAnchorFirst
	}
	if r.Calendar {
		flags |= flagCalendar
	}
	p = append(p, byte(r.ID), flags)
	params := r.Params()
	for _, n := range [...]int64{r.Burst, r.Cap, r.Debt, params[0], params[1], params[2], params[3]} {
		p = append56(p, n)
	}
	return p
}

func appendAct(p []byte, a *weir.Act, record int) []byte {
	flags := byte(0)
	if a.ID != "" || a.MaxWait > 0 {
		flags |= flagMore
	}
	if a.Immediate {
		flags |= flagImmediate
	}
	p = append(p, byte(a.Kind), byte(len(a.Charges)), flags)
	if flags&flagMore == 0 {
		return p
	}
	p = append16(p, record)
	p = append56(p, life(a).Milliseconds())
	p = append56(p, a.MaxWait.Microseconds())
	p = append56(p, a.Hold.Microseconds())
	whom, what := a.Fingerprints()
	p = binary.BigEndian.AppendUint64(p, whom)
	p = binary.BigEndian.AppendUint64(p, what)
	p = append(p, byte(len(a.ID)))
	return append(p, a.ID...)
}

func appendCharge(p []byte, kind weir.Kind, c *weir.Charge, key int) []byte {
	p = append16(p, key)
	p = append56(p, c.Cost)
	p = append56(p, c.UpTo)
	if kind == weir.Refund {
		p = append56(p, c.At)
		p = append56(p, c.Delay.Microseconds())
	}
	return p
}

func append16(p []byte, n int) []byte { return binary.BigEndian.AppendUint16(p, uint16(n)) }

// append56 appends a number below 2⁵⁶ in seven bytes.
func append56(p []byte, n int64) []byte {
	return append(p, byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// A reader takes numbers from the front of a reply.
type reader struct {
	rest  string
	short bool // there was less than was asked for
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

// An answer is what the script said beside the decisions.
type answer struct {
	foreign int64
	outside int64  // the store's time, where a calendar did not reach; else 0
	more    string // what an extension added
}

const codeOutside = 6

// decode hands the answers out.
func (b *batch) decode(reply string) (answer, error) {
	r := &reader{rest: reply}
	got := answer{foreign: r.number(2)}
	for _, a := range b.acts {
		code, at := r.number(1), r.number(7)
		switch {
		case code == 0:
			if err := r.decisions(a, at); err != nil {
				return got, err
			}
		case code < codeOutside:
			a.Err = fmt.Errorf("weir: %v: %w", a.Kind, weir.IDError(code))
		default:
			got.outside = at
			a.Err = errOutside
		}
	}
	if b.extended {
		got.more, r.rest = r.rest, ""
	}
	if r.short || r.rest != "" {
		return got, fmt.Errorf("%w: %d bytes for %d acts", weir.ErrBackend, len(reply), len(b.acts))
	}
	return got, nil
}

// errOutside marks an act whose calendar windows did not reach the store's time.
var errOutside = fmt.Errorf("%w: the store's time lies outside the calendar windows sent", weir.ErrBackend)

var outcomes = [...]weir.Outcome{1: weir.Granted, 2: weir.Refused, 3: weir.Spared, 4: weir.Refused}

const refusedForEver = 4

func (r *reader) decisions(a *weir.Act, at int64) error {
	for i := range a.Decisions {
		code := r.number(1)
		if code <= 0 || code >= int64(len(outcomes)) {
			return fmt.Errorf("%w: outcome %d", weir.ErrBackend, code)
		}
		d := weir.Decision{Outcome: outcomes[code], Source: weir.SourceStore, At: at}
		d.Granted, d.Remaining = r.number(7), r.number(7)
		d.RetryAfter, d.ResetAfter, d.Delay = r.duration(), r.duration(), r.duration()
		if code == refusedForEver {
			d.RetryAfter = weir.Never
		}
		a.Decisions[i] = d
	}
	return nil
}

func (r *reader) duration() time.Duration { return algo.Duration(r.number(7)) }
