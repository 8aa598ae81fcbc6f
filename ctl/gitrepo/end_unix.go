//go:build unix

package gitrepo

import (
	"os/exec"
	"syscall"
)

// endTogether has git end with all that it started, such as ssh.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
