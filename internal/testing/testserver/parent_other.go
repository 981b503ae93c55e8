//go:build unix && !linux

package testserver

import "os/exec"

// DieWithParent does nothing: only Linux has a signal for it.
func DieWithParent(*exec.Cmd) {}
