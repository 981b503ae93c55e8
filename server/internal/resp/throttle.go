package resp

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/internal/problem"
	"github.com/weirlimit/weir/internal/ratelimitheader"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/rules"
)

const (
	usage = "ERR Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>] [KEEP <units>] [ID <id>]"
	// Domain is the domain in which callers need permissions for CL.THROTTLE.
	Domain = "cl.throttle"
	// prefix separates the keys from those of rules, whose first part escapes the
	// semicolon.
	prefix = "cl.throttle;"
	// maxBatch is the number of decisions in one call.
	maxBatch = 64

	maxUnits   = 1_000_000_000      // of a burst, a count or a quantity
	maxSeconds = 366 * 24 * 60 * 60 // of a period
)

// Key returns the key that CL.THROTTLE charges for the key of a client.
func Key(key string) string { return prefix + key }

// A batch is a client's commands that are not decided yet.
type batch struct {
	n    int
	asks [maxBatch]ask
	acts []*weir.Act // of all of them
}

// An ask is a command: a plan with its request or, for CL.THROTTLE, an act with memory for its
// charge and its decision.
type ask struct {
	request rules.Request
	plan    *rules.Plan // nil for CL.THROTTLE

	act      weir.Act
	charge   [1]weir.Charge
	decision [1]weir.Decision
}

func newBatch() *batch {
	b := new(batch)
	for i := range b.asks {
		a := &b.asks[i]
		a.act.Charges, a.act.Decisions = a.charge[:], a.decision[:]
	}
	return b
}

// throttle executes CL.THROTTLE key max_burst count period [quantity] [KEEP units] [ID id].
func (c *session) throttle(args [][]byte) {
	var keep, id []byte
	for n := len(args) - 2; n >= 4; n -= 2 {
		if name := lower(args[n]); name == "keep" && keep == nil {
			keep = args[n+1]
		} else if name == "id" && id == nil {
			id = args[n+1]
		} else {
			break
		}
		args = args[:n]
	}
	if len(args) != 4 && len(args) != 5 {
		c.settle()
		c.fail(usage)
		return
	}
	charge, err := c.server.charge(args, keep)
	if err == nil && id != nil && (len(id) == 0 || len(id) > weir.MaxIDBytes) {
		err = &weir.InvalidError{Field: "ID", Value: strconv.Itoa(len(id)) + " bytes", Want: fmt.Sprintf("1 … %d bytes", weir.MaxIDBytes)}
	}
	if err != nil {
		c.settle()
		c.fail("ERR " + inWords(err))
		return
	}
	verb := callers.Take
	if charge.Cost == 0 {
		verb = callers.Peek
	}
	if err := c.who.May(verb, Domain); err != nil {
		c.settle()
		c.fail("NOPERM " + err.Error())
		return
	}
	b := c.queue()
	a := &b.asks[b.n]
	if a.charge[0] = charge; id != nil {
		a.act.ID, a.act.Scope = string(id), algo.Scope{Owner: charge.Key, Asks: strconv.FormatInt(charge.Cost, 10)}
	}
	b.n++
	if b.acts = append(b.acts, &a.act); b.n == maxBatch {
		c.settle()
	}
}

// queue returns the batch of the next command.
func (c *session) queue() *batch {
	if c.batch == nil {
		c.batch = c.server.batches.Get().(*batch)
	}
	return c.batch
}

// charge parses the arguments; keep is nil if there is no KEEP. It does not clamp values
// that are out of range.
func (s *Server) charge(args [][]byte, keep []byte) (weir.Charge, error) {
	fields := [...]field{
		{name: "max_burst", most: maxUnits - 1},
		{name: "count per period", least: 1, most: maxUnits},
		{name: "period", least: 1, most: maxSeconds},
		{name: "quantity", most: maxUnits, value: 1},
	}
	for i, arg := range args[1:] {
		if err := fields[i].parse(arg); err != nil {
			return weir.Charge{}, err
		}
	}
	// With more than that nothing would ever be granted.
	kept := field{name: "KEEP", most: fields[0].value}
	if keep != nil {
		if err := kept.parse(keep); err != nil {
			return weir.Charge{}, err
		}
	}
	limit, err := s.limits.get(params{burst: fields[0].value + 1, count: fields[1].value, seconds: fields[2].value})
	return weir.Charge{Key: Key(string(args[0])), Limit: limit, Cost: fields[3].value, Keep: kept.value}, err
}

