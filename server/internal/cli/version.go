package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// scripts/build.sh sets these with the linker. Empty, as after go install, they stand
// for what the go command recorded.
var version, commit, date string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version and how it was built",
		Long:    "Version prints the version, the commit and its date, the version of Go and the platform.",
		Example: "  weir version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
			return err
		},
	}
}

// A build is where a binary comes from. The date is the commit's: that of the
// build would make every build another binary.
type build struct{ version, commit, date string }

// versionLine says what this build is.
func versionLine() string {
	return fmt.Sprintf("weir %s %s %s/%s", thisBuild(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return newBuild(info)
}

// newBuild takes what the linker wrote, else what the go command recorded.
func newBuild(info *debug.BuildInfo) build {
	recorded := map[string]string{}
	for _, setting := range info.Settings {
		recorded[setting.Key] = setting.Value
	}
	return build{
		version: cmp.Or(version, info.Main.Version, "unknown"),
		commit:  cmp.Or(commit, recorded["vcs.revision"]),
		date:    cmp.Or(date, recorded["vcs.time"]),
	}
}

func (b build) String() string {
	var origin []string
	for _, word := range []string{b.commit, b.date} {
		if word != "" {
			origin = append(origin, word)
		}
	}
	if len(origin) == 0 {
		return b.version
	}
	return fmt.Sprintf("%s (%s)", b.version, strings.Join(origin, ", "))
}
