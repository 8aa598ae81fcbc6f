// Package signals finds out which signals a process was started to ignore. It changes none. Any package may import it.
package signals

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Ignored lists the signals that this process ignores, where the system says so (/proc on Linux). What is ignored stays so in every
// program that the process starts; what is caught does not. signal.Ignored does not know of those that Go leaves alone, such as SIGTSTP.
// SIGTTIN and SIGTTOU are left out: who catches them in the background of a terminal reads or writes again without end.
func Ignored() (out []os.Signal) {
	const ttin, ttou = 21, 22 // not every system has names for them
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != "SigIgn" {
			continue
		}
		mask, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		for i := range 64 {
			if n := i + 1; mask>>i&1 == 1 && n != ttin && n != ttou {
				out = append(out, syscall.Signal(i+1))
			}
		}
	}
	return out
}
