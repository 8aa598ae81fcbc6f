//go:build linux && amd64

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
)

// clones starts machines of Firecracker's that have one shape.
type clones struct {
	t      *testing.T
	d      *Driver
	dir    string
	log    bytes.Buffer
	image  string
	secret string // a file of every machine's
}

// newClones needs a KVM that runs Linux.
func newClones(t *testing.T) *clones {
	t.Helper()
	if p := installedFirecracker(t); !p.clones() {
		t.Skip(&testenv.Unsupported{What: "a machine that begins with a template", Why: "Firecracker is older than 1.16.1"})
	}
	c := &clones{t: t, dir: t.TempDir(), image: echoImage(t), secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(c.secret, []byte("password-in-a-file"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := options(c.dir)
	o.Kernel, o.Monitor, o.Emulate, o.BootTimeout = testenv.GuestKernel(t), MonitorFirecracker, false, 5*time.Minute
	o.Log = slog.New(slog.NewTextHandler(&c.log, nil))
	var err error
	if c.d, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.d.Close() })
	if r := c.d.Check(t.Context()); !r.Passed {
		if strings.HasPrefix(r.Cause, "no working KVM") {
			t.Skip(&testenv.Unsupported{What: "a Linux guest of Firecracker", Why: r.Cause})
		}
		t.Fatalf("the machine answered %+v", r)
	}
	return c
}

// clone is a running machine, what its program found, and where it is reached from.
type clone struct {
	h             runtime.Handle
	began, spoken time.Time
	facts         map[string]string
	mac           net.HardwareAddr // of the interface of its instance
	template      *template
}

// start starts one with a number, and sees that its program answers at its addresses.
func (c *clones) start(last int) *clone {
	c.t.Helper()
	outer, inner, attachment := cableTo(c.t, last)
	machine := &clone{began: time.Now()}
	inside(c.t, inner, func() error {
		eth, err := netlink.LinkByName("eth0")
		if err == nil {
			machine.mac = eth.Attrs().HardwareAddr
		}
		return err
	})
	var err error
	machine.h, err = c.d.Start(c.t.Context(), runtime.Spec{
		ID: runtime.TaskID(fmt.Sprint("clone.main.", last)), RootFS: []runtime.Mount{{Type: "bind", Source: c.image}},
		Args: []string{"/echo", "facts"}, Env: []string{"PASSWORD=password-in-a-variable"}, Hostname: fmt.Sprint("machine-", last),
		Network:   attachment,
		Mounts:    []runtime.Mount{{Type: "bind", Source: c.secret, Target: "/secret", ReadOnly: true}},
		Resources: runtime.Resources{Memory: 128 * skerry.MiB},
	})
	if err != nil {
		c.t.Fatalf("%v\n%s", err, c.log.String())
	}
	c.t.Cleanup(func() {
		if err := c.d.Remove(context.WithoutCancel(c.t.Context()), machine.h); err != nil {
			c.t.Error(err)
		}
	})
	stream, err := c.d.OpenLog(c.t.Context(), machine.h, runtime.LogOptions{Follow: true})
	if err != nil {
		c.t.Fatal(err)
	}
	defer stream.Close()
	e, err := stream.Next()
	if err != nil || json.Unmarshal([]byte(e.Line), &machine.facts) != nil {
		c.t.Fatalf("%+v, %v", e, err)
	}
	machine.spoken = time.Now()
	if e, err := stream.Next(); err != nil || e.Line != "listening" {
		c.t.Fatalf("%+v, %v", e, err)
	}
	for _, to := range []string{fmt.Sprintf("192.0.2.%d:80", last), fmt.Sprintf("[fd00:5::%d]:80", last)} {
		inside(c.t, outer, func() error { return echo("", to) })
	}
	task, err := c.d.base.Tasks.Get(machine.h)
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := readSetup(task.Path())
	if err != nil {
		c.t.Fatal(err)
	}
	machine.template = s.Template
	c.t.Logf("%d: %v, template %+v", last, machine.facts, machine.template)
	return machine
}

// kept gives the directories of the templates that are there.
func (c *clones) kept() []string {
	dirs, _ := filepath.Glob(filepath.Join(c.dir, "templates", "*"))
	return dirs
}

// TestClonesOfFirecracker starts machines with a template that the first one left. They share nothing that is to be their own, the template
// has nothing of the first, and the host has back what they free.
func TestClonesOfFirecracker(t *testing.T) {
	set := newClones(t)
	first := set.start(7)
	if first.template == nil || !first.template.New || len(set.kept()) != 1 {
		t.Fatalf("the first has the template %+v; there are %v\n%s", first.template, set.kept(), set.log.String())
	}
	set.holdsNothingOf(first)
	machines := []*clone{first}
	for n := 8; n < 10; n++ {
		m := set.start(n)
		if m.template == nil || m.template.New {
			t.Errorf("%d has booted: %+v\n%s", n, m.template, set.log.String())
		}
		machines = append(machines, m)
	}
	seen := map[string]bool{}
	for i, machine := range machines {
		last := 7 + i
		for _, own := range []string{"random", "urandom", "boot", "mac", "addresses"} {
			if seen[machine.facts[own]] || machine.facts[own] == "" {
				t.Errorf("%d has the %s of another, or none: %q", last, own, machine.facts[own])
			}
			seen[machine.facts[own]] = true
		}
		// What was read before it began is earlier than what it read, if its clock is right.
		nanos, _ := strconv.ParseInt(machine.facts["time"], 10, 64)
		if said := time.Unix(0, nanos); said.Before(machine.began) || said.After(machine.spoken) {
			t.Errorf("%d has it %s, between %s and %s", last, said, machine.began, machine.spoken)
		}
		if machine.facts["host"] != fmt.Sprint("machine-", last) || machine.facts["mac"] != machine.mac.String() ||
			!strings.Contains(machine.facts["addresses"], fmt.Sprintf("192.0.2.%d/24", last)) {
			t.Errorf("%d is %v, with the link address %s", last, machine.facts, machine.mac)
		}
		var out bytes.Buffer
		hold := runtime.ExecSpec{Args: []string{"/echo", "hold", "1"}, Stdin: strings.NewReader(""), Stdout: &out}
		code, err := set.d.Exec(t.Context(), machine.h, hold)
		if err != nil || code != 0 || !strings.HasPrefix(out.String(), "held") {
			t.Errorf("exec in %d: %d, %q, %v", last, code, out.String(), err)
		}
		if st, err := set.d.Stats(t.Context(), machine.h); err != nil || st.Memory == 0 || st.MemoryLimit != 128*skerry.MiB {
			t.Errorf("the figures of %d are %+v, %v", last, st, err)
		}
	}
	for _, machine := range machines[:2] { // one that has booted, and one that has not
		set.getsMemoryBack(machine)
	}
	set.survivesDamage()
}

// holdsNothingOf looks for what a task has to itself in the templates.
func (c *clones) holdsNothingOf(m *clone) {
	c.t.Helper()
	for _, file := range []string{templateMemory, templateState} {
		path := filepath.Join(c.kept()[0], file)
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			c.t.Fatalf("%s: %d bytes, %v", path, len(data), err)
		}
		for _, own := range []string{"password-in-a-file", "password-in-a-variable", "PASSWORD=", "machine-7", m.facts["boot"], m.facts["random"],
			string(m.mac), m.mac.String()} {
			if at := bytes.Index(data, []byte(own)); at >= 0 {
				c.t.Errorf("%s of the template has %q at %d", file, own, at)
			}
		}
		if file == templateMemory && !bytes.Contains(data, []byte("this is the first process of a virtual machine")) {
			c.t.Error("the template's memory does not hold its init")
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
			c.t.Errorf("%s is %v, %v", file, st.Mode(), err)
		}
	}
	if st, err := os.Stat(c.kept()[0]); err != nil || st.Mode().Perm() != 0o700 {
		c.t.Errorf("others can read the template: %v, %v", st.Mode(), err)
	}
}

