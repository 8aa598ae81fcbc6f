//go:build unix

package cluster

import (
	"os/exec"
	"syscall"
)

// endTogether has a program end with all that it started.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return endGroup(cmd) }
}

// endGroup ends what a program started, and itself. One of them must be known to be there: its number could have gone to others.
func endGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
