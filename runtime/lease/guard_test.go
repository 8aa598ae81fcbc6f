//go:build linux

package lease

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime/internal/cgroup"
)

var parent = fmt.Sprint("skerry-lease-test-", os.Getpid())

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "guard" {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{Cgroup: parent}))
}

// task starts a process in the cgroup of a task; ended is closed when it has.
func task(t *testing.T, tree *cgroup.Tree, name string, ignore bool) (cmd *exec.Cmd, ended chan struct{}) {
	t.Helper()
	g := tree.Group(parent + "/" + name)
	if err := g.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	script := "read x; exec sleep 1000"
	if ignore {
		script = "trap '' TERM; " + script
	}
	cmd = exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range g.Dirs() {
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprintln(in)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return cmd, ended
}

// TestGuard lets leases run out: the task gets its signal, then it and what ignores that is killed, with an attempt that is started late; another
// instance is left alone. A lease that is renewed holds. The agent reads what was ended, a guard that dies is replaced, and the last one ends.
func TestGuard(t *testing.T) {
	tree, err := cgroup.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Group(parent).RemoveShared(); err != nil {
			t.Error(err)
		}
	})
	ctx, dir := t.Context(), t.TempDir()
	contact, err := NewContact(filepath.Join(dir, "contact"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHolder(Options{Dir: filepath.Join(dir, "lease"), Contact: contact, CgroupParent: parent, Command: []string{"/proc/self/exe", "guard"}})
	if err != nil {
		t.Fatal(err)
	}
	polite, politeEnd := task(t, tree, "polite.main.1", false)
	_, stubbornEnd := task(t, tree, "stubborn.main.3", true)
	_, sideEnd := task(t, tree, "stubborn.side.1", true)
	other, _ := task(t, tree, "polite-too.main.1", false)
	token := skerry.Fence{Sequence: 7}
	list := []Lease{
		{Instance: "polite", Token: token, Stop: time.Minute, Kill: time.Hour, Main: polite.Process.Pid, Signal: int(syscall.SIGTERM)},
		{Instance: "stubborn", Token: token, Stop: time.Minute, Kill: 2 * time.Minute},
		{Instance: "idle", Token: token, Stop: time.Hour, Kill: time.Hour},
	}
	if err := contact.Write(0); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(ctx, list); err != nil {
		t.Fatal(err)
	}
	first := h.child
	if err := first.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for h.child == first { // until the last of its threads has ended
		if err := h.Ensure(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if !h.child.Alive() {
		t.Fatalf("guard %v after %v", h.child, first)
	}
	if len(h.AllEnded()) != 0 {
		t.Errorf("ended: %v", h.AllEnded())
	}
	// Long ago: both have run out, and the guard sees that with the list.
	if err := contact.Write(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(ctx, list); err != nil {
		t.Fatal(err)
	}
	<-politeEnd
	if err := contact.Write(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := h.Set(ctx, list); err != nil {
		t.Fatal(err)
	}
	<-stubbornEnd
	<-sideEnd
	_, late := task(t, tree, "stubborn.main.4", true)
	<-late
	var names []string
	for _, e := range h.AllEnded() {
		if e.Token != token || e.Alone < 90*time.Second {
			t.Errorf("%+v", e)
		}
		names = append(names, string(e.Instance))
	}
	if slices.Sort(names); !slices.Equal(names, []string{"polite", "stubborn"}) {
		t.Errorf("ended: %v", names)
	}
	if syscall.Kill(other.Process.Pid, 0) != nil {
		t.Error("another instance was ended")
	}
	if err := h.Set(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if len(h.AllEnded()) != 0 {
		t.Errorf("ended: %v", h.AllEnded())
	}
	if h.child.PID != 0 {
		t.Errorf("guard %v is there without leases", h.child)
	}
	if err := CleanUp(context.Background(), filepath.Join(dir, "lease")); err != nil {
		t.Fatal(err)
	}
}
