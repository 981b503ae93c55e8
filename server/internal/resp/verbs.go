package resp

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
	"github.com/weirlimit/weir/server/internal/callers"
	"github.com/weirlimit/weir/server/internal/jsonbody"
	"github.com/weirlimit/weir/server/internal/rules"
)

// maxCalls is the number of limits of one command.
const maxCalls = 12

// A verb is one of the commands WEIR.*, which ask about limits that they bring along.
type verb struct {
	kind weir.Kind
	// cost is the cost of a limit without COST; -1 if it needs one.
	cost    int64
	named   bool     // it needs an ID
	options []string // besides KEEP, AND and IN
	usage   string
}

const (
	eachUsage = "<key> <limit> [KEEP <n>] [AND ...] "
	costUsage = "<key> <limit> COST <n> [KEEP <n>] [AND ...] "
	inUsage   = "[IN <domain>]"
)

var verbs = map[string]*verb{
	"weir.take": {
		kind: acts.KindTake, cost: 1, options: []string{"cost", "id", "hold", "upto", "wait"},
		usage: "<key> <limit> [COST <n>] [KEEP <n>] [AND ...] [ID <id>] [HOLD <ms>] [UPTO <n>] [WAIT <ms>] " + inUsage,
	},
	"weir.peek":    {kind: acts.KindTake, options: []string{"cost"}, usage: "<key> <limit> [COST <n>] [KEEP <n>] [AND ...] " + inUsage},
	"weir.settle":  {kind: acts.KindSettle, cost: -1, named: true, options: []string{"cost", "id"}, usage: costUsage + "ID <id> " + inUsage},
	"weir.refund":  {kind: acts.KindRefund, cost: -1, options: []string{"cost", "id"}, usage: costUsage + "[ID <id>] " + inUsage},
	"weir.release": {kind: acts.KindRelease, named: true, options: []string{"id"}, usage: eachUsage + "ID <id> " + inUsage},
	"weir.renew":   {kind: acts.KindRenew, named: true, options: []string{"id", "hold"}, usage: eachUsage + "ID <id> [HOLD <ms>] " + inUsage},
	"weir.record":  {kind: acts.KindRecord, cost: -1, options: []string{"cost"}, usage: "<key> <limit> COST <n> [AND ...] " + inUsage},
	"weir.reset":   {kind: acts.KindReset, usage: "<key> <limit> [AND ...] " + inUsage},
}

// verbCommand returns the command of a verb.
func verbCommand(name string) command {
	v := verbs[name]
	return command{run: func(c *session, args [][]byte) { c.ask(name, v, args) }, least: 2, most: maxArgs, queues: true, key: 1}
}

// ask plans one of the commands WEIR.*, and queues it.
func (c *session) ask(name string, v *verb, args [][]byte) {
	b := c.queue()
	a := &b.asks[b.n]
	if err := c.plan(a, name, v, args); err != nil {
		c.settle()
		c.fail(failure(err))
		return
	}
	b.n++
	if b.acts = append(b.acts, a.plan.Acts...); b.n == maxBatch || len(b.acts) >= maxBatch {
		c.settle()
	}
}

// plan makes the plan of a command.
func (c *session) plan(a *ask, name string, v *verb, args [][]byte) error {
	r := &reader{verb: v, name: name, request: &a.request, args: args}
	a.request = rules.Request{Kind: v.kind, Domain: rules.DefaultDomain, Calls: a.request.Calls[:0], Immediate: v.kind == acts.KindTake}
	if err := r.read(); err != nil {
		return err
	}
	a.request.Dry = name == "weir.peek" && a.request.Charges()
	if err := c.who.MayAsk(&a.request); err != nil {
		return err
	}
	plan, err := c.server.rules().Plan(&a.request)
	if mistake := new(weir.InvalidError); errors.As(err, &mistake) {
		switch mistake.Field {
		case "max_wait":
			return &weir.InvalidError{Field: "WAIT", Value: strconv.FormatInt(a.request.MaxWait.Milliseconds(), 10), Want: mistake.Want}
		case "up_to":
			return &weir.InvalidError{Field: "UPTO", Value: mistake.Value, Want: mistake.Want}
		}
	}
	if err != nil {
		return err
	}
	if plan.ID != a.request.ID {
		plan.Free()
		return &weir.InvalidError{Field: "ID", Value: "missing", Want: "an id by which to settle or release what is held"}
	}
	a.plan = plan
	return nil
}

// A usageError is the error of a command of the wrong form.
type usageError struct {
	name string
	verb *verb
}

