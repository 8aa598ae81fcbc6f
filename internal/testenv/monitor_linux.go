package testenv

import (
	"os/exec"
	"testing"
)

// Monitor gives the program of a monitor of machines, which an operator has to install; Debian has no package of it.
func Monitor(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skip(&Unsupported{What: "a machine of " + program, Why: program + " is not installed"})
	}
	return path
}
