//go:build linux

package signals

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

func TestIgnored(t *testing.T) {
	if slices.Contains(Ignored(), os.Signal(syscall.SIGTSTP)) {
		t.Skip("this test was started to ignore it")
	}
	signal.Ignore(syscall.SIGTSTP, syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTSTP, syscall.SIGTTOU)
	list := Ignored()
	has := func(s syscall.Signal) bool { return slices.Contains(list, os.Signal(s)) }
	if !has(syscall.SIGTSTP) || has(syscall.SIGTERM) || has(syscall.SIGTTOU) {
		t.Errorf("ignored are %v", list)
	}
}
