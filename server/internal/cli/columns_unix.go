//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// columnsOf returns the columns of a terminal; 0 if the file is none.
func columnsOf(file *os.File) int {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
