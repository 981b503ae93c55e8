//go:build unix

package loadtest

import (
	"syscall"
	"time"
)

// OwnCPU returns the CPU time of this process, or 0 if the system does not report it.
func OwnCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
