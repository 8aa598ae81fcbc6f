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
	if !slices.Contains(list, os.Signal(syscall.SIGTSTP)) || slices.Contains(list, os.Signal(syscall.SIGTERM)) || slices.Contains(list, os.Signal(syscall.SIGTTOU)) {
		t.Errorf("ignored are %v", list)
	}
}
