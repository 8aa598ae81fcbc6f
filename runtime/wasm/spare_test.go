//go:build linux

package wasm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/cgroup"
	"skerry.dev/skerry/wire"
)

// withSpare waits until the next start is by a spare, withoutSpare sees to it that it is not.
func withSpare(t testing.TB, d *Driver) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		d.spare.mu.Lock()
		ready := d.spare.ready != nil
		d.spare.mu.Unlock()
		if ready {
			return
		}
		if time.Now().After(end) {
			t.Fatal("there is no spare")
		}
	}
}

func withoutSpare(d *Driver) {
	d.spare.made.Wait()
	d.spare.drop()
}

// look is what the kernel says of a process from outside.
type look struct {
	user, namespaces, mounts, groups string
	threads                          map[string]bool // the network namespaces of all threads
}

func looked(t *testing.T, pid int) (l look) {
	t.Helper()
	read := func(name string) string {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for line := range strings.Lines(read("status")) {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains([]string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}, name) {
			l.user += line
		}
	}
	// The root is the same overlay in another task's directory.
	for line := range strings.Lines(read("mountinfo")) {
		f := strings.Fields(line)
		l.mounts += strings.Join(f[3:6], " ") + "\n"
	}
	for line := range strings.Lines(read("cgroup")) {
		l.groups += line
	}
	for _, name := range []string{"mnt", "uts", "ipc", "pid", "user", "cgroup", "net"} {
		own, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		ours, err2 := os.Readlink("/proc/self/ns/" + name)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		l.namespaces += fmt.Sprintln(name, own != ours)
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/net", pid))
	if err != nil || len(tasks) < 2 {
		t.Fatalf("%v, %v", tasks, err)
	}
	l.threads = map[string]bool{}
	for _, f := range tasks {
		ns, err := os.Readlink(f)
		if err != nil {
			t.Fatal(err)
		}
		l.threads[ns] = true
	}
	return l
}

// TestSpare: what a spare has become is not to be told from a process that was begun for the task: its user, its mounts, its
// cgroup with the limits, the network of each of its threads, its hostname, its log, and its end.
func TestSpare(t *testing.T) {
	idle := wasmcode.Module{Text: "up\n", Body: slices.Concat(wasmcode.Print, wasmcode.Hang)}.Encode()
	r := newRig(t, map[string][]byte{"idle": idle, "code": wasmcode.Module{Text: "up\n", Body: slices.Concat(wasmcode.Print, wasmcode.Exit(7))}.Encode()})
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	net := fmt.Sprintf("/proc/%d/ns/net", other.Process.Pid)
	first := r.start(r.spec("/code"))
	if e, err := r.Wait(t.Context(), first); e.Code != 7 || err != nil {
		t.Fatal(e, err)
	}
	volume := t.TempDir()
	var seen []look
	for _, by := range []string{"anew", "spare"} {
		pid := 0
		if by == "spare" {
			withSpare(t, r.Driver)
			pid = r.spare.ready.PID()
			if l := looked(t, pid); len(l.threads) != 1 || strings.Contains(l.groups, "rig-") {
				t.Errorf("a spare is in %+v", l)
			}
		} else {
			withoutSpare(r.Driver)
		}
		sp := r.spec("/idle")
		sp.Resources = runtime.Resources{CPU: 300, Memory: 64 * skerry.MiB, Pids: 40}
		sp.Hostname, sp.Network = "box", &wire.Attachment{NetNS: net}
		sp.Mounts = []runtime.Mount{{Type: "bind", Source: volume, Target: "/data"}}
		h := r.start(sp)
		if pid != 0 && h.PID != pid {
			t.Fatalf("the spare %d was not used, but %d", pid, h.PID)
		}
		log, err := r.OpenLog(t.Context(), h, runtime.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := log.Next(); e.Line != "up" {
			t.Fatal(e, err)
		}
		log.Close()
		l := looked(t, h.PID)
		want, err := os.Stat(net)
		if err != nil {
			t.Fatal(err)
		}
		if ns := fmt.Sprintf("net:[%d]", want.Sys().(*syscall.Stat_t).Ino); len(l.threads) != 1 || !l.threads[ns] {
			t.Errorf("%s: its threads are in %v, not all in %s", by, l.threads, ns)
		}
		limits, err := r.Limits(t.Context(), h)
		if err != nil || limits.CPU != 300 || limits.Memory != 64*skerry.MiB {
			t.Errorf("%s: limits %+v, %v", by, limits, err)
		}
		// It is in the one group of the task in every hierarchy, where its memory counts.
		st, err := r.Stats(t.Context(), h)
		if err != nil || st.Memory < skerry.MiB || st.Memory > 40*skerry.MiB {
			t.Errorf("%s: it uses %v, %v", by, st.Memory, err)
		}
		if err := r.Stop(t.Context(), h, time.Minute); err != nil {
			t.Error(err)
		}
		if e, err := r.Wait(t.Context(), h); e.Signal != 15 || err != nil {
			t.Errorf("%s: %+v, %v", by, e, err)
		}
		l.groups, l.threads = "", nil
		seen = append(seen, l)
	}
	if !reflect.DeepEqual(seen[0], seen[1]) {
		t.Errorf("anew %+v\nby a spare %+v", seen[0], seen[1])
	}
	// A spare that was killed costs the next task nothing but time, and what is wrong with a task is told as ever.
	withSpare(t, r.Driver)
	dead := r.spare.ready.PID()
	if err := syscall.Kill(dead, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h := r.start(r.spec("/code"))
	if e, err := r.Wait(t.Context(), h); e.Code != 7 || err != nil || h.PID == dead {
		t.Errorf("%+v, %v", e, err)
	}
	withSpare(t, r.Driver)
	sp := r.spec("/code")
	sp.Network = &wire.Attachment{NetNS: filepath.Join(r.root, "code")} // no namespace
	_, wantErr := r.Start(t.Context(), sp)
	withoutSpare(r.Driver)
	sp.ID += ".again"
	_, gotErr := r.Start(t.Context(), sp)
	if wantErr == nil || gotErr == nil || strings.ReplaceAll(gotErr.Error(), ".again", "") != wantErr.Error() {
		t.Errorf("%v\n%v", wantErr, gotErr)
	}
	// It ends with its agent, and leaves nothing.
	r.start(r.spec("/code"))
	withSpare(t, r.Driver)
	last := r.spare.ready.PID()
	group := r.spare.ready.Group()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if !ended(t, last) || group.Exists() {
		t.Errorf("the spare's process has ended: %t, its group is there: %t", ended(t, last), group.Exists())
	}
}

// ended reports whether a process has ended, also if its parent has not waited for it yet: that is this process, in a goroutine of its own.
func ended(t *testing.T, pid int) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// TestSpareCrash: whatever an agent that died had of a spare, the next one finds and removes: one that waited, and one that was
// becoming a task. The first agent is not dead here, so that nothing ends by itself.
func TestSpareCrash(t *testing.T) {
	r := newRig(t, map[string][]byte{"code": wasmcode.Module{Text: "up\n", Body: slices.Concat(wasmcode.Print, wasmcode.Hang)}.Encode()})
	next := func() *Driver {
		d, err := openDriver(r.Options.Dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d.(*Driver)
	}
	gone := func(sp *spare) {
		t.Helper()
		if !ended(t, sp.PID()) || sp.Group().Exists() {
			t.Errorf("process %d has ended: %t, its group is there: %t", sp.PID(), ended(t, sp.PID()), sp.Group().Exists())
		}
	}
	r.start(r.spec("/code"))
	withSpare(t, r.Driver)
	waits := r.spare.ready
	next()
	gone(waits)
	if left, err := filepath.Glob(filepath.Join(r.Options.Dir, "spares", "*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}

	r.start(r.spec("/code")) // without it, and there is another one
	withSpare(t, r.Driver)
	sp := r.spec("/code")
	becomes := r.spare.take(sp)
	_, err := r.tasks.StartFrom(t.Context(), sp, becomes.Spare, func(string, cgroup.Group) error {
		d := next()
		h := runtime.Handle{ID: sp.ID}
		if st, err := d.Status(t.Context(), h); err != nil || st.State != runtime.StateBroken {
			t.Errorf("the task is %+v, %v", st, err)
		}
		if err := d.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
		gone(becomes)
		if _, err := os.Stat(filepath.Join(r.Options.Dir, "tasks", string(sp.ID))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its files: %v", err)
		}
		return errors.New("the agent has died")
	})
	if err == nil {
		t.Error("a start that was broken off succeeded")
	}
	becomes.end()
}
