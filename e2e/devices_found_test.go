//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	finder "skerry.dev/skerry/internal/devices"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// TestFoundDevices gives instances what their worker finds, where a rule offers it, and what its operator lists by hand. /dev/zero and
// /dev/full stand for hardware. The one is where the manifest says, a variable tells where the other is, and a device with shares is
// several instances'. After a device was plugged in elsewhere it is the same one, also while no agent ran; and a restart of the agent frees
// nothing.
func TestFoundDevices(t *testing.T) {
	dir := t.TempDir()
	dev, sys, file := filepath.Join(dir, "dev"), filepath.Join(dir, "sys"), filepath.Join(dir, "etc", "devices.yaml")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	node := func(path string, minor uint32) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(path, unix.S_IFCHR|0o660, int(unix.Mkdev(1, minor))); err != nil {
			t.Fatal(err)
		}
	}
	const zero, full = 5, 7
	line := uint32(zero)
	plug := func(place, vendor, tty string) {
		t.Helper()
		at := filepath.Join(sys, "devices", place)
		write(at+"/idVendor", vendor)
		write(at+"/idProduct", "6001")
		write(at+"/serial", "A50285BI")
		write(at+"/port/tty/"+tty+"/dev", fmt.Sprintf("1:%d\n", line))
		link := func(from, to string) {
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(from, to); err != nil {
				t.Fatal(err)
			}
		}
		link("../../../port", at+"/port/tty/"+tty+"/device")
		link("../../devices/"+place+"/port/tty/"+tty, filepath.Join(sys, "class", "tty", tty))
		node(filepath.Join(dev, tty), line)
	}
	unplug := func(place, tty string) {
		t.Helper()
		for _, p := range []string{filepath.Join(sys, "class", "tty", tty), filepath.Join(sys, "devices", place), filepath.Join(dev, tty)} {
			if err := os.RemoveAll(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	plug("1-1", "0403", "ttyUSB0")
	plug("1-2", "9999", "ttyUSB1")
	node(filepath.Join(dev, "press"), full)
	write(file, `devices:
- {class: press, name: p4, nodes: [`+dev+`/press], labels: {hall: "4"}, shares: 2}
- {class: camera, name: gate, address: "rtsp://10.0.0.7/stream", shares: 9}
`)
	rule, err := finder.ParseRule("serial,vendor=0403")
	if err != nil {
		t.Fatal(err)
	}
	s := (&site{t: t, attach: worker.AttachOptions{CDI: []string{dir}, Dev: dev, Sys: sys, File: file, Rules: []finder.Rule{rule}}}).open()
	s.image("test/workload:1", workload)
	with := func(name string, n int, list ...spec.DeviceRequest) spec.ServiceSpec {
		return service(name, "test/workload:1", func(x *spec.ServiceSpec) { x.Replicas, x.Args, x.Devices = &n, []string{"sleep"}, list })
	}
	plc := spec.DeviceRequest{Class: "serial", Match: map[string]string{"vendor": "0403"}, At: "/dev/plc"}
	press := spec.DeviceRequest{Class: "press"}
	plant := func(presses int, more ...spec.ServiceSpec) {
		t.Helper()
		s.do(app("plant", append(more, with("reader", 1, plc, spec.DeviceRequest{Class: "camera"}), with("press", presses, press))...))
	}
	named := func(service string) (out []wire.Instance) {
		list, err := s.Cluster.Instances(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			if i.Service.Service == service {
				out = append(out, i)
			}
		}
		return out
	}
	// waits reports whether an instance has no place, for a reason.
	waits := func(why string) func() bool {
		return func() bool {
			list, err := s.Root.Instances(context.Background())
			return err == nil && slices.ContainsFunc(list, func(i wire.Instance) bool {
				return strings.Contains(i.Reason, why) || slices.ContainsFunc(i.Why, func(r wire.Reason) bool { return strings.Contains(r.Text, why) })
			})
		}
	}
	plant(2)
	s.await("all are ready", s.ready(3))
	reader := named("reader")[0]
	const have = "serial=0403-6001-A50285BI"
	if !slices.Contains(reader.Devices, have) || !slices.Contains(reader.Devices, "camera=gate") {
		t.Errorf("the site says that it has %q, want %s and camera=gate", reader.Devices, have)
	}
	env, _ := s.insideOf(reader.ID, "env")
	for _, want := range []string{"SKERRY_DEVICE_SERIAL_0=/dev/plc", "SKERRY_DEVICE_CAMERA_0=rtsp://10.0.0.7/stream"} {
		if !slices.Contains(strings.Fields(env), want) {
			t.Errorf("its environment is %q, want %s in it", env, want)
		}
	}
	if out, code := s.insideOf(reader.ID, "write", "/dev/plc", "x"); code != 0 {
		t.Errorf("it cannot write to its device: %s", out)
	}
	for _, i := range named("press") { // /dev/full takes nothing, which shows that it is that
		if out, code := s.insideOf(i.ID, "write", "/dev/press", "x"); code == 0 || !strings.Contains(out, "no space") {
			t.Errorf("it writes to the shared device: %q, want no space", out)
		}
	}
	above, err := s.Root.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range above {
		if len(i.Devices) > 0 {
			t.Errorf("the root knows devices: %q", i.Devices)
		}
	}
	plant(3)
	s.await("the third press waits", waits("lacks a device"))
	plant(2)
	s.await("three are ready again", s.ready(3))

	unplug("1-1", "ttyUSB0")
	s.await("the reader is told that its device is gone", func() bool {
		events := false
		for _, i := range named("reader") {
			events = events || slices.ContainsFunc(i.Timeline, func(st wire.Step) bool { return strings.Contains(st.Text, have+" is gone") })
		}
		return events || waits("lacks a device")()
	})
	above, err = s.Root.Instances(t.Context())
	if text := fmt.Sprintf("%+v", above); err != nil || strings.Contains(text, "A50285BI") {
		t.Errorf("the root is told the serial number of a device (%v): %s", err, text)
	}
	plug("1-3", "0403", "ttyUSB7")
	s.await("it is plugged in elsewhere", func() bool {
		list := named("reader")
		return len(list) == 1 && list[0].State == skerry.Running && slices.Contains(list[0].Devices, have) && s.ready(3)()
	})

	s.stopAgent()
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	s.startWorker("")
	plant(2, with("second", 1, spec.DeviceRequest{Class: "serial"}))
	s.await("another service asks for what the reader has", waits("lacks a device"))
	if got := named("reader"); len(got) != 1 || got[0].State != skerry.Running {
		t.Errorf("after a restart of the agent the reader is %+v, want it running", got)
	}
	plant(2)
	s.await("nobody else asks for it", func() bool { return len(named("second")) == 0 })

	s.stopAgent()
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	unplug("1-3", "ttyUSB7")
	line = full
	plug("1-4", "0403", "ttyUSB7") // the node has its path, and is another one
	s.startWorker("")
	s.await("the reader has the node of now", func() bool {
		list := named("reader")
		if len(list) != 1 || list[0].State != skerry.Running {
			return false
		}
		out, code, err := s.tryInside(list[0].ID, "write", "/dev/plc", "x") // the one with the other node may not have ended yet
		return err == nil && code != 0 && strings.Contains(out, "no space")
	})
}