// A field is an argument that is a number.
type field struct {
	name        string
	least, most int64
	value       int64
}

func (f *field) parse(arg []byte) error {
	n, ok := integer(arg)
	if !ok || n < f.least || n > f.most {
		return &weir.InvalidError{Field: f.name, Value: shown(arg), Want: fmt.Sprintf("%d … %d", f.least, f.most)}
	}
	f.value = n
	return nil
}

// settle decides the pending commands and appends the replies.
func (c *session) settle() {
	b := c.batch
	if b == nil {
		return
	}
	c.batch = nil
	if len(b.acts) > 0 {
		c.server.taker.Take(c.server.ends.Bound(c.server.base), b.acts)
	}
	for i := range b.n {
		a := &b.asks[i]
		c.whole = len(c.out)
		if a.plan != nil {
			c.answered(a)
			a.plan.Free()
			a.plan = nil
			clear(a.request.Calls)
			continue
		}
		c.decided(&a.act)
		a.charge[0], a.decision[0] = weir.Charge{}, weir.Decision{}
		a.act.ID, a.act.Scope, a.act.Err = "", algo.Scope{}, nil
	}
	clear(b.acts)
	b.n, b.acts = 0, b.acts[:0]
	c.server.batches.Put(b)
}

// decided appends the reply to one CL.THROTTLE.
func (c *session) decided(a *weir.Act) {
	if a.Err != nil {
		if !errors.Is(a.Err, weir.ErrInvalid) {
			c.server.logger.Warn("the store reached no decision", "error", a.Err)
		}
		c.fail("ERR " + inWords(a.Err))
		return
	}
	d := &a.Decisions[0]
	limited, retry := int64(0), int64(-1)
	if !d.Allowed() {
		limited = 1
		if d.RetryAfter != weir.Never {
			retry = ratelimitheader.Seconds(d.RetryAfter)
		}
	}
	c.array(5)
	c.integer(limited)
	c.integer(a.LimitOf(0).Burst)
	c.integer(d.Remaining)
	c.integer(retry)
	c.integer(ratelimitheader.Seconds(d.ResetAfter))
}

// inWords describes an error to the client. The store's own words are for the log.
func inWords(err error) string {
	var invalid *weir.InvalidError
	switch {
	case errors.As(err, &invalid):
		return problem.Detail(invalid)
	case errors.Is(err, weir.ErrInvalid):
		return err.Error()
	case errors.Is(err, weir.ErrNotApplied):
		return "no decision: the store refused, nothing was charged, asking again is safe"
	case errors.Is(err, weir.ErrMisconfigured):
		return "no decision: the store is misconfigured, nothing was charged"
	case errors.Is(err, weir.ErrAmbiguous):
		return "no decision: outcome unknown, the charge may have been made"
	}
	return "no decision: unexpected answer of the store"
}

// maxLimits is the number of compiled limits that are cached. Clients use few; a client
// that invents many has them compiled each time.
const maxLimits = 1024

// params are the arguments of CL.THROTTLE that make a limit.
type params struct{ burst, count, seconds int64 }

// limits caches compiled limits.
type limits struct {
	mu       sync.RWMutex
	compiled map[params]*weir.Limit
}

// get returns the limit. Each parameter is within its bounds, but not every combination
// is valid.
func (l *limits) get(p params) (*weir.Limit, error) {
	l.mu.RLock()
	limit := l.compiled[p]
	l.mu.RUnlock()
	if limit != nil {
		return limit, nil
	}
	limit, err := weir.Limit{
		Name:   "cl.throttle",
		Count:  p.count,
		Period: time.Duration(p.seconds) * time.Second,
		Burst:  p.burst,
	}.Compile()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compiled == nil || len(l.compiled) >= maxLimits {
		l.compiled = make(map[params]*weir.Limit)
	}
	l.compiled[p] = limit
	return limit, nil
}
