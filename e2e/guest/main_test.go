//go:build linux && amd64

// Package guest runs Skerry as it is installed, under systemd and cgroup version 2, in an emulated machine with Debian 12
// and its kernel. It proves what no namespace can: the packaged units, limits of version 2 as the kernel enforces them, and
// that workloads outlive the agent in the eyes of a service manager.
package guest

import (
	"os"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// The tests need the network of the host, for packages, but no rights in it.
func TestMain(m *testing.M) { os.Exit(testenv.Main(m, testenv.Options{})) }
