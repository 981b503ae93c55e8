package app

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/layer/coalesce"
	"github.com/weirlimit/weir/internal/layer/fallback"
	"github.com/weirlimit/weir/server/internal/config"
	"github.com/weirlimit/weir/server/internal/resp"
)

const (
	// DefaultStoreTimeout is how long a call waits for Redis whose caller names no end.
	DefaultStoreTimeout = fallback.DefaultPatience
	// DefaultStoreSilence is for how long Redis may leave all calls without a reply.
	DefaultStoreSilence = coalesce.DefaultSilence
	// maxInstances is how many instances a limit can be divided by.
	maxInstances = 1_000_000
)

// FallbackOptions say what is answered while a store in Redis reaches no decision.
// The zero value is valid.
type FallbackOptions struct {
	// StoreTimeout is how long a call waits for Redis whose caller names no end. Zero:
	// [DefaultStoreTimeout].
	StoreTimeout time.Duration
	// StoreSilence is for how long a node of Redis may leave all calls without a reply,
	// of time in which this process was able to hear, before its calls are answered by
	// policy. Zero: [DefaultStoreSilence].
	StoreSilence time.Duration
	// OnStoreFailure is local, allow, deny or error, for rules that name no
	// algorithm and limits that come with requests. Others say it themselves.
	// Empty: error.
	OnStoreFailure string
	// Instances is how many instances share the limits, for local. Zero: they
	// count themselves.
	Instances int
}

// validate names the first option that cannot be.
func (o *FallbackOptions) validate() error {
	if o.StoreTimeout < 0 {
		return &weir.InvalidError{Field: "store timeout", Value: o.StoreTimeout.String(), Want: "a duration above 0; 0 for " + DefaultStoreTimeout.String()}
	}
	if o.StoreSilence < 0 {
		return &weir.InvalidError{Field: "store silence", Value: o.StoreSilence.String(), Want: "a duration above 0; 0 for " + DefaultStoreSilence.String()}
	}
	if o.Instances < 0 || o.Instances > maxInstances {
		return &weir.InvalidError{
			Field: "instances", Value: strconv.Itoa(o.Instances), Want: "1 … " + strconv.Itoa(maxInstances) + "; 0 to count them",
		}
	}
	if _, err := config.ParseStoreFailure(o.OnStoreFailure); o.OnStoreFailure != "" && err != nil {
		return &weir.InvalidError{
			Field: "on store failure", Value: strconv.Quote(o.OnStoreFailure), Want: "one of " + config.StoreFailureNames(),
		}
	}
	return nil
}

// policies are the words of rules files as the fallback has them.
var policies = [...]fallback.Policy{
	config.FailLocal: fallback.Local,
	config.FailAllow: fallback.Allow,
	config.FailDeny:  fallback.Deny,
	config.FailError: fallback.Error,
}

// fallback returns what stands in for the store; nil where that is this process's
// own.
func (a *App) fallback() *fallback.Options {
	if a.store.client == nil {
		return nil
	}
	o := &a.options.Fallback
	other := fallback.Error
	if o.OnStoreFailure != "" {
		failure, _ := config.ParseStoreFailure(o.OnStoreFailure)
		other = policies[failure]
	}
	throttled := resp.Key("")
	return &fallback.Options{
		Patience:  o.StoreTimeout,
		Instances: a.instances,
		Logger:    a.logger,
		Policy: func(c *weir.Charge) fallback.Policy {
			failure, named := a.rules.Load().OnStoreFailure(c)
			switch {
			case named:
				return policies[failure]
			case strings.HasPrefix(c.Key, throttled):
				return fallback.Local
			}
			return other
		},
	}
}

// instances is how many instances there are, as far as this one knows.
func (a *App) instances() int {
	if n := a.options.Fallback.Instances; n > 0 || a.peers == nil {
		return max(1, n)
	}
	return a.peers.Count()
}

// storeTrouble says why the store does not decide, and since when that is known; nil if
// it does. It asks the store for a decision unless it is known to be unreachable, so
// that an outage is found where there are no calls. It returns when ctx ends, and
// earlier where the store is silent.
func (a *App) storeTrouble(ctx context.Context) error {
	coalescer := a.stack.Coalesce()
	if coalescer == nil {
		return nil
	}
	if out := a.outage(); out != nil {
		return out
	}
	// In a cluster, different keys ask different nodes.
	charge := weir.Charge{Key: "probe" + strconv.Itoa(rand.N(probeKeys)), Limit: probeLimit, Cost: 1}
	act := weir.Act{Charges: []weir.Charge{charge}, Decisions: make([]weir.Decision, 1)}
	coalescer.Take(ctx, []*weir.Act{&act})
	if act.Err == nil {
		return nil
	}
	return cmp.Or(a.outage(), a.options.blame(act.Err))
}

// probeKeys is how many keys are charged to find out whether the store decides. They
// live for a second or two.
const probeKeys = 64

var probeLimit = weir.Limit{Algorithm: weir.FixedWindow, Count: 1_000_000, Period: time.Second}.MustCompile()

// outage says since when and why the store is unreachable; nil if it is not.
func (a *App) outage() error { return errors.Join(a.stack.Outages()...) }
