package check

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel end a process whose test was killed or ran into
// its timeout, when no cleanup runs.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
