//go:build linux && amd64

// Package guest runs Skerry as it is installed, under systemd: in a container of this host, and in an emulated machine with
// Debian 12, its kernel and cgroup version 2. It proves the packaged units, limits as the kernel enforces them, and that
// workloads outlive the agent in the eyes of a service manager.
package guest

import (
	"fmt"
	"os"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// The tests need the network of the host, for packages.
func TestMain(m *testing.M) {
	if status, has := containerPart(); has {
		os.Exit(status)
	}
	os.Exit(testenv.Main(m, testenv.Options{Cgroup: groupPrefix + fmt.Sprint(os.Getpid())}))
}
