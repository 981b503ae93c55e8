package cli

import (
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server"
)

// defineStorePasswords defines the flags of what a store and its sentinels want to
// hear.
func defineStorePasswords(flags *pflag.FlagSet, p *server.StorePasswords) {
	flags.StringVar(&p.File, "store-password-file", "", "file with the store's password, for a URL without one. A new one holds from the next connection on")
	flags.StringVar(&p.SentinelFile, "store-sentinel-password-file", "", "file with the password of the sentinels, read at the start")
}
