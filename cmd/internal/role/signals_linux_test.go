package role

import (
	"errors"
	"log/slog"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What a role was started to ignore, as below nohup, is ignored by none of the programs that it starts.
func TestNothingIsIgnoredBelow(t *testing.T) {
	deaf := []syscall.Signal{syscall.SIGHUP, syscall.SIGTSTP, syscall.SIGUSR2}
	for _, s := range deaf {
		signal.Ignore(s)
		defer signal.Reset(s)
	}
	NewService(slog.New(slog.DiscardHandler))
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
	_, text, _ := strings.Cut(string(out), ":")
	mask, bad := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	if mask &^= 1<<(syscall.SIGTTIN-1) | 1<<(syscall.SIGTTOU-1); mask != 0 || errors.Join(err, bad) != nil { // see signals.CatchIgnored
		t.Errorf("a program ignores %q, %v", out, err)
	}
}
