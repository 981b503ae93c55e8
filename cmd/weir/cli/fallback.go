package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/server/config"
)

func defineFallback(flags *pflag.FlagSet, o *server.FallbackOptions) {
	flags.DurationVar(&o.StoreTimeout, "store-timeout", server.DefaultStoreTimeout, "how long a store in Redis has for a decision")
	flags.StringVar(&o.OnStoreFailure, "on-store-failure", config.FailError.String(), "what rules without algorithm answer while it reaches none: "+config.StoreFailureNames())
	flags.IntVar(&o.Instances, "instances", 0, "how many instances share the limits meanwhile (default: they count themselves)")
}
