package testenv

import (
	"os/exec"
	"testing"
)

// Firecracker gives the program, which an operator has to install with its jailer. No package of a distribution has it.
func Firecracker(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("firecracker")
	if err != nil {
		t.Skip(&Unsupported{What: "a machine of Firecracker", Why: "firecracker is not installed"})
	}
	return path
}
