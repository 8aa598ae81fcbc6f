//go:build linux

package nfsmount

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
)

// TestMain is the helper, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "helper" {
		os.Exit(Main(os.Args[2:]))
	}
	os.Exit(testenv.Main(m, testenv.Options{}))
}

// machine is a kernel with a list of mounts, and a server that does as it is told.
type machine struct {
	mu      sync.Mutex
	list    []string // mount points, and what is mounted there
	link    string   // what the server has at the path, if it is a link
	log     []string
	refuse  error
	hang    chan struct{} // if not nil, mounting waits for it
	waiting chan struct{}
}

func (m *machine) Mounts() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
	for _, at := range m.list {
		at, source, _ := strings.Cut(at, " ")
		out += "2 1 0:9 / " + at + " rw - nfs4 " + source + " rw\n"
	}
	return out, nil
}

func (m *machine) Mount(ctx context.Context, v *spec.NFSVolume, at string) error {
	m.mu.Lock()
	hang := m.hang
	m.mu.Unlock()
	if hang != nil {
		m.waiting <- struct{}{}
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, "mount "+v.Source())
	if m.refuse != nil {
		return m.refuse
	}
	m.list = append(m.list, at+" "+cmp.Or(m.link, v.Source()))
	return nil
}

func (m *machine) Ask(context.Context, *spec.NFSVolume, string) error { return nil }

func (m *machine) Unmount(_ context.Context, at string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, "unmount")
	if m.refuse != nil {
		return m.refuse
	}
	m.list = slices.DeleteFunc(m.list, func(one string) bool { return strings.HasPrefix(one, at+" ") })
	return nil
}

// said gives what was asked of the machine since the last time.
func (m *machine) said() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := strings.Join(m.log, ", ")
	m.log = nil
	return out
}

func world(t *testing.T) (*machine, *Table, func(string) string, func() *Table) {
	t.Helper()
	dir, m := t.TempDir(), &machine{waiting: make(chan struct{})}
	open := func() *Table {
		return New(filepath.Join(dir, "nfs"), filepath.Join(dir, "instances", "*", "nfs", "*"), m)
	}
	return m, open(), func(instance string) string { return filepath.Join(dir, "instances", instance, "nfs", "v") }, open
}

func gone(t *testing.T, record string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(record))); err != nil {
		t.Fatalf("end an instance: %v", err)
	}
}

// Two instances share a mount, which ends with the last one, and not with the agent.
func TestShared(t *testing.T) {
	m, table, record, open := world(t)
	media := &spec.NFSVolume{Server: "nas", Path: "/media", Options: []string{"hard", "noatime"}}
	same := &spec.NFSVolume{Server: "NAS", Path: "/media", Options: []string{"noatime", "hard"}}
	step := func(what, want string, err error) {
		t.Helper()
		if got := m.said(); got != want || err != nil {
			t.Errorf("%s: the machine was asked %q (%v), expected %q", what, got, err, want)
		}
	}
	step("the first", "mount nas:/media", table.Mount(t.Context(), media, record("a")))
	step("again", "", table.Mount(t.Context(), media, record("a")))
	step("the second", "", table.Mount(t.Context(), same, record("b")))
	readOnly := *media
	readOnly.ReadOnly = true
	step("another way", "mount nas:/media", table.Mount(t.Context(), &readOnly, record("c")))
	table = open() // the agent has restarted
	gone(t, record("a"))
	step("one ends", "", table.Sweep(t.Context()))
	gone(t, record("c"))
	step("the other way ends", "unmount", table.Sweep(t.Context()))
	m.list = nil // a boot
	step("after a boot", "mount NAS:/media", table.Mount(t.Context(), same, record("b")))
	gone(t, record("b"))
	step("the last ends", "unmount", table.Sweep(t.Context()))
	left, err := os.ReadDir(table.dir)
	if len(left) != 0 || err != nil {
		t.Errorf("left below %s: %v, %v; expected nothing", table.dir, left, err)
	}
	if len(table.busy) != 0 { // tenants choose how exports are mounted, and each way is another
		t.Errorf("%d exports are remembered that nobody mounts, want none", len(table.busy))
	}
}

