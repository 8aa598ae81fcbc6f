package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Unikernel builds the one of examples/unikernel; root is the way to the repository's top from the package of the test.
func Unikernel(t testing.TB, root string) string {
	t.Helper()
	needMachines(t)
	out := filepath.Join(t.TempDir(), "greeter")
	dir := filepath.Join(root, "examples", "unikernel")
	freestanding(t, root, filepath.Join(dir, "main.c"), out, "-Wl,-T,"+filepath.Join(dir, "link.ld")+",--build-id=none,-n")
	return out
}

// SuiteUnikernel builds the program of the conformance suite as a kernel, and gives its file, "workload" in a directory of its own.
func SuiteUnikernel(t testing.TB, root string) string {
	t.Helper()
	needMachines(t)
	out := filepath.Join(t.TempDir(), "workload")
	freestanding(t, root, suiteSystem(root, "main.c"), out,
		"-Wl,-T,"+filepath.Join(root, "examples", "unikernel", "link.ld")+",--build-id=none,-n")
	return out
}

// SuiteDisk builds a disk that starts the program of the conformance suite, into a directory.
func SuiteDisk(t testing.TB, root, dir string) {
	t.Helper()
	needMachines(t)
	work := t.TempDir()
	first, rest := filepath.Join(work, "first"), filepath.Join(work, "rest")
	sector(t, suiteSystem(root, "boot.S"), first)
	freestanding(t, root, suiteSystem(root, "main.c"), rest, "-Wl,-T,"+suiteSystem(root, "disk.ld")+",--build-id=none")
	disk, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	system, err := os.ReadFile(rest)
	if err != nil {
		t.Fatal(err)
	}
	if len(system) > 127*512 {
		t.Fatalf("the system has %d bytes, more than its first sector loads", len(system))
	}
	image := make([]byte, diskSize)
	copy(image, append(disk, system...))
	if err := os.WriteFile(filepath.Join(dir, "system.img"), image, 0o644); err != nil {
		t.Fatal(err)
	}
}

// BootDisk builds a disk with the system of runtime/vm/testdata/disk.S, which prints what it is told.
func BootDisk(t testing.TB, root, dir string) string {
	t.Helper()
	needMachines(t)
	out := filepath.Join(dir, "system.img")
	sector(t, filepath.Join(root, "runtime", "vm", "testdata", "disk.S"), out)
	if err := os.Truncate(out, diskSize); err != nil {
		t.Fatal(err)
	}
	return out
}

// diskSize is the least: firmware takes what is smaller for no disk.
const diskSize = 1 << 20

func suiteSystem(root, file string) string {
	return filepath.Join(root, "runtime", "runtimetest", "system", file)
}

// freestanding compiles a program that is its own kernel.
func freestanding(t testing.TB, root, source, out, link string) {
	t.Helper()
	compile(t, "-m32", "-Os", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-pic", "-no-pie", "-fno-stack-protector", "-mno-sse",
		"-nostdlib", "-static", "-I"+filepath.Join(root, "examples", "unikernel"), link, "-o", out, source)
}

// sector assembles what firmware loads.
func sector(t testing.TB, source, out string) {
	t.Helper()
	compile(t, "-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x7c00,--oformat=binary,--build-id=none", "-o", out, source)
}

func compile(t testing.TB, args ...string) {
	t.Helper()
	if said, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
}

// needMachines skips a test where machines of our own systems can be neither built nor run.
func needMachines(t testing.TB) {
	t.Helper()
	for program, pkg := range map[string]string{"qemu-system-x86_64": "qemu-system-x86", "gcc": "gcc"} {
		if _, err := exec.LookPath(program); errors.Is(err, exec.ErrNotFound) {
			t.Skip(&Unsupported{What: "a system of ours", Why: program + " is not installed; apt-get install " + pkg})
		}
	}
}
