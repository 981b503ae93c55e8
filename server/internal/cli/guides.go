package cli

import "github.com/spf13/cobra"

// docs is where the pages are.
const docs = "https://github.com/weirlimit/weir/blob/main/docs/"

// guides are the pages that tell more of a subcommand than its help.
var guides = map[string]string{
	"bench":    "performance.md#your-own-machine",
	"check":    "configuration.md",
	"convert":  "configuration.md#convert",
	"key":      "admin.md",
	"man":      "cli.md",
	"replay":   "simulate.md#weir-replay",
	"schema":   "configuration.md#editors",
	"script":   "nginx.md#lua",
	"serve":    "quickstart.md",
	"simulate": "simulate.md",
	"version":  "install.md",
}

// nameGuide ends a subcommand's help with its page. What is below "key" has that of key.
func nameGuide(cmd *cobra.Command) {
	page := guides[cmd.Name()]
	if parent := cmd.Parent(); page == "" && parent != nil {
		page = guides[parent.Name()]
	}
	if cmd.Long == "" {
		cmd.Long = cmd.Short
	}
	cmd.Long += "\n\nMore: " + docs + page
}