// What is refused is refused to the instance, and tried again; what cannot be unmounted is never removed.
func TestRefused(t *testing.T) {
	m, table, record, _ := world(t)
	v := &spec.NFSVolume{Server: "nas", Path: "/x"}
	m.refuse = &Refused{Source: v.Source(), Errno: unix.EACCES}
	err := table.Mount(t.Context(), v, record("a"))
	if want := "mount nas:/x: permission denied (the server does not export it to this worker)"; err == nil || err.Error() != want {
		t.Errorf("got %v, expected %s", err, want)
	}
	m.refuse = nil
	if err := table.Mount(t.Context(), v, record("a")); err != nil {
		t.Errorf("tried again: %v", err)
	}
	kept := filepath.Join(At(table.dir, v), "theirs")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatalf("write to the export: %v", err)
	}
	gone(t, record("a"))
	m.refuse = &Refused{Errno: unix.EBUSY}
	if err := table.Sweep(t.Context()); !errors.Is(err, unix.EBUSY) {
		t.Errorf("unmounting: %v, expected that it is busy", err)
	}
	m.refuse = nil
	if err := table.Clean(t.Context()); !errors.Is(err, unix.ENOTEMPTY) { // here it is no mount
		t.Errorf("cleaning: %v, expected that what is not empty stays", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what the server has: %v", err)
	}
}

// The kernel follows links of the server. Whoever may write to an export can make one, to what the operator does not allow; and an agent
// that ends before it has looked at what is mounted looks afterwards.
func TestLinkOfServer(t *testing.T) {
	machine, table, record, open := world(t)
	volume := &spec.NFSVolume{Server: "NAS", Path: "/theirs/link"}
	machine.link = "nas:/others"
	var elsewhere *Elsewhere
	if err := table.Mount(t.Context(), volume, record("a")); !errors.As(err, &elsewhere) || elsewhere.Is != machine.link {
		t.Errorf("a link to another export: %v, expected a refusal", err)
	}
	if len(machine.list) != 0 {
		t.Errorf("%v is still mounted, expected nothing", machine.list)
	}
	machine.list = []string{At(table.dir, volume) + " nas:/others"}
	machine.link = "nas:/theirs/link"
	if err := open().Mount(t.Context(), volume, record("a")); err != nil {
		t.Errorf("the link has become a directory: %v", err)
	}
	if len(machine.list) != 1 || !strings.HasSuffix(machine.list[0], machine.link) {
		t.Errorf("%v is mounted, expected %s alone", machine.list, machine.link)
	}
	for _, c := range []struct{ server, path, written string }{
		{"nas", "/a\\b", `nas:/a\134b`}, {"2001:DB8::1", "/", "[2001:db8::1]:/"}, {"nas", "/", "nas:/"},
	} {
		machine.list, machine.link = nil, c.written
		if err := table.Mount(t.Context(), &spec.NFSVolume{Server: c.server, Path: c.path}, record("b")); err != nil {
			t.Errorf("%s as the kernel writes it: %v", c.written, err)
		}
	}
}

// What is in use stays mounted wherever the worker's directory is, and while nobody can tell what is in use.
func TestUsedIsKept(t *testing.T) {
	base := filepath.Join(t.TempDir(), "worker[1]*")
	kernel := &machine{}
	table := New(filepath.Join(base, "nfs"), filepath.Join(base, "instances", "*", "nfs", "*"), kernel)
	record := filepath.Join(base, "instances", "a", "nfs", "v")
	if err := table.Mount(t.Context(), &spec.NFSVolume{Server: "nas", Path: "/x"}, record); err != nil {
		t.Fatalf("mount: %v", err)
	}
	if err := table.Sweep(t.Context()); err != nil || len(kernel.list) != 1 {
		t.Errorf("swept: %v, and %v is mounted, expected what is in use", err, kernel.list)
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatalf("read the limit of open files: %v", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatalf("have no file be opened: %v", err)
	}
	used, err := table.used(Key(&spec.NFSVolume{Server: "nas", Path: "/x"}))
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); e != nil {
		t.Fatalf("have files be opened again: %v", e)
	}
	if err == nil && !used {
		t.Error("no file can be opened, and what is in use was taken for unused")
	}
}

