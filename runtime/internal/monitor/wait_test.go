//go:build linux

package monitor

import (
	"bufio"
	"context"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSweepComesToAnEnd: who has processes named after a task come back as often as they are killed does not hold the agent.
func TestSweepComesToAnEnd(t *testing.T) {
	const many = 12 // so that there is one at any look
	task := &Task{dir: t.TempDir()}
	ctx, end := context.WithCancel(t.Context())
	tenant := exec.CommandContext(ctx, "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
		while :; do sh -c 'exec tail -f /dev/null "$0"' `+task.dir+`; echo killed; done & done; wait`)
	tenant.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	tenant.Cancel = func() error { return unix.Kill(-tenant.Process.Pid, unix.SIGKILL) }
	out, err := tenant.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tenant.Start(); err != nil {
		t.Fatal(err)
	}
	sweep, stop := context.WithCancel(t.Context())
	killed := make(chan int, 1)
	go func() {
		n := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n++; n == 20*many {
				stop()
			}
		}
		killed <- n
	}()
	for sweep.Err() == nil { // they may all be on their way back
		task.sweep(sweep)
	}
	end()
	if n := <-killed; n < 20*many {
		t.Errorf("only %d were killed", n)
	}
	_ = tenant.Wait()
}
