package probe

import (
	"context"
	"os/exec"
	"time"
)

const (
	// startsIn is how many times as long as a program takes to say its version a self-test with it may take.
	startsIn = 1000
	// slowest bounds how much more than usual a slow machine is given: what hangs has to be given up.
	slowest = 8
)

// Patience is how long a self-test that uses a program may take on this machine: the usual time, or more where the program takes
// long even to say its version, because the machine is slow or busy, as all are that have just been switched on.
func Patience(ctx context.Context, program string, usual time.Duration) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, usual)
	defer cancel()
	began := time.Now()
	_ = exec.CommandContext(ctx, program, "--version").Run()
	return patience(usual, time.Since(began))
}

func patience(usual, version time.Duration) time.Duration {
	return min(max(usual, startsIn*version), slowest*usual)
}