// A server that hangs holds up those who want the same of it, until they no longer do, and nobody else.
func TestHangs(t *testing.T) {
	m, table, record, _ := world(t)
	slow, other := &spec.NFSVolume{Server: "slow", Path: "/x"}, &spec.NFSVolume{Server: "nas", Path: "/x"}
	m.hang = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- table.Mount(ctx, slow, record("a")) }()
	<-m.waiting
	go func() { done <- table.Mount(ctx, slow, record("b")) }()
	m.mu.Lock()
	hang := m.hang
	m.hang = nil
	m.mu.Unlock()
	if err := table.Mount(t.Context(), other, record("c")); err != nil {
		t.Errorf("another server: %v", err)
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("one that waited ended with %v, expected that it was told to", err)
		}
	}
	close(hang)
}

// A kernel without NFS says so; a server that refuses is told of in its words.
func TestHelper(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(&testenv.Unsupported{What: "mounting", Why: "this is not root"})
	}
	helper, at := Helper{os.Args[0], "helper"}, t.TempDir()
	// Nothing listens at this port of this machine's: NFS has no other here.
	err := helper.Mount(t.Context(), &spec.NFSVolume{Server: "127.0.0.1", Path: "/none"}, at)
	list, readErr := os.ReadFile("/proc/filesystems")
	if readErr != nil {
		t.Fatalf("read the kernel's file systems: %v", readErr)
	}
	var missing *Missing
	var refused *Refused
	if strings.Contains(string(list), "nfs4\n") {
		if !errors.As(err, &refused) {
			t.Errorf("mount where no server is: %v, expected a refusal", err)
		}
	} else if !errors.As(err, &missing) || !strings.Contains(err.Error(), "has no NFS") {
		t.Errorf("mount by a kernel without NFS: %v, expected that it has none", err)
	}
	if err := helper.Ask(t.Context(), &spec.NFSVolume{Server: "nas", Path: "/x"}, at); err != nil {
		t.Errorf("ask: %v", err)
	}
	if err := helper.Unmount(t.Context(), at); !errors.Is(err, unix.EINVAL) {
		t.Errorf("unmount what is no mount: %v, expected EINVAL", err)
	}
	err = helper.Mount(t.Context(), &spec.NFSVolume{Server: "no-such-server.invalid", Path: "/x"}, at)
	if !errors.As(err, &refused) || refused.Why == "" {
		t.Errorf("a server that has no address: %v, expected a refusal with the resolver's words", err)
	}
}

func TestData(t *testing.T) {
	for _, c := range []struct{ volume, version, address, want string }{
		{`{}`, "4.2", "192.0.2.1", "addr=192.0.2.1,vers=4.2,proto=tcp,sec=sys,soft,timeo=100,retrans=3"},
		{`{"options": ["hard", "noatime"]}`, "4.1", "2001:db8::1", "addr=2001:db8::1,vers=4.1,proto=tcp6,sec=sys,hard"},
		{`{"options": ["nolock", "timeo=30"]}`, "3", "192.0.2.1",
			"addr=192.0.2.1,vers=3,proto=tcp,sec=sys,mountproto=tcp,soft,retrans=3,nolock,timeo=30"},
	} {
		var v spec.NFSVolume
		if err := json.Unmarshal([]byte(c.volume), &v); err != nil {
			t.Fatalf("%s: %v", c.volume, err)
		}
		if got := data(&v, c.version, c.address); got != c.want {
			t.Errorf("%s: options %q, expected %q", c.volume, got, c.want)
		}
	}
}

func FuzzIsMounted(f *testing.F) {
	f.Add("1 2 3:4 / /a\\040b rw - nfs4 x rw\n", "/a b")
	f.Add(" - \n1 2\n", "")
	f.Fuzz(func(t *testing.T, list, at string) {
		written := strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(at)
		line := fmt.Sprintf("9 1 0:7 / %s rw - nfs4 nas:/x rw", written)
		if strings.Fields(line)[4] == "rw" || strings.ContainsAny(at, "\v\f\r\u0085\u00a0") || len(strings.Fields(line)) != 10 {
			return // no path that the kernel writes
		}
		if !isMounted(list+"\n"+line+"\n", at) {
			t.Errorf("%q is not found in %q", at, list)
		}
	})
}
