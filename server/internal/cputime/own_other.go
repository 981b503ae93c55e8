//go:build !unix

package cputime

import "time"

// Own is what this process has used so far; 0 where the system does not tell.
func Own() time.Duration { return 0 }
