//go:build unix && !linux

package testserver

import "os/exec"

// dieWithParent does nothing: only Linux has a signal for it.
func dieWithParent(*exec.Cmd) {}
