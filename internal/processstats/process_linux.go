package processstats

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// processFamilies are what the kernel says of this process. What it does not say is left out.
func processFamilies() (list []family) {
	add := func(name, kind, help string, value float64) { list = append(list, family{name, kind, help, value}) }
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) == nil {
		seconds := func(t unix.Timeval) float64 { return float64(t.Nano()) / 1e9 }
		add("process_cpu_seconds_total", "counter", "Processor time, of the user and of the system.", seconds(use.Utime)+seconds(use.Stime))
	}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			page := float64(os.Getpagesize())
			if n, err := strconv.ParseUint(string(fields[0]), 10, 64); err == nil {
				add("process_virtual_memory_bytes", "gauge", "Address space.", float64(n)*page)
			}
			if n, err := strconv.ParseUint(string(fields[1]), 10, 64); err == nil {
				add("process_resident_memory_bytes", "gauge", "Memory that is resident.", float64(n)*page)
			}
		}
	}
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		add("process_open_fds", "gauge", "Descriptors that are open.", float64(len(names)-1)) // one of them reads the list
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		add("process_max_fds", "gauge", "Descriptors that may be open.", float64(limit.Cur))
	}
	return list
}
