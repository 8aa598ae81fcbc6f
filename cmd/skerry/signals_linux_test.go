package main

import (
	"log/slog"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// What a role was started to ignore, as below nohup, is ignored by none of the programs that it starts.
func TestNothingIsIgnoredBelow(t *testing.T) {
	deaf := []syscall.Signal{syscall.SIGHUP, syscall.SIGTSTP, syscall.SIGTTOU}
	for _, s := range deaf {
		signal.Ignore(s)
		defer signal.Reset(s)
	}
	newService(slog.New(slog.DiscardHandler))
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
	if _, mask, _ := strings.Cut(string(out), ":"); err != nil || strings.Trim(strings.TrimSpace(mask), "0") != "" {
		t.Errorf("a program ignores %q, %v", out, err)
	}
}
