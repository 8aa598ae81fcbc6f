//go:build linux && amd64

package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/wire"
)

func applianceOptions(dir string) Options {
	o := options(dir)
	o.Enabled = true
	return o
}

// appliances is a driver of appliances with an image.
type appliances struct {
	*testing.T
	d     *Appliances
	image string
	next  int
}

func (a *appliances) spec(args ...string) runtime.Spec {
	a.next++
	return runtime.Spec{ID: runtime.TaskID(fmt.Sprintf("appliance.main.%d", a.next)), Instance: "appliance-1", Args: args,
		RootFS: []runtime.Mount{runtime.Overlay(a.image)}, Resources: runtime.Resources{Memory: 16 * skerry.MiB}}
}

func (a *appliances) start(sp runtime.Spec) runtime.Handle {
	a.Helper()
	h, err := a.d.Start(a.Context(), sp)
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() {
		if err := a.d.Remove(context.Background(), h); err != nil {
			a.Error(err)
		}
	})
	return h
}

// says waits for a line of the console.
func (a *appliances) says(h runtime.Handle, line string) {
	a.Helper()
	log, err := a.d.OpenLog(a.Context(), h, runtime.LogOptions{Follow: true})
	if err != nil {
		a.Fatal(err)
	}
	defer log.Close()
	for {
		e, err := log.Next()
		if err != nil {
			a.Fatalf("it never said %q: %v", line, err)
		}
		if e.Line == line {
			return
		}
	}
}

func (a *appliances) exit(h runtime.Handle) runtime.Exit {
	a.Helper()
	e, err := a.d.Wait(a.Context(), h)
	if err != nil {
		a.Fatal(err)
	}
	return e
}

