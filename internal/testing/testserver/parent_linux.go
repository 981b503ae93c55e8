package testserver

import (
	"os/exec"
	"syscall"
)

// DieWithParent lets the kernel end the process if the test's own process is
// killed or runs into its timeout, when no cleanup runs.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
