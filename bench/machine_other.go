//go:build !linux

package bench

import (
	"runtime"
	"strconv"
)

// MachineFacts describes the machine for a report.
func MachineFacts() map[string]string {
	return map[string]string{"cpu": runtime.GOARCH, "cores": strconv.Itoa(runtime.NumCPU()), "os": runtime.GOOS}
}