func unikernels(t *testing.T) *appliances {
	t.Helper()
	kernel := testenv.Unikernel(t, "../..")
	d, err := NewUnikernels(applianceOptions(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	r := d.Check(t.Context())
	if !r.Passed || r.Took <= 0 || len(r.Abilities) == 0 {
		t.Fatalf("%+v", r)
	}
	t.Log(r.Version, r.Cause)
	return &appliances{T: t, d: d, image: filepath.Dir(kernel)}
}

// TestUnikernel runs the one of examples/unikernel.
func TestUnikernel(t *testing.T) {
	a := unikernels(t)
	t.Run("life", func(t *testing.T) { a.on(t).life() })
	t.Run("deaths", func(t *testing.T) { a.on(t).deaths() })
	t.Run("refusals", func(t *testing.T) { a.on(t).refusals() })
	t.Run("network", func(t *testing.T) { a.on(t).network() })
	if list, err := a.d.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	a.nothingLeft()
}

// on is a for a part of a test.
func (a *appliances) on(t *testing.T) *appliances {
	a.next += 1000
	return &appliances{T: t, d: a.d, image: a.image, next: a.next}
}

func (a *appliances) nothingLeft() {
	a.Helper()
	if left, _ := filepath.Glob(filepath.Join(a.d.opts.Dir, "tasks", "*")); len(left) > 0 {
		a.Errorf("left: %v", left)
	}
}

func (a *appliances) life() {
	t := a.T
	for want, words := range map[runtime.Exit][]string{{Code: 0}: {"status=0"}, {Code: 3}: {"status=3"}, {Code: 127}: {"status=127"}, {Code: 1}: {"reset"}} {
		sp := a.spec(append([]string{"/greeter", "$(SHORE)", "a b", "$$(x)"}, words...)...)
		sp.Env = []string{"SHORE=north"}
		h := a.start(sp)
		if e := a.exit(h); e.Code != want.Code || e.Signal != 0 || e.Lost || e.OOMKilled {
			t.Errorf("%s ended as %+v", words, e)
		}
		a.says(h, `hello: north "a b" $(x) `+words[0])
	}
	h := a.start(a.spec("greeter"))
	a.says(h, "no network")
	if st, err := a.d.Status(t.Context(), h); err != nil || st.State != runtime.StateRunning || st.PID != h.PID {
		t.Errorf("%+v, %v", st, err)
	}
	if s, err := a.d.Stats(t.Context(), h); err != nil || s.MemoryLimit != 16*skerry.MiB || s.Memory == 0 || s.CPU == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := errors.Join(a.d.Pause(t.Context(), h), a.d.Resume(t.Context(), h)); err != nil {
		t.Error(err)
	}
	again, err := NewUnikernels(a.d.opts) // as an agent that comes back
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if list, err := again.List(t.Context()); err != nil || !slices.ContainsFunc(list, func(x runtime.Handle) bool { return x.ID == h.ID }) {
		t.Errorf("it is not found again: %v, %v", list, err)
	}
	if err := again.Stop(t.Context(), h, time.Minute); err != nil {
		t.Error(err)
	}
	a.says(h, "power button")
	if e := a.exit(h); e.Code != 0 {
		t.Errorf("its power button ended it as %+v", e)
	}
	h = a.start(a.spec("greeter", "stubborn"))
	a.says(h, "no network")
	if err := a.d.Stop(t.Context(), h, 10*time.Millisecond); err != nil {
		t.Error(err)
	}
	if e := a.exit(h); e.Signal != int(syscall.SIGKILL) {
		t.Errorf("it was killed, and ended as %+v", e)
	}
	if err := a.d.Remove(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// deaths are those of what is between the agent and a machine: the task ends with either, and so does the machine.
func (a *appliances) deaths() {
	t := a.T
	for _, which := range []string{"qemu", "vm-run"} {
		h := a.start(a.spec("greeter"))
		a.says(h, "no network")
		machine, victim := firstChild(t, h.PID), h.PID
		if which == "qemu" {
			victim = machine
		}
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if e := a.exit(h); e.Signal != int(syscall.SIGKILL) {
			t.Errorf("%s was killed, and it ended as %+v", which, e)
		}
		if err := a.d.Remove(t.Context(), h); err != nil {
			t.Error(err)
		}
		if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", machine)); len(stat) > 0 && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("%s was killed, and the machine is left: %s", which, stat)
		}
	}
}

func (a *appliances) refusals() {
	t := a.T
	for _, name := range []string{"text", "secret"} {
		if err := os.WriteFile(filepath.Join(a.image, name), []byte("no kernel"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(a.image, "link")), os.Remove(filepath.Join(a.image, "secret"))); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*runtime.Spec)
		want   string
	}{
		"no such file":        {func(s *runtime.Spec) { s.Args[0] = "/secret" }, "no such file in the image"},
		"out of the image":    {func(s *runtime.Spec) { s.Args[0] = "/link" }, "no such file in the image"},
		"no kernel":           {func(s *runtime.Spec) { s.Args[0] = "/text" }, "args[0]"},
		"unknown variable":    {func(s *runtime.Spec) { s.Args = append(s.Args, "$(NONE)") }, "args[1]"},
		"a long command line": {func(s *runtime.Spec) { s.Args = append(s.Args, strings.Repeat("x", 3000)) }, "3000 bytes"},
		"user":                {func(s *runtime.Spec) { s.User = "1" }, "user"},
		"tty":                 {func(s *runtime.Spec) { s.TTY = true }, "tty"},
		"mount":               {func(s *runtime.Spec) { s.Mounts = []runtime.Mount{{Type: "tmpfs", Target: "/x"}} }, "mounts"},
		"signal":              {func(s *runtime.Spec) { s.StopSignal = syscall.SIGUSR1 }, "signals"},
		"little memory":       {func(s *runtime.Spec) { s.Resources.Memory = 2 * skerry.MiB }, "resources.memory"},
		"no namespace":        {func(s *runtime.Spec) { s.Network = &wire.Attachment{NetNS: "/no/such"} }, "network.netns"},
	} {
		sp := a.spec("/greeter")
		c.change(&sp)
		if _, err := a.d.Start(t.Context(), sp); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := a.d.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// network speaks with a unikernel that is told its address by its command line.
func (a *appliances) network() {
	t := a.T
	outer, _, attachment := cable(t)
	sp := a.spec("greeter", "ip=$(NET_IPV4)", "gateway=$(NET_IPV4_GATEWAY)", "name=ann")
	sp.Network = attachment
	h := a.start(sp)
	a.says(h, "hello: ip=192.0.2.7 gateway=192.0.2.1 name=ann")
	a.says(h, "ready")
	inside(t, outer, func() error {
		conn, err := net.Dial("udp", "192.0.2.7:7")
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 16)
		if _, err = conn.Write([]byte("ahoy")); err == nil {
			var n int
			if n, err = conn.Read(b); err == nil && string(b[:n]) != "ahoy" {
				err = fmt.Errorf("%q came back", b[:n])
			}
		}
		if err != nil {
			return err
		}
		tcp, err := net.Dial("tcp", "192.0.2.7:80")
		if err != nil {
			return err
		}
		client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return tcp, nil }}, Timeout: 20 * time.Second}
		res, err := client.Get("http://greeter/")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); string(body) != "hello from ann\n" {
			return fmt.Errorf("got %q, %w", body, err)
		}
		return nil
	})
}

// TestAppliancesOff is a worker whose operator has not allowed machines.
func TestAppliancesOff(t *testing.T) {
	o := applianceOptions(t.TempDir())
	o.Enabled = false
	d, err := NewUnikernels(o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if r := d.Check(t.Context()); r.Passed || !r.Absent || r.Cure == "" {
		t.Errorf("%+v", r)
	}
}
