// Package gate has the common parts of the HTTP middleware and the gRPC interceptors:
// they charge each request within a bounded time, hold slots while it is served, and may
// correct the charge afterwards.
package gate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/acts"
	"github.com/weirlimit/weir/internal/algo"
)

// DefaultTimeout is how long a request may wait for its decision by default.
const DefaultTimeout = 250 * time.Millisecond

// A Gate charges requests under limiters. The zero value has
// [DefaultTimeout] and logs nothing. It must not be copied.
type Gate struct {
	Timeout time.Duration
	// Logger gets a line when decisions begin to fail, and one when they no longer
	// do. Nil: nothing is logged.
	Logger *slog.Logger
	outage outage
}

// Take charges the cost, all or nothing and at once, and returns the decided act. A cost
// outside of the bounds is clamped. Nothing would release a slot, so concurrency limits
// are an error; see [Gate.Enter].
func (g *Gate) Take(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := g.act(acts.KindTake, limiter, key, cost)
	g.decide(ctx, limiter, act)
	return act
}

// Charge is Take without the concurrency limits. If there are no others the act has no
// charges, and no decision is made.
func (g *Gate) Charge(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := g.act(acts.KindTake, limiter, key, cost)
	units := act.Charges[:0]
	for _, charge := range act.Charges {
		if !algo.TraitsOf(charge.Limit.Algorithm).HoldsSlots {
			units = append(units, charge)
		}
	}
	act.Charges, act.Decisions = units, act.Decisions[:len(units)]
	if len(units) > 0 {
		g.decide(ctx, limiter, act)
	}
	return act
}

// hold is Take with one slot, whatever the cost, of each concurrency limit. The act has
// an ID if there is such a limit.
func (g *Gate) hold(ctx context.Context, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := g.act(acts.KindTake, limiter, key, cost)
	for i := range act.Charges {
		if charge := &act.Charges[i]; algo.TraitsOf(charge.Limit.Algorithm).HoldsSlots {
			act.ID, act.NewID, act.Scope.Owner, charge.Cost = rand.Text(), true, key, 1
		}
	}
	g.decide(ctx, limiter, act)
	return act
}

// act makes an act under a limiter. Takes never reserve: a request cannot queue.
func (g *Gate) act(kind weir.Kind, limiter *weir.Limiter, key string, cost int64) *weir.Act {
	act := limiter.Act(kind, Bounded(key), clamp(cost))
	act.Immediate = kind == acts.KindTake
	return act
}

// HasSlots reports whether some of the limiter's limits have slots to hold.
func HasSlots(limiter *weir.Limiter) bool {
	_, ok := shortestLease(limiter.Act(acts.KindTake, "", 0))
	return ok
}

// shortestLease returns the shortest lease of the slots that an act takes.
func shortestLease(act *weir.Act) (shortest time.Duration, ok bool) {
	for i := range act.Charges {
		limit := act.Charges[i].Limit
		if algo.TraitsOf(limit.Algorithm).HoldsSlots && (!ok || limit.Period < shortest) {
			shortest, ok = limit.Period, true
		}
	}
	return shortest, ok
}

// correct changes the charge of a granted act without ID to cost. It refunds nothing that
// no store has charged.
func (g *Gate) correct(ctx context.Context, limiter *weir.Limiter, act *weir.Act, cost int64) error {
	more := clamp(cost) - act.Charges[0].Cost
	if more == 0 {
		return nil
	}
	correction := &weir.Act{Kind: acts.KindRecord}
	if more < 0 {
		correction.Kind = acts.KindRefund
	}
	for i, charge := range act.Charges {
		d := &act.Decisions[i]
		switch {
		case d.Outcome == weir.NotEvaluated: // another alternative was granted
			continue
		case more < 0 && d.At.IsZero():
			return nil
		}
		charge.Cost, charge.At, charge.Delay, charge.Keep, charge.Alt = max(more, -more), d.At.UnixMicro(), d.Delay, 0, 0
		correction.Charges = append(correction.Charges, charge)
	}
	correction.Decisions = make([]weir.Decision, len(correction.Charges))
	g.decide(ctx, limiter, correction)
	return correction.Err
}

// decide decides an act within the timeout. It does not depend on the client's
// connection: a charge whose client hangs up must not stay half known.
func (g *Gate) decide(ctx context.Context, limiter *weir.Limiter, act *weir.Act) {
	timeout := g.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	limiter.Take(ctx, []*weir.Act{act})
	g.outage.note(g.Logger, act.Err)
}

func clamp(cost int64) int64 { return min(max(cost, 0), weir.MaxCost) }

// calm is how long after the last failure an outage is over. It keeps a store that fails
// now and then from writing two lines each time.
const calm = time.Second

// outage logs when decisions begin to fail and when they no longer do. The zero value
// is ready for use; it must not be copied.
type outage struct {
	failing atomic.Bool
	mu      sync.Mutex // guards what follows
	since   time.Time
	last    time.Time // of the latest failure
	failed  int       // number of failures since then
}

// note records the result of a decision.
func (o *outage) note(logger *slog.Logger, err error) {
	switch {
	case logger == nil:
	case err != nil:
		o.begin(logger, err)
	case o.failing.Load():
		o.end(logger)
	}
}

func (o *outage) begin(logger *slog.Logger, err error) {
	o.mu.Lock()
	now, first := time.Now(), !o.failing.Load()
	if first {
		o.since, o.failed = now, 0
		o.failing.Store(true)
	}
	o.last = now
	o.failed++
	o.mu.Unlock()
	if first {
		logger.Warn("the limiter reaches no decision; further failures are counted and not logged", "error", err)
	}
}

func (o *outage) end(logger *slog.Logger) {
	o.mu.Lock()
	now := time.Now()
	if !o.failing.Load() || now.Sub(o.last) < calm {
		o.mu.Unlock()
		return
	}
	o.failing.Store(false)
	undecided, failed := now.Sub(o.since), o.failed
	o.mu.Unlock()
	logger.Info("the limiter reaches decisions again", "undecided_for", undecided.Round(time.Millisecond).String(), "failed", failed)
}

const (
	// mark begins the keys that no key function returned.
	mark = "\x00"
	// maxLiteral is the length of the longest key that is stored unchanged.
	maxLiteral  = 200
	digestBytes = 16
)

// Unknown is the key of all requests whose key function fails. It equals no other key.
const Unknown = mark + "unknown"

// Join makes one key of n parts; different parts make different keys. It fails if part
// fails.
func Join(n int, part func(i int) (string, error)) (string, error) {
	var b strings.Builder
	for i := range n {
		text, err := part(i)
		if err != nil {
			return "", err
		}
		b.WriteString(strconv.Itoa(len(text)) + ":" + text)
	}
	return b.String(), nil
}

// Digest returns a digest of a value that must not be stored, such as a token.
func Digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:digestBytes])
}

// Bounded returns the key, or a digest of a long one. Different keys remain different.
func Bounded(key string) string {
	if key == Unknown || len(key) <= maxLiteral && !strings.HasPrefix(key, mark) {
		return key
	}
	return mark + Digest(key)
}