// survivesDamage boots a machine where the template is damaged, and says so once.
func (c *clones) survivesDamage() {
	c.t.Helper()
	kept := c.kept()
	if len(kept) != 1 {
		c.t.Fatalf("there are the templates %v\n%s", kept, c.log.String())
	}
	state := filepath.Join(kept[0], templateState)
	data, err := os.ReadFile(state)
	if err == nil {
		data[len(data)/2] ^= 1
		err = os.WriteFile(state, data, 0o644)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if m := c.start(10); m.template != nil {
		c.t.Errorf("it has the template %+v", m.template)
	}
	if text := c.log.String(); strings.Count(text, "cannot begin with a template") != 1 {
		c.t.Errorf("the log says\n%s", text)
	}
	if left := c.kept(); len(left) > 0 {
		c.t.Errorf("left: %v", left)
	}
}

// getsMemoryBack has a guest free memory, which the host then has again: nobody asks the guest for it.
func (c *clones) getsMemoryBack(machine *clone) {
	c.t.Helper()
	held, out := io.Pipe()
	in, release := io.Pipe()
	done := make(chan error, 1)
	go func() {
		hold := runtime.ExecSpec{Args: []string{"/echo", "hold", "96"}, Stdin: in, Stdout: out}
		_, err := c.d.Exec(c.t.Context(), machine.h, hold)
		out.Close()
		done <- err
	}()
	line := make([]byte, len("held"))
	if _, err := io.ReadFull(held, line); err != nil {
		c.t.Fatal(err, <-done)
	}
	before := c.resident(machine)
	go func() { _, _ = io.Copy(io.Discard, held) }()
	release.Close()
	if err := <-done; err != nil {
		c.t.Fatal(err)
	}
	const least = 64 * skerry.MiB
	for deadline := time.Now().Add(10 * time.Minute); c.resident(machine) > before-least; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s had %s, and has %s", machine.h.ID, before, c.resident(machine))
		}
	}
	c.t.Logf("%s: it had %s, and has %s", machine.h.ID, before, c.resident(machine))
}

// resident is what of the host's memory a machine has to itself.
func (c *clones) resident(m *clone) (sum skerry.Bytes) {
	c.t.Helper()
	task, err := c.d.base.Tasks.Get(m.h)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, pid := range task.Group().Procs() {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if !strings.HasPrefix(string(status), "Name:\tfirecracker\n") {
			continue
		}
		_, text, _ := strings.Cut(string(status), "\nRssAnon:")
		text, _, _ = strings.Cut(strings.TrimSpace(text), " ")
		kib, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			c.t.Fatalf("%s\n%v", status, err)
		}
		sum += skerry.Bytes(kib) * skerry.KiB
	}
	return sum
}
