//go:build linux

// Package kerneltest makes network namespaces for the tests of data planes, and runs commands in them. Only tests import it.
package kerneltest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/overlay/internal/kernel"
)

// NewNS makes a namespace without a name, which ends with its file.
func NewNS(t testing.TB) *os.File {
	t.Helper()
	var ns *os.File
	err := thread.Do(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	Run(t, ns, "ip link set lo up")
	return ns
}

// Run runs commands, one a line, in a namespace.
func Run(t testing.TB, ns *os.File, lines string) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		err := kernel.In(ns, func() error {
			words := strings.Fields(line)
			// The file stands for the namespace in the child too.
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