// Error returns the right form.
func (e usageError) Error() string { return "Usage: " + e.name + " " + e.verb.usage }

// A reader reads the arguments of a verb into a request.
type reader struct {
	verb    *verb
	name    string
	request *rules.Request
	args    [][]byte
	given   []string // the options that were read, of the last limit or of the command
}

func (r *reader) read() error {
	if err := r.call(); err != nil {
		return err
	}
	for len(r.args) > 0 {
		name := lower(r.args[0])
		r.args = r.args[1:]
		if err := r.option(name); err != nil {
			return err
		}
	}
	if err := r.costs(); err != nil {
		return err
	}
	if r.verb.named && r.request.ID == "" {
		return &weir.InvalidError{Field: "ID", Value: "missing", Want: "the id of the take to " + r.verb.kind.String()}
	}
	return nil
}

// call reads a key and a limit.
func (r *reader) call() error {
	if len(r.args) < 2 {
		return usageError{r.name, r.verb}
	}
	if n := len(r.request.Calls); n == maxCalls {
		return &weir.InvalidError{Field: "limits", Value: "more than " + strconv.Itoa(n), Want: fmt.Sprintf("1 … %d limits", maxCalls)}
	}
	r.request.Calls = append(r.request.Calls, rules.Call{Key: string(r.args[0]), Limit: string(r.args[1]), Cost: -1})
	r.args = r.args[2:]
	r.given = slices.DeleteFunc(r.given, func(name string) bool { return name == "cost" || name == "keep" })
	return nil
}

// option reads the value of an option, or the limit after an AND.
func (r *reader) option(name string) error {
	if name == "and" {
		return r.call()
	}
	if name != "keep" && name != "in" && !slices.Contains(r.verb.options, name) || len(r.args) == 0 || slices.Contains(r.given, name) {
		return usageError{r.name, r.verb}
	}
	value := r.args[0]
	r.args, r.given = r.args[1:], append(r.given, name)
	last := len(r.request.Calls) - 1
	call := &r.request.Calls[last]
	var err error
	switch name {
	case "cost":
		call.Cost, err = r.units(value, name, last, r.least(), algo.MaxCount, weir.MaxCost)
	case "keep":
		call.Keep, err = r.units(value, name, last, 0, algo.MaxWindow, algo.MaxWindow)
	case "id":
		if r.request.ID = string(value); len(value) == 0 {
			err = &weir.InvalidError{Field: "ID", Value: `""`, Want: fmt.Sprintf("1 … %d bytes", weir.MaxIDBytes)}
		}
	case "in":
		r.request.Domain = string(value)
	case "upto":
		r.request.UpTo, err = r.number(value, "UPTO", 1, weir.MaxCost)
	case "hold":
		r.request.Hold, err = r.millis(value, "HOLD", 0)
	case "wait":
		r.request.MaxWait, err = r.millis(value, "WAIT", 1)
		r.request.Immediate = false
	}
	return err
}

// least is the least cost that may be stated.
func (r *reader) least() int64 {
	if r.verb.kind == acts.KindRefund {
		return 1
	}
	return 0
}

// units reads a number of the i-th limit. Most limits accept numbers up to usual.
func (r *reader) units(value []byte, field string, i int, least, most, usual int64) (int64, error) {
	n, err := r.number(value, field, least, most)
	if mistake := new(weir.InvalidError); errors.As(err, &mistake) {
		mistake.List, mistake.Index = "limits", i
		mistake.Want = fmt.Sprintf("%d … %d", least, usual)
	}
	return n, err
}

func (r *reader) number(value []byte, name string, least, most int64) (int64, error) {
	f := field{name: name, least: least, most: most}
	err := f.parse(value)
	return f.value, err
}

func (r *reader) millis(value []byte, field string, least int64) (time.Duration, error) {
	n, err := r.number(value, field, least, weir.MaxWait.Milliseconds())
	return time.Duration(n) * time.Millisecond, err
}

// costs gives each limit that states none its cost.
func (r *reader) costs() error {
	for i := range r.request.Calls {
		c := &r.request.Calls[i]
		switch {
		case r.request.UpTo > 0 && c.Cost >= 0:
			return &weir.InvalidError{List: "limits", Index: i, Field: "cost", Value: strconv.FormatInt(c.Cost, 10), Want: "none beside UPTO"}
		case c.Cost >= 0:
		case r.verb.cost < 0:
			return &weir.InvalidError{List: "limits", Index: i, Field: "cost", Value: "missing", Want: fmt.Sprintf("%d … %d", r.least(), weir.MaxCost)}
		default:
			c.Cost = r.verb.cost
		}
	}
	return nil
}

