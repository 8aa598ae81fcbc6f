package report

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// MachineFacts describes the machine for a report.
func MachineFacts() map[string]string {
	out := map[string]string{}
	if runtime.GOOS != "linux" {
		return map[string]string{"cpu": runtime.GOARCH, "cores": strconv.Itoa(runtime.NumCPU()), "os": runtime.GOOS}
	}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		n := 0
		for _, line := range strings.Split(string(data), "\n") {
			k, v, _ := strings.Cut(line, ":")
			switch strings.TrimSpace(k) {
			case "processor":
				n++
			case "model name":
				out["cpu"] = strings.TrimSpace(v)
			}
		}
		out["cores"] = strconv.Itoa(n)
	}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		out["kernel"] = strings.TrimSpace(string(data))
	}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		line, _, _ := strings.Cut(string(data), "\n")
		out["memory"] = strings.TrimSpace(strings.TrimPrefix(line, "MemTotal:"))
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		out["load"] = strings.Join(strings.Fields(string(data))[:3], " ")
	}
	return out
}
