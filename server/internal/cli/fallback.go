package cli

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/app"
	"github.com/weirlimit/weir/server/internal/config"
)

func defineFallback(flags *pflag.FlagSet, o *app.FallbackOptions) {
	o.StoreTimeout, o.StoreSilence = app.DefaultStoreTimeout, app.DefaultStoreSilence
	flags.Var((*positive)(&o.StoreTimeout), "store-timeout", "how long a call waits for Redis unless it comes with a deadline of its own, as Envoy's do")
	flags.Var((*positive)(&o.StoreSilence), "store-silence", "how long Redis may leave all calls without a reply before on_store_failure answers them")
	flags.StringVar(&o.OnStoreFailure, "on-store-failure", config.FailError.String(), "how rules without algorithm respond when Redis is unreachable: "+config.StoreFailureNames())
	flags.IntVar(&o.Instances, "instances", 0, "number of instances assumed while Redis is unreachable (default: they count themselves)")
}

// A positive is the value of a flag: a duration above zero.
type positive time.Duration

// Set parses the value.
func (p *positive) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d <= 0 {
		return errors.New("want a duration above 0, such as 250ms")
	}
	*p = positive(d)
	return nil
}

// String returns the value as it can be set.
func (p *positive) String() string { return time.Duration(*p).String() }

// Type names the value in help texts.
func (p *positive) Type() string { return "duration" }
