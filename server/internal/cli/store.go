package cli

import (
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/server/internal/app"
)

// defineStorePasswords defines the flags of what a store and its sentinels want to
// hear.
func defineStorePasswords(flags *pflag.FlagSet, p *app.StorePasswords) {
	flags.StringVar(&p.File, "store-password-file", "", "file with the store's password, for a URL without one. A new one holds from the next connection on")
	flags.StringVar(&p.SentinelFile, "store-sentinel-password-file", "", "file with the password of the sentinels, read at the start")
}

// warnOfPassword logs that a password was given where other users of the host can
// read it: as an argument.
func warnOfPassword(flags *pflag.FlagSet, logger *slog.Logger) {
	flags.Visit(func(f *pflag.Flag) {
		// Those that variables have set are not among these.
		if f.Name == "store" && hasPassword(f.Value.String()) {
			logger.Warn("a password is on the command line, which every user of this host can read", "flag", "--store",
				"want", "the URL in $"+variableOf(f.Name)+", or the password in a file that --store-password-file names")
		}
	})
}

// hasPassword reports whether there is a password in the URL of a store.
func hasPassword(store string) bool {
	_, rest, _ := strings.Cut(store, "://")
	user, _, found := strings.Cut(rest, "@")
	return found && strings.Contains(user, ":") || strings.Contains(rest, "sentinel_password=")
}
