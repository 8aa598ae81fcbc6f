package probe

import (
	"context"
	"os/exec"
	"time"
)

const (
	// startsIn is how many times as long as a program takes to say its version a self-test with it may take.
	startsIn = 1000
	// worksIn is the same for what they use of processors, which others on the machine do not lengthen.
	worksIn = 300
	// slowest bounds how much more than usual a slow machine is given: what hangs has to be given up.
	slowest = 8
)

// Patience is how long a self-test that uses a program may take on this machine: the usual time, or more where the program takes
// long even to say its version, because the machine is slow or busy, as all are that have just been switched on.
func Patience(ctx context.Context, program string, usual time.Duration) time.Duration {
	usual, _ = Effort(ctx, program, usual, usual)
	return usual
}

// Effort is Patience, and how much the self-test may use of processors: the usual work, or more where even saying its version takes the
// program much, because the processor is slow.
func Effort(ctx context.Context, program string, usual, work time.Duration) (patience, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, usual)
	defer cancel()
	began, used := time.Now(), time.Duration(0)
	cmd := exec.CommandContext(ctx, program, "--version")
	_ = cmd.Run()
	if s := cmd.ProcessState; s != nil {
		used = s.UserTime() + s.SystemTime()
	}
	return scaled(usual, startsIn*time.Since(began)), scaled(work, worksIn*used)
}

func scaled(usual, here time.Duration) time.Duration { return min(max(usual, here), slowest*usual) }
