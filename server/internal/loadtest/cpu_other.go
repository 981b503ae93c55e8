//go:build !unix

package loadtest

import "time"

// OwnCPU returns the CPU time of this process, or 0 if the system does not report it.
func OwnCPU() time.Duration { return 0 }
