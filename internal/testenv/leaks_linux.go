package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// patience is how long something may take to go by itself, such as a goroutine that sees its context ended.
const patience = 20 * time.Second

// settle asks again until nothing is left or patience is at its end.
func settle(look func() []string) []string {
	deadline := time.Now().Add(patience)
	for wait := time.Millisecond; ; wait *= 2 {
		left := look()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(min(wait, 100*time.Millisecond))
	}
}

// Goroutines lists goroutines that are neither the caller's nor the runtime's own. ignore are parts of stack traces.
func Goroutines(ignore ...string) []string {
	ignore = append(ignore, "testing.(*M).startAlarm", "os/signal.signal_recv", "os/signal.loop", "runtime.ensureSigM",
		"internal/testenv.Goroutines", "runtime/trace.Start", "created by runtime.gc")
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var out []string
	for stack := range bytes.SplitSeq(buf, []byte("\n\n")) {
		if !slices.ContainsFunc(ignore, func(s string) bool { return bytes.Contains(stack, []byte(s)) }) {
			out = append(out, "goroutine: "+strings.ReplaceAll(strings.TrimSpace(string(stack)), "\n", "\n\t"))
		}
	}
	return out
}

// Descriptors counts the open descriptors of this process by what they lead to. Numbers of sockets and pipes are left
// out of the names, as are those that the runtime opens when it first needs them.
func Descriptors() map[string]int {
	out := map[string]int{}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return out
	}
	for _, e := range list {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(to, "anon_inode:[event") || strings.HasPrefix(to, "/proc/") ||
			strings.HasPrefix(to, "/sys/fs/cgroup") || to == "/dev/null" || to == "/dev/urandom" {
			continue
		}
		kind, _, _ := strings.Cut(to, ":")
		out[kind]++
	}
	return out
}

// NewDescriptors lists descriptors that are open now and were not before.
func NewDescriptors(before map[string]int) []string {
	runtime.GC() // files that nobody holds close themselves
	var out []string
	for to, n := range Descriptors() {
		if n > before[to] {
			out = append(out, fmt.Sprintf("descriptor: %d more of %s", n-before[to], to))
		}
	}
	slices.Sort(out)
	return out
}

// Processes lists the processes other than this one that carry a mark in their environment, or that name a file below the
// directory of that name: a supervisor of containers begins with an environment of its own.
func Processes(mark string) []string {
	var out []string
	list, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range list {
		pid := filepath.Base(filepath.Dir(p))
		if pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		env, _ := os.ReadFile(p)
		cmd, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if bytes.Contains(env, []byte(runVar+"="+mark+"\x00")) || bytes.Contains(cmd, []byte(mark+"/")) {
			out = append(out, "process: "+pid+" "+string(bytes.ReplaceAll(bytes.TrimRight(cmd, "\x00"), []byte{0}, []byte(" "))))
		}
	}
	return out
}

// Mounts lists the mount points below a directory.
func Mounts(dir string) []string {
	var out []string
	for _, p := range mountPoints(dir) {
		out = append(out, "mount: "+p)
	}
	return out
}

// mountPoints gives the mount points below a directory in the order of mounting, as the calling thread sees them: the first
// thread, which /proc/self shows, may be in a namespace for good because a goroutine that was locked to it has ended.
func mountPoints(dir string) []string {
	text, _ := os.ReadFile("/proc/thread-self/mountinfo")
	var out []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			out = append(out, f[4])
		}
	}
	return out
}

// Cgroups lists the cgroups that match a pattern below any hierarchy, one of version 2 or one for each controller of
// version 1.
func Cgroups(pattern string) []string {
	if pattern == "" {
		return nil
	}
	var out []string
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		list, _ := filepath.Glob(filepath.Join(top, pattern))
		for _, dir := range list {
			if i, err := os.Stat(dir); err == nil && i.IsDir() {
				out = append(out, "cgroup: "+dir)
			}
		}
	}
	return out
}

// RemoveCgroup removes the cgroups below one, and that one if so asked, once all that was in them has ended: a group is busy for a moment
// after its last process.
func RemoveCgroup(top string, itself bool) error {
	for began := time.Now(); ; Pause(began) {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && (itself || path != top) {
				dirs = append(dirs, path)
			}
			return nil
		})
		var err error
		for _, dir := range slices.Backward(dirs) {
			if e := syscall.Rmdir(dir); e != nil && e != syscall.ENOENT {
				err = fmt.Errorf("remove the cgroup %s: %w", dir, e)
			}
		}
		if err == nil || time.Since(began) > 30*time.Second {
			return err
		}
	}
}

// Interfaces lists the network interfaces of this namespace other than loopback.
func Interfaces() []string {
	list, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return []string{err.Error()}
	}
	var out []string
	for _, l := range list {
		if l.Attrs().Name != "lo" {
			out = append(out, "interface: "+l.Attrs().Name)
		}
	}
	return out
}

// Tables lists the nftables tables of this namespace.
func Tables() []string {
	text, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		return nil // there is no nft; then there is no table
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		out = append(out, "nftables "+strings.TrimSpace(line))
	}
	return out
}
