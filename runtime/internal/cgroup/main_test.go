//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, testenv.Options{Cgroup: fmt.Sprintf("skerry-test-cgroup-%d-*", os.Getpid())}))
}
