package queue

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
)

// The operations and the statuses of lua/queue.lua.
const (
	opPush byte = iota
	opPop
	opAck
	opExtend
	opLength
)

const (
	statusDone byte = iota
	statusRefused
	statusFull
	statusEmpty
	statusType
	statusReused
	statusLost
)

// A request is one run of the script.
type request struct {
	op          byte
	item        []byte
	lease       time.Duration
	attempt     int64
	fingerprint []byte
	keys        []string
	denied      bool // the limit has a count of 0
}

func (r *request) args(o *Options) []any {
	p := []byte{r.op, byte(o.Kind), 0, byte(o.AtLimit)}
	if r.denied {
		p[2] = 1
	}
	p = append56(p, o.MaxLen)
	p = append56(p, o.TrimTo)
	p = binary.BigEndian.AppendUint16(p, MaxDropped)
	p = append56(p, r.lease.Microseconds())
	p = binary.BigEndian.AppendUint32(p, uint32(r.attempt))
	return []any{p, r.item, o.Field, r.fingerprint, strconv.FormatInt(acts.IDLife.Milliseconds(), 10)}
}

// append56 appends a number below 2⁵⁶ in seven bytes.
func append56(p []byte, n int64) []byte {
	return append(p, byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// An answer is the script's reply.
type answer struct {
	decision weir.Decision
	status   byte
	waiting  int64
	flying   int64
	attempt  int64
	till     int64 // µs
	strings  [][]byte
}

// run makes the charge and applies the request, in one script call.
func (q *Queue) run(ctx context.Context, r *request, c weir.Charge) (answer, error) {
	if r.denied = c.Limit.Count == 0 && c.Cost > 0; r.denied {
		c = q.peek()
	}
	act := &weir.Act{Immediate: true, Charges: []weir.Charge{c}, Decisions: make([]weir.Decision, 1)}
	args := r.args(&q.options)
	if q.extra != nil {
		args = append(args, q.extra()...)
	}
	reply, err := q.extension.Run(ctx, q.store, act, q.tag, r.keys, args)
	if err != nil {
		return answer{}, err
	}
	got, ok := decode(reply)
	if !ok || r.op == opPop && got.status == statusDone && len(got.strings) != 2 {
		return got, fmt.Errorf("%w: %d bytes", weir.ErrBackend, len(reply))
	}
	got.decision = decided(act.Decisions[0], r.denied, c.Cost > 0)
	return got, got.err()
}

// decided returns the decision that callers get for the script's.
func decided(d weir.Decision, denied, charged bool) weir.Decision {
	switch {
	case denied:
		return weir.Decision{Outcome: weir.Refused, Source: acts.SourceLimit, RetryAfter: weir.Never}
	case !charged:
		return weir.Decision{Outcome: weir.Granted}
	}
	return d
}

// err returns the error of a status that means the same for all operations.
func (a *answer) err() error {
	switch a.status {
	case statusType:
		return ErrWrongType
	case statusReused:
		return weir.ErrIDReused
	}
	return nil
}

// headBytes is the length of a reply without strings.
const headBytes = 1 + 7 + 7 + 4 + 7 + 4

func decode(reply string) (answer, bool) {
	if len(reply) < headBytes {
		return answer{}, false
	}
	a := answer{
		status: reply[0], waiting: number(reply[1:8]), flying: number(reply[8:15]),
		attempt: number(reply[15:19]), till: number(reply[19:26]),
	}
	n, rest := number(reply[26:30]), reply[headBytes:]
	for range n {
		if len(rest) < 4 || int64(len(rest)-4) < number(rest[:4]) {
			return answer{}, false
		}
		end := 4 + number(rest[:4])
		a.strings = append(a.strings, []byte(rest[4:end]))
		rest = rest[end:]
	}
	return a, rest == ""
}

func number(digits string) int64 {
	var n int64
	for i := range len(digits) {
		n = n<<8 | int64(digits[i])
	}
	return n
}
