//go:build !linux

package e2e

import "os/exec"

// dieWithParent does nothing: only Linux has a signal for it.
func dieWithParent(*exec.Cmd) {}
