package testenv

import (
	"os/exec"
	"testing"
)

// CloudHypervisor gives the program, which an operator has to install. No package of Debian's has it.
func CloudHypervisor(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("cloud-hypervisor")
	if err != nil {
		t.Skip(&Unsupported{What: "a machine of Cloud Hypervisor", Why: "cloud-hypervisor is not installed"})
	}
	return path
}
