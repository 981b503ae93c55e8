// Command weir is the rate limiter as a process, and the tools around its rules.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // calendar limits name time zones, which small images lack

	"github.com/weirlimit/weir/server/internal/cli"
)

func main() {
	os.Exit(cli.Execute(context.Background(), cli.Arguments(os.Args), os.Stdout, os.Stderr))
}
