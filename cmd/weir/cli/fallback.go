package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server"
	"github.com/weirlimit/weir/server/config"
)

func defineFallback(flags *pflag.FlagSet, o *server.FallbackOptions) {
	flags.DurationVar(&o.StoreTimeout, "store-timeout", server.DefaultStoreTimeout, "how long a call waits for Redis if its caller names no deadline")
	flags.DurationVar(&o.StoreSilence, "store-silence", server.DefaultStoreSilence, "how long Redis may send no reply before calls are answered by on_store_failure")
	flags.StringVar(&o.OnStoreFailure, "on-store-failure", config.FailError.String(), "how rules without algorithm respond when Redis is unreachable: "+config.StoreFailureNames())
	flags.IntVar(&o.Instances, "instances", 0, "number of instances assumed while Redis is unreachable (default: they count themselves)")
}