// answered appends the reply to one of the commands WEIR.*.
func (c *session) answered(a *ask) {
	p := a.plan
	p.Taken()
	if err := p.Err(); err != nil {
		if !errors.Is(err, weir.ErrInvalid) {
			c.server.logger.Warn("the store reached no decision", "error", err)
		}
		c.fail(failure(err))
		return
	}
	var memory [maxCalls]ruling
	rulings := memory[:0]
	for i := range p.Applied {
		if l := &p.Applied[i]; !l.Rule.OnTrial {
			rulings = append(rulings, ruling{l, l.Decision()})
		}
	}
	decisive := p.Decisive((*rules.Applied).Enforced)
	if decisive == nil {
		decisive = p.Decisive(func(l *rules.Applied) bool { return !l.Rule.OnTrial })
	}
	s := slices.IndexFunc(rulings, func(r ruling) bool { return r.Applied == decisive })
	allowed, granted, delay := int64(1), int64(math.MaxInt64), time.Duration(0)
	for i := range rulings {
		r := &rulings[i]
		if a.request.Kind == acts.KindTake && !r.Decision.Allowed() {
			allowed = 0
		}
		delay = max(delay, r.Delay)
		if !r.Rule.Shadow && (len(rulings) == 1 || !algo.TraitsOf(r.Applied.Limit.Algorithm).HoldsSlots) {
			granted = min(granted, r.Granted)
		}
	}
	if a.request.Dry {
		granted = 0
	} else if granted == math.MaxInt64 {
		granted = max(a.request.Calls[0].Cost, a.request.UpTo)
	}
	d := &rulings[s]
	size := 11
	if len(rulings) > 1 {
		size += 5 * len(rulings)
	}
	c.array(size)
	c.integer(allowed)
	c.integer(d.Remaining)
	c.integer(jsonbody.Millis(d.RetryAfter))
	c.integer(jsonbody.Millis(d.ResetAfter))
	c.integer(allowed * granted)
	c.integer(jsonbody.Millis(delay))
	c.integer(int64(s))
	c.simple(d.Source.String())
	c.integer(d.Applied.Limit.Count)
	c.integer(d.Applied.Limit.Period.Milliseconds())
	c.integer(d.Applied.Limit.Capacity())
	if len(rulings) == 1 {
		return
	}
	for i := range rulings {
		r := &rulings[i]
		fits := int64(0)
		if r.Decision.Allowed() || r.Outcome == weir.NotCharged {
			fits = 1
		}
		c.integer(fits)
		c.integer(r.Remaining)
		c.integer(jsonbody.Millis(r.RetryAfter))
		c.integer(jsonbody.Millis(r.ResetAfter))
		c.integer(r.Granted)
	}
}

// A ruling is the decision about one limit.
type ruling struct {
	*rules.Applied
	weir.Decision
}

// failure returns the class and the text of the error of one of the commands WEIR.*: what a
// client must know is whether anything was charged.
func failure(err error) string {
	var forbidden *callers.ForbiddenError
	var usage usageError
	var id weir.IDError
	switch {
	case errors.As(err, &usage):
		return "ERR " + usage.Error()
	case errors.As(err, &forbidden):
		return "NOPERM " + forbidden.Error()
	case errors.Is(err, rules.ErrCallsForbidden):
		return "NOPERM " + err.Error()
	case errors.As(err, &id):
		return idClasses[id] + " " + id.Error()
	case errors.Is(err, weir.ErrInvalid):
		return "ERR " + inWords(err)
	case errors.Is(err, rules.ErrNotLoaded):
		return "NOTCHARGED no decision: " + err.Error()
	case errors.Is(err, weir.ErrNotApplied), errors.Is(err, weir.ErrMisconfigured):
		return "NOTCHARGED " + inWords(err)
	case acts.Kept(err):
		return "AMBIGUOUS no decision: the store will get this, repeat it for the numbers"
	}
	return "AMBIGUOUS " + inWords(err)
}

var idClasses = map[weir.IDError]string{
	weir.ErrUnknownID: "UNKNOWNID", weir.ErrIDReused: "IDREUSED", weir.ErrSettled: "SETTLED", weir.ErrReleased: "SETTLED",
	weir.ErrOverRefund: "ERR", weir.ErrBusyID: "ERR",
}
