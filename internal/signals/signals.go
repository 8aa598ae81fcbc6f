// Package signals lets no program inherit what its parent was started to ignore. Any package may import it.
package signals

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// CatchIgnored catches, and sends to c, all signals that this process ignores, where the system says so (/proc on Linux). What is ignored
// stays so in every program that the process starts; what is caught does not. signal.Ignored does not know of those that Go leaves alone,
// such as SIGTSTP. SIGTTIN and SIGTTOU are left out: who catches them in the background of a terminal reads or writes again without end.
// The three that libraries of C keep for themselves, which Go does not catch, have their usual effect again.
func CatchIgnored(c chan<- os.Signal) {
	const ttin, ttou = 21, 22              // not every system has names for them
	const firstOfLibc, lastOfLibc = 32, 34 // cancelling threads and changing their user, in glibc and musl
	for _, s := range ignored() {
		switch {
		case s == ttin || s == ttou:
		case s >= firstOfLibc && s <= lastOfLibc:
			restore(s)
		default:
			signal.Notify(c, s)
		}
	}
}

func ignored() (out []syscall.Signal) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigIgn" {
			continue
		}
		mask, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		for i := range 64 {
			if mask>>i&1 == 1 {
				out = append(out, syscall.Signal(i+1))
			}
		}
	}
	return out
}
