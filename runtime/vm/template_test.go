//go:build linux

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/runtimetest"
	"skerry.dev/skerry/runtime/vm/wire"
)

// becomes is what a machine is told that begins with a template, or has left one.
const becomes = `
PATCH /drives/skerry_root
{"drive_id":"skerry_root","path_on_host":"/skerry_root",
"rate_limiter":{"bandwidth":{"size":1000,"refill_time":1000}}}
PATCH /drives/skerry_scratch
{"drive_id":"skerry_scratch","path_on_host":"/skerry_scratch",
"rate_limiter":{"bandwidth":{"size":1500,"refill_time":1000}}}
PATCH /network-interfaces/eth0
{"iface_id":"eth0",
"tx_rate_limiter":{"bandwidth":{"size":125000,"refill_time":1000}}}
PATCH /vm
{"state":"Resumed"}`

// TestTemplateIsMade boots a machine with nothing of the task's in it, waits for its init, and makes it the task's afterwards.
func TestTemplateIsMade(t *testing.T) {
	hypervisor, api, machine := told(t)
	machine.Template = &template{Dir: t.TempDir(), New: true, NIC: true}
	for _, name := range []string{templateMemory, templateState} {
		if err := os.WriteFile(filepath.Join(machine.Template.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hypervisor.called})
	if err != nil {
		t.Fatal(err)
	}
	hypervisor.caller = &caller{l: listener}
	init, err := net.Dial("unix", hypervisor.called)
	if err != nil {
		t.Fatal(err)
	}
	defer init.Close()
	if err := wire.Write(init, wire.Frame{Kind: wire.KindHello, Data: []byte{wire.Version}}); err != nil {
		t.Fatal(err)
	}
	if err := hypervisor.tell(machine, make(chan struct{})); err != nil {
		t.Fatal(err)
	}
	want := `PUT /machine-config
{"mem_size_mib":160,"vcpu_count":2}
PUT /boot-source
{"boot_args":"quiet","initrd_path":"/initrd","kernel_image_path":"/kernel"}
PUT /balloon
{"amount_mib":0,"deflate_on_oom":true,"free_page_reporting":true,"stats_polling_interval_s":0}
PUT /drives/skerry_root
{"cache_type":"Writeback","drive_id":"skerry_root","is_read_only":true,"is_root_device":false,"path_on_host":"/blank"}
PUT /drives/skerry_scratch
{"cache_type":"Writeback","drive_id":"skerry_scratch","is_read_only":false,"is_root_device":false,"path_on_host":"/blank"}
PUT /network-interfaces/eth0
{"host_dev_name":"vm0","iface_id":"eth0"}
PUT /vsock
{"guest_cid":3,"uds_path":"/vsock"}
PUT /actions
{"action_type":"InstanceStart"}
PATCH /vm
{"state":"Paused"}
PUT /snapshot/create
{"mem_file_path":"/memory","snapshot_path":"/state","snapshot_type":"Diff"}` + becomes
	if got := strings.ReplaceAll(api.heard(), `"Full"`, `"Diff"`); got != want { // as there is swap here
		t.Errorf("it was told\n%s", got)
	}
	if _, err := io.ReadAll(init); err != nil {
		t.Errorf("the first call is not hung up: %v", err)
	}
	if outcome, err := os.ReadFile(filepath.Join(machine.Template.Dir, templateOutcome)); err != nil || len(outcome) > 0 {
		t.Errorf("the outcome is %q, %v", outcome, err)
	}
	for _, name := range []string{templateMemory, templateState} { // a machine's user could read them, and not write
		if st, err := os.Stat(filepath.Join(machine.Template.Dir, name)); err != nil || st.Mode().Perm() != 0o644 {
			t.Errorf("%s is %v, %v", name, st.Mode(), err)
		}
	}
	// The guest calls again, and is served.
	again, err := net.Dial("unix", hypervisor.called)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	go func() { _, _ = io.WriteString(again, "hello") }()
	b := make([]byte, 5)
	if _, err := io.ReadFull(hypervisor.caller, b); err != nil || string(b) != "hello" {
		t.Errorf("it says %q, %v", b, err)
	}
}

// TestTemplateIsNotMade has a machine go on of which there can be none, and end where it does not boot.
func TestTemplateIsNotMade(t *testing.T) {
	hypervisor, api, machine := told(t)
	machine.Template = &template{Dir: filepath.Join(t.TempDir(), "gone"), New: true, NIC: true}
	if err := machine.Template.seal(nil); err == nil {
		t.Error("the outcome was written to where nothing is")
	}
	if err := os.Mkdir(machine.Template.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := machine.Template.seal(errors.New("no space")); err != nil {
		t.Fatal(err)
	}
	if outcome, _ := os.ReadFile(filepath.Join(machine.Template.Dir, templateOutcome)); string(outcome) != "no space" {
		t.Errorf("the outcome is %q", outcome)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hypervisor.called})
	if err != nil {
		t.Fatal(err)
	}
	hypervisor.caller = &caller{l: l}
	ended := make(chan struct{})
	time.AfterFunc(0, func() {
		for !strings.Contains(api.heard(), "InstanceStart") {
			time.Sleep(time.Millisecond)
		}
		close(ended)
	})
	if err := hypervisor.tell(machine, ended); err == nil || !strings.Contains(err.Error(), "its guest did not call") {
		t.Errorf("got %v", err)
	}
}

// TestTemplateIsLoaded has a machine begin with a template.
func TestTemplateIsLoaded(t *testing.T) {
	f, s, m := told(t)
	m.Template = &template{Dir: t.TempDir(), NIC: true}
	if err := f.tell(m, make(chan struct{})); err != nil {
		t.Fatal(err)
	}
	want := `PUT /snapshot/load
{"mem_backend":{"backend_path":"/memory","backend_type":"File"},"snapshot_path":"/state"}` + becomes
	if got := s.heard(); got != want {
		t.Errorf("it was told\n%s", got)
	}
}

// leave makes what a machine leaves that makes a template.
func leave(t *testing.T, u *template, outcome string) {
	t.Helper()
	for name, text := range map[string]string{templateMemory: "memory", templateState: "state", templateOutcome: outcome} {
		if err := os.WriteFile(filepath.Join(u.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTemplates are found by their shape, made once, and given up when they fail.
func TestTemplates(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	ts := newTemplates(dir, slog.New(slog.NewTextHandler(&log, nil)))
	with := &choice{firecracker: &firecrackerProgram{Path: "/opt/firecracker", Version: "1.16.1"}, kernel: kernel{Digest: "k"}}
	small, large := &setup{RAM: int64(skerry.MiB), CPUs: 1}, &setup{RAM: 2 * int64(skerry.MiB), CPUs: 1}
	if u := ts.find(&choice{}, small, true, true); u != nil {
		t.Errorf("a machine of QEMU's has %+v", u)
	}
	older := *with
	older.firecracker = &firecrackerProgram{Path: "/opt/firecracker", Version: "1.16.0"}
	if u := ts.find(&older, small, true, true); u != nil {
		t.Errorf("an older release has %+v", u)
	}
	if u := ts.find(with, small, true, false); u != nil {
		t.Errorf("one that may not leave any has %+v", u)
	}
	first := ts.find(with, small, true, true)
	if first == nil || !first.New || !first.NIC {
		t.Fatalf("the first has %+v", first)
	}
	if u := ts.find(with, small, true, true); u != nil {
		t.Errorf("a second one, meanwhile, has %+v", u)
	}
	leave(t, first, "")
	ts.done(first, nil)
	again := ts.find(with, small, true, false)
	if again == nil || again.New {
		t.Fatalf("the next has %+v", again)
	}
	if entries, _ := os.ReadDir(again.Dir); len(entries) != 2 {
		t.Errorf("it is made of %v", entries)
	}
	for what, u := range map[string]*template{"memory": ts.find(with, large, true, true), "a network": ts.find(with, small, false, true)} {
		if u == nil || !u.New || u.Dir == again.Dir {
			t.Errorf("one with other %s has %+v", what, u)
		}
		ts.done(u, errors.New("args[0]: no such file")) // a fault of the task's
	}
	if u := ts.find(with, large, true, true); u == nil || !u.New {
		t.Errorf("the next of them has %+v", u)
	} else {
		leave(t, u, "no \x1b[2Jspace")
		ts.done(u, nil)
	}
	if u := ts.find(with, large, true, true); u != nil {
		t.Errorf("it is tried again: %+v", u)
	}
	// Another kernel's is not used, and those of this one go: what booted with it does not boot any more.
	other := *with
	other.kernel.Digest = "l"
	if u := ts.find(&other, small, true, true); u == nil || !u.New {
		t.Errorf("another kernel has %+v", u)
	}
	if _, err := os.Stat(again.Dir); err == nil {
		t.Error("the former kernel's is kept")
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "no [2Jspace") {
		t.Errorf("the log says\n%s", text)
	}
	// What a crash leaves goes, and what is there is found.
	if left, _ := filepath.Glob(filepath.Join(dir, making+"*")); len(left) != 1 {
		t.Errorf("being made: %v", left)
	}
	newTemplates(dir, nil)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestShapes differ by each part of a machine and by what it relies on, in the sizes that these have.
func TestShapes(t *testing.T) {
	program := filepath.Join(t.TempDir(), "firecracker")
	write := func(size int, changed time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(program, make([]byte, size), 0o755), os.Chtimes(program, changed, changed)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(3<<20, now)
	c := &choice{firecracker: &firecrackerProgram{Path: program, Version: "1.16.1"}, kernel: kernel{Digest: "k"}}
	shapes := map[string]string{}
	shape := func(what string, s setup, nic bool) {
		t.Helper()
		host, parts := c.shape(&s, nic)
		if other, ok := shapes[host+parts]; ok {
			t.Errorf("%s has the shape of %s", what, other)
		}
		shapes[host+parts] = what
	}
	disk := setup{RAM: 608 << 20, CPUs: 1}
	disk.Guest.Scratch = true
	shape("608 MiB", setup{RAM: 608 << 20, CPUs: 1}, false)
	shape("609 MiB", setup{RAM: 609 << 20, CPUs: 1}, false)
	shape("4 GiB", setup{RAM: 4 << 30, CPUs: 1}, false)
	shape("two processors", setup{RAM: 608 << 20, CPUs: 2}, false)
	shape("a network card", setup{RAM: 608 << 20, CPUs: 1}, true)
	shape("a disk", disk, false)
	shape("another initrd", setup{RAM: 608 << 20, CPUs: 1, Initrd: "/kernel/other.cpio"}, false)
	write(4<<20, now)
	shape("a Firecracker of another size", setup{RAM: 608 << 20, CPUs: 1}, false)
	write(4<<20, now.Add(-time.Hour))
	shape("a Firecracker of another time", setup{RAM: 608 << 20, CPUs: 1}, false)
}

// TestTemplateIsGivenUp boots a machine that did not start with a template: that is said once, and the template is gone.
func TestTemplateIsGivenUp(t *testing.T) {
	var log bytes.Buffer
	ts := newTemplates(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	c := &choice{firecracker: &firecrackerProgram{Path: "/opt/firecracker", Version: "1.17.0-dev"}, kernel: kernel{Digest: "k"}}
	s := &setup{RAM: int64(skerry.MiB), CPUs: 1}
	u := ts.find(c, s, false, true)
	leave(t, u, "")
	ts.done(u, nil)
	for range 2 { // two that used it at once
		ts.drop(&template{Dir: filepath.Join(ts.dir, u.name())}, errors.New("bad checksum"))
	}
	if u := ts.find(c, s, false, true); u != nil {
		t.Errorf("the next has %+v", u)
	}
	if left, _ := os.ReadDir(ts.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "bad checksum") {
		t.Errorf("the log says\n%s", text)
	}
	// What was at fault may be mended.
	if left := time.Until(ts.unfit[u.name()]); left <= 0 || left > refusal {
		t.Errorf("it is refused for %s", left)
	}
	ts.unfit[u.name()] = time.Now().Add(-time.Second)
	if next := ts.find(c, s, false, true); next == nil || !next.New {
		t.Errorf("later, the next has %+v", next)
	}
	ts.drop(u, errors.New("bad checksum"))
	if text := log.String(); strings.Count(text, "\n") != 2 {
		t.Errorf("the log says of a second time\n%s", text)
	}
}

// TestTemplatesAreRemoved when a worker leaves its machine, and when it runs machines on something else.
func TestTemplatesAreRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		monitor string
		leaves  bool
		kept    bool
	}{
		"a worker that stays":          {MonitorAuto, false, true},
		"one that leaves":              {MonitorFirecracker, true, false},
		"one that does not use it now": {MonitorQEMU, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			left := filepath.Join(dir, "templates", "host-shape")
			if err := os.MkdirAll(left, 0o700); err != nil {
				t.Fatal(err)
			}
			d, err := New(Options{Dir: dir, Command: []string{"/bin/true"}, CgroupParent: runtimetest.CgroupParent(), Monitor: c.monitor})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if c.leaves {
				if err := d.CleanUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := os.Stat(left); (err == nil) != c.kept {
				t.Errorf("the template is there: %v", err)
			}
		})
	}
}

// TestFaultsOfTemplates: only what nobody asked for is tried again without one.
func TestFaultsOfTemplates(t *testing.T) {
	task := runtime.Spec{Args: []string{"/server"}}
	for said, may := range map[string]bool{
		"set up the machine: /snapshot/load: the checksum does not match": true,
		"the guest said nothing for 1m0s":                                 true,
		"vm-run ended without a word":                                     true,
		"args[0]: /server: no such file or directory":                     false,
		"network: another machine has the instance's network":             false,
		"mounts[0].target: file exists":                                   false,
	} {
		if got := mayBeTemplate(explain(task, &monitor.CreateError{Message: said})); got != may {
			t.Errorf("after %q it is tried without a template: %v", said, got)
		}
	}
	for said, still := range map[string]bool{
		"set up the machine: " + notListening + ": dial unix jail/firecracker/m/root/run/firecracker.socket: no such file": true,
		foundNoClock: true,
		"set up the machine: /snapshot/load: the checksum does not match": false,
	} {
		if got := hostStoodStill(explain(task, &monitor.CreateError{Message: said})); got != still {
			t.Errorf("after %q it is tried with the template again: %v", said, got)
		}
	}
	if !mayBeTemplate(errors.New("conmon ended")) {
		t.Error("an error without a field is the task's")
	}
}

// TestTemplatesAreBounded drops the longest unused of those that are too much together.
func TestTemplatesAreBounded(t *testing.T) {
	ts := newTemplates(t.TempDir(), nil)
	for i, age := range []time.Duration{time.Hour, 3 * time.Hour, 2 * time.Hour} {
		dir := filepath.Join(ts.dir, fmt.Sprint("host-", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, templateMemory), bytes.Repeat([]byte{1}, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		used := time.Now().Add(-age)
		if err := os.Chtimes(dir, used, used); err != nil {
			t.Fatal(err)
		}
	}
	ts.mu.Lock()
	ts.space = 5 << 19 // two and a half
	ts.cutLocked("host", "host-1")
	ts.mu.Unlock()
	left, _ := filepath.Glob(filepath.Join(ts.dir, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "host-0" || filepath.Base(left[1]) != "host-1" {
		t.Errorf("left: %v", left)
	}
}

// TestTemplateIsTooLarge keeps none that is larger than all may be, and has none made that would be.
func TestTemplateIsTooLarge(t *testing.T) {
	var log bytes.Buffer
	ts := newTemplates(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	ts.space = skerry.MiB
	c := &choice{firecracker: &firecrackerProgram{Path: "/opt/firecracker", Version: "1.16.1"}, kernel: kernel{Digest: "k"}}
	s := &setup{RAM: 2 * int64(skerry.MiB), CPUs: 1}
	ts.swaps = func() bool { return true } // all of the memory would be saved
	if u := ts.find(c, s, false, true); u != nil {
		t.Errorf("with swap it has %+v", u)
	}
	ts.swaps = func() bool { return false }
	u := ts.find(c, s, false, true)
	if u == nil {
		t.Fatal("without swap it has none")
	}
	leave(t, u, "")
	if err := os.WriteFile(filepath.Join(u.Dir, templateMemory), bytes.Repeat([]byte{1}, 3<<19), 0o600); err != nil {
		t.Fatal(err)
	}
	ts.done(u, nil)
	left, _ := os.ReadDir(ts.dir)
	if len(left) > 0 || ts.find(c, s, false, true) != nil || !strings.Contains(log.String(), "it takes 1536Ki") {
		t.Errorf("left: %v\n%s", left, log.String())
	}
}
