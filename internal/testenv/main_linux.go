package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	insideVar = "SKERRY_TEST_NETNS"
	// runVar marks every process that a test binary started, directly or not, as long as it passes its environment on.
	runVar = "SKERRY_TEST_RUN"
	// notesVar names a directory in which scripts/suite finds the temporary directories of tests that were cut off.
	notesVar = "SKERRY_TEST_NOTES"
)

// Options say what a package's tests need and what they may leave.
type Options struct {
	// NetNS runs the tests in a network namespace of their own with loopback up; needs root.
	NetNS bool
	// Cgroup is a path below each cgroup hierarchy that must be gone at the end; empty means none. It may be a pattern
	// of path.Match. Others run the same tests at the same time: it must hold something of this run, such as os.Getpid.
	Cgroup string
	// Ignore are parts of stack traces of goroutines that may stay.
	Ignore []string
}

// Main runs a package's tests and then looks for what they left behind: goroutines, descriptors, processes, mounts below
// the temporary directory, files in it, cgroups, and, in a namespace of its own, interfaces and nftables tables. Something
// left behind fails the package. Call it from TestMain and exit with its result.
func Main(m Tests, opt Options) int {
	if opt.NetNS && os.Getenv(insideVar) == "" {
		return InNetNS(m)
	}
	if opt.NetNS {
		if err := loopback(); err != nil {
			fmt.Fprintln(os.Stderr, "set up loopback:", err)
			return 1
		}
	}
	tmp, err := os.MkdirTemp("", "skerry-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Processes of other users find their way through it.
	if err := os.Chmod(tmp, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := Note(tmp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("TMPDIR", tmp)
	os.Setenv(runVar, tmp)
	before := Descriptors()
	code := m.Run()
	if code != 0 {
		Remove(tmp)
		return code // what a failed test leaves is not the news
	}
	left := settle(func() []string {
		left := Goroutines(append(opt.Ignore, "testenv.settle")...)
		left = append(left, NewDescriptors(before)...)
		left = append(left, Processes(tmp)...)
		left = append(left, Mounts(tmp)...)
		left = append(left, Cgroups(opt.Cgroup)...)
		if opt.NetNS {
			left = append(left, Interfaces()...)
			left = append(left, Tables()...)
		}
		return left
	})
	if err := Remove(tmp); err != nil {
		left = append(left, err.Error())
	}
	if len(left) == 0 {
		return 0
	}
	fmt.Fprintf(os.Stderr, "the tests left behind:\n\t%s\n", strings.Join(left, "\n\t"))
	return 1
}

// Note has scripts/suite clean a directory, and end the processes that name it, should this process be cut off.
func Note(dir string) error {
	notes := os.Getenv(notesVar)
	if notes == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(notes, filepath.Base(dir)), []byte(dir), 0o600)
}

// Remove deletes a directory, but nothing that lies in it only because it is mounted there.
func Remove(dir string) error {
	points := mountPoints(dir)
	for _, p := range slices.Backward(points) {
		if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return os.RemoveAll(dir)
}

func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	return err
}

// InNetNS runs a package's tests in a network namespace of their own, with loopback up, by starting the test binary once
// more. Call it from TestMain and exit with its result.
func InNetNS(m Tests) int {
	if os.Getenv(insideVar) != "" {
		if err := loopback(); err != nil {
			fmt.Fprintln(os.Stderr, "set up loopback:", err)
			return 1
		}
		return m.Run()
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces and need root")
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if e, ok := err.(*exec.ExitError); ok {
			return e.ExitCode()
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
