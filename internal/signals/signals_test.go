//go:build linux

package signals

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

func TestCatchIgnored(t *testing.T) {
	const ofLibc = syscall.Signal(32)
	signal.Ignore(syscall.SIGTSTP, syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTSTP, syscall.SIGTTOU)
	setAction(ofLibc, 1)
	has := func(s syscall.Signal) bool { return slices.Contains(ignored(), s) }
	if !has(syscall.SIGTSTP) || !has(syscall.SIGTTOU) || !has(ofLibc) || has(syscall.SIGTERM) {
		t.Fatalf("before, ignored are %v", ignored())
	}
	c := make(chan os.Signal, 1)
	defer signal.Stop(c)
	CatchIgnored(c)
	if has(syscall.SIGTSTP) || has(ofLibc) || !has(syscall.SIGTTOU) {
		t.Errorf("ignored are %v", ignored())
	}
}
