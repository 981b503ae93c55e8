package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print what was built, and with what",
		Example: "  weir version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine(info))
			return err
		},
	}
}

// versionLine says what a build is; info may be nil.
func versionLine(info *debug.BuildInfo) string {
	version, revision := "unknown", ""
	if info != nil {
		version = info.Main.Version
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = " (" + setting.Value + ")"
			}
		}
	}
	return fmt.Sprintf("weir %s%s %s %s/%s", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
