package cli

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir"
)

// warnOfPassword logs a password in an argument, which other users of the host can read.
func warnOfPassword(flags *pflag.FlagSet, logger *slog.Logger) {
	flags.Visit(func(f *pflag.Flag) {
		// Visit leaves out flags that variables have set.
		if f.Name == "store" && hasPassword(f.Value.String()) {
			logger.Warn("a password is on the command line, which every user of this host can read", "flag", "--store",
				"want", "the URL in $"+variableOf(f.Name)+", or the password in a file that --store-password-file names")
		}
	})
}

// hasPassword reports whether the URL of a store has a password.
func hasPassword(store string) bool {
	_, rest, _ := strings.Cut(store, "://")
	user, _, found := strings.Cut(rest, "@")
	return found && strings.Contains(user, ":") || strings.Contains(rest, "sentinel_password=")
}

// named adds the name of a flag to an error about its value.
func named(flag string, err error) error {
	mistake := new(weir.InvalidError)
	if !errors.As(err, &mistake) {
		return err
	}
	return &weir.InvalidError{Field: flag + ", " + mistake.Path(), Value: mistake.Value, Want: mistake.Want}
}
