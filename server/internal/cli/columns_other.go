//go:build !unix

package cli

import "os"

// columnsOf returns 0: the system does not tell the columns of a terminal.
func columnsOf(*os.File) int { return 0 }
