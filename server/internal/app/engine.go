package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/calls"
	"github.com/weirlimit/weir/internal/engine/memengine"
	"github.com/weirlimit/weir/internal/layer/observe"
	"github.com/weirlimit/weir/internal/remote"
	"github.com/weirlimit/weir/internal/stack"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/peers"
	"github.com/weirlimit/weir/server/internal/resp"
	"github.com/weirlimit/weir/server/internal/rules"
	"github.com/weirlimit/weir/server/internal/store"
)

// An engine decides: it is the store with its layers, and what it shares with other
// instances on the same store.
type engine struct {
	*stack.Stack
	options *Options
	store   *store.Store
	rules   func() *rules.Set
	peers   *peers.Group // nil for a store in memory
}

// newEngine puts the layers around a store. It starts nothing.
func newEngine(o *Options, s *store.Store, current func() *rules.Set, t *telemetry) (*engine, error) {
	e := &engine{options: o, store: s, rules: current}
	background := t.panics("background")
	layers := stack.Options{
		KeyLimit:         e.keyLimit,
		Leased:           func(l *weir.Limit) bool { return current().Leased(l) },
		Background:       func(work func()) { background.Background("lease", work) },
		DenyCacheEntries: o.DenyCacheEntries,
		Logger:           o.Logger,
		Remote: remote.Options{
			Policy: e.policy(), Patience: o.Fallback.StoreTimeout, Instances: e.instances,
			Calls: calls.Options{Silence: o.Fallback.StoreSilence},
		},
	}
	taker := s.Taker
	if o.wrapStore != nil {
		taker = o.wrapStore(taker)
	}
	observer := t.metrics.Store()
	if _, isRemote := taker.(calls.Store); isRemote {
		layers.Remote.Calls.Called = func(acts []*weir.Act, took time.Duration) {
			observer.Observe(&observe.Call{Acts: acts, Took: took})
		}
	} else {
		taker = observe.Wrap(taker, observe.Options{Observer: observer})
	}
	e.Stack = stack.New(taker, layers)
	if s.Client == nil {
		return e, nil
	}
	var err error
	e.peers, err = peers.New(peers.Options{
		Client: s.Client, Overrides: e.Override, Prefix: o.StorePrefix, Timeout: o.Timeout,
		Logger: duringOutages(t.seldom, func() bool { return e.outage() != nil }),
	})
	return e, err
}

// keyLimit bounds the keys of the limits in the rules and in calls. Those of CL.THROTTLE and
// of Envoy's requests have any number of keys.
func (e *engine) keyLimit(c *weir.Charge) weir.KeyLimit {
	maxKeys, overflow := e.rules().MaxKeys(c, e.options.MaxKeys)
	return weir.KeyLimit{MaxKeys: maxKeys, Overflow: overflow}
}

// policies are the policies of rules files as the stack names them.
var policies = [...]remote.Policy{
	config.FailLocal: remote.Local,
	config.FailAllow: remote.Allow,
	config.FailDeny:  remote.Deny,
	config.FailError: remote.Error,
}

// policy returns the policies of charges that a store in Redis does not decide.
func (e *engine) policy() func(*weir.Charge) remote.Policy {
	word, _ := config.ParseStoreFailure(e.options.Fallback.OnStoreFailure)
	throttled := resp.Key("")
	return func(c *weir.Charge) remote.Policy {
		failure, named := e.rules().OnStoreFailure(c)
		switch {
		case named:
			return policies[failure]
		case strings.HasPrefix(c.Key, throttled):
			return remote.Local
		}
		return policies[word]
	}
}

// instances returns the number of instances on the store, as far as this one knows.
func (e *engine) instances() int {
	if n := e.options.Fallback.Instances; n > 0 || e.peers == nil {
		return max(1, n)
	}
	return e.peers.Count()
}

// joined reports whether the other instances count this one, or do not have to.
func (e *engine) joined() bool {
	return e.options.Fallback.Instances > 0 || e.peers == nil || e.peers.HasJoined()
}

// join waits until the other instances count this one, if they have to.
func (e *engine) join(ctx context.Context) error {
	if e.joined() {
		return nil
	}
	return e.peers.Join(ctx)
}

// start starts the background work of the layers and the polls of other instances.
func (e *engine) start() {
	e.Start()
	if e.peers != nil {
		e.peers.Start()
	}
}

// stop ends it. Leased units return, and grants of an outage are recorded in the store,
// while this instance still counts as one.
func (e *engine) stop(ctx context.Context) error {
	if err := e.Stop(ctx); err != nil {
		e.options.Logger.Warn("not all grants and refunds of this instance are recorded in the store", "error", err)
	}
	if e.peers == nil {
		return nil
	}
	return e.peers.Stop(ctx)
}

// gathered returns a function that reports whether an act is worth a call to the store together
// with others; nil for a store in memory.
func (e *engine) gathered() func(*weir.Act) bool {
	if e.Remote == nil {
		return nil
	}
	return func(a *weir.Act) bool { return !e.AnswersFromMemory(a) }
}

// yields reports whether calls yield before they wait, see [yield.Before]: a store in
// memory never waits, and remote yields for others.
func (e *engine) yields() bool {
	_, inMemory := e.store.Taker.(*memengine.Store)
	return e.options.wrapStore == nil && inMemory || e.Remote != nil
}

// outage returns since when and why the store is unreachable; nil if it is not.
func (e *engine) outage() error { return errors.Join(e.Outages()...) }

// probeKeys is the number of keys that probe charges. They live for a second or two.
const probeKeys = 64

var probeLimit = weir.Limit{Algorithm: weir.FixedWindow, Count: 1_000_000, Period: time.Second}.MustCompile()

// probe returns why the store does not decide; nil if it does. It asks the store for a
// decision unless the store is known to be unreachable, so that an outage is found
// without calls. It returns when ctx ends, and earlier if the store is silent.
func (e *engine) probe(ctx context.Context) error {
	if e.Remote == nil {
		return nil
	}
	if out := e.outage(); out != nil {
		return out
	}
	// In a cluster, different keys ask different nodes.
	charge := weir.Charge{Key: "probe" + strconv.Itoa(rand.N(probeKeys)), Limit: probeLimit, Cost: 1}
	act := weir.Act{Charges: []weir.Charge{charge}, Decisions: make([]weir.Decision, 1)}
	e.Remote.Ask(ctx, []*weir.Act{&act})
	if act.Err == nil {
		return nil
	}
	return cmp.Or(e.outage(), e.store.Blame(act.Err))
}

// maxShownLimits is the number of limits that keysError names.
const maxShownLimits = 10

// keysError names the limits that track as many keys as they may.
func (e *engine) keysError() error {
	var full []string
	more := 0
	for _, s := range e.KeyLimit.Stats() {
		switch {
		case !s.Full():
		case len(full) == maxShownLimits:
			more++
		default:
			full = append(full, fmt.Sprintf("%s has %d keys of %d", s.Overflow, s.Keys, s.MaxKeys))
		}
	}
	if len(full) == 0 {
		return nil
	}
	if more > 0 {
		full = append(full, fmt.Sprintf("so have %d more limits", more))
	}
	return errors.New("new keys share one budget: " + strings.Join(full, "; "))
}
