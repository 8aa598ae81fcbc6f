package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Unikernel builds the one of examples/unikernel; root is the way to the repository's top from the package of the test.
func Unikernel(t testing.TB, root string) string {
	t.Helper()
	needMachines(t)
	dir, out := filepath.Join(root, "examples", "unikernel"), filepath.Join(t.TempDir(), "greeter")
	cmd := exec.Command("gcc", "-m32", "-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-pic", "-no-pie", "-fno-stack-protector", "-mno-sse",
		"-nostdlib", "-static", "-Wl,-T,"+filepath.Join(dir, "link.ld")+",--build-id=none,-n", "-o", out, filepath.Join(dir, "main.c"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return out
}

// BootDisk builds a disk with the system of runtime/vm/testdata/disk.S, which prints what it is told.
func BootDisk(t testing.TB, root, dir string) string {
	t.Helper()
	needMachines(t)
	out := filepath.Join(dir, "system.img")
	cmd := exec.Command("gcc", "-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x7c00,--oformat=binary,--build-id=none", "-o", out,
		filepath.Join(root, "runtime", "vm", "testdata", "disk.S"))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if err := os.Truncate(out, 1<<20); err != nil { // firmware takes what is smaller for no disk
		t.Fatal(err)
	}
	return out
}

// needMachines skips a test where machines of our own systems can be neither built nor run.
func needMachines(t testing.TB) {
	t.Helper()
	for program, pkg := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "gcc": "gcc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&Unsupported{What: "a system of ours", Why: program + " is not installed; apt-get install " + pkg})
		}
	}
}
