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
	signal.Ignore(syscall.SIGTSTP)
	defer signal.Reset(syscall.SIGTSTP)
	if list := Ignored(); !slices.Contains(list, os.Signal(syscall.SIGTSTP)) || slices.Contains(list, os.Signal(syscall.SIGTERM)) {
		t.Errorf("ignored are %v", list)
	}
}
