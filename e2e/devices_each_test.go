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
	"skerry.dev/skerry/decide/apps"
	finder "skerry.dev/skerry/internal/devices"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// TestPerDevice runs an instance for each serial adapter that the worker finds, in containers. /dev/zero and /dev/full stand for the
// hardware behind two of them. One that is plugged in gets an instance, one that is pulled out ends its own and no other, and each has the
// device of before after a restart of the instance and of the agent.
func TestPerDevice(t *testing.T) {
	dir := t.TempDir()
	dev, sys := filepath.Join(dir, "dev"), filepath.Join(dir, "sys")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	plug := func(place, serial, tty string, minor uint32) {
		t.Helper()
		at := filepath.Join(sys, "devices", place)
		for path, text := range map[string]string{"idVendor": "0403", "idProduct": "6001", "serial": serial,
			"port/tty/" + tty + "/dev": fmt.Sprintf("1:%d\n", minor)} {
			must(os.MkdirAll(filepath.Dir(filepath.Join(at, path)), 0o755))
			must(os.WriteFile(filepath.Join(at, path), []byte(text), 0o644))
		}
		must(os.MkdirAll(filepath.Join(sys, "class", "tty"), 0o755))
		must(os.MkdirAll(dev, 0o755))
		must(os.Symlink("../../../port", at+"/port/tty/"+tty+"/device"))
		must(unix.Mknod(filepath.Join(dev, tty), unix.S_IFCHR|0o660, int(unix.Mkdev(1, minor))))
		must(os.Symlink("../../devices/"+place+"/port/tty/"+tty, filepath.Join(sys, "class", "tty", tty)))
	}
	unplug := func(place, tty string) {
		t.Helper()
		for _, p := range []string{filepath.Join(sys, "class", "tty", tty), filepath.Join(sys, "devices", place), filepath.Join(dev, tty)} {
			must(os.RemoveAll(p))
		}
	}
	const zero, full = 5, 7
	plug("1-1", "AAA", "ttyUSB0", zero)
	plug("1-2", "BBB", "ttyUSB1", full)
	rule, err := finder.ParseRule("serial,vendor=0403")
	must(err)
	plant := (&site{t: t, attach: worker.AttachOptions{CDI: []string{dir}, Dev: dev, Sys: sys, Rules: []finder.Rule{rule}}}).open()
	plant.image("test/workload:1", workload)
	plant.do(app("plant", service("line", "test/workload:1", func(x *spec.ServiceSpec) {
		x.Mode, x.Replicas, x.Args = spec.ModePerDevice, nil, []string{"sleep"}
		x.Devices = []spec.DeviceRequest{{Class: "serial", At: "/dev/line"}}
	})))
	// has gives the instances at the site, by the serial number of their device.
	has := func() map[string]wire.Instance {
		list, err := plant.Cluster.Instances(context.Background())
		must(err)
		out := map[string]wire.Instance{}
		for _, i := range list {
			if skerry.HasCondition(i.Conditions, skerry.Ready) && len(i.Devices) == 1 {
				out[strings.TrimPrefix(i.Devices[0], "serial=0403-6001-")] = i
			}
		}
		return out
	}
	await := func(what string, serials ...string) map[string]wire.Instance {
		t.Helper()
		plant.await(what, func() bool {
			now := has()
			return len(now) == len(serials) && !slices.ContainsFunc(serials, func(n string) bool { _, ok := now[n]; return !ok })
		})
		return has()
	}
	first := await("both have an instance", "AAA", "BBB")
	// leads checks which node an instance has: /dev/full takes nothing.
	leads := func(what string, i wire.Instance, toFull bool) {
		t.Helper()
		out, code := plant.insideOf(i.ID, "write", "/dev/line", "x")
		if got := code != 0 && strings.Contains(out, "no space"); got != toFull {
			t.Errorf("%s: %s has the device that takes nothing: %v (%q), want %v", what, i.ID, got, out, toFull)
		}
		if env, _ := plant.insideOf(i.ID, "env"); !slices.Contains(strings.Fields(env), "SKERRY_DEVICE_SERIAL_0=/dev/line") {
			t.Errorf("%s: the environment of %s is %q, want SKERRY_DEVICE_SERIAL_0=/dev/line in it", what, i.ID, env)
		}
	}
	leads("at first", first["AAA"], false)
	leads("at first", first["BBB"], true)

	plug("1-3", "CCC", "ttyUSB2", zero)
	await("a third is plugged in", "AAA", "BBB", "CCC")
	unplug("1-1", "ttyUSB0")
	left := await("the first is pulled out", "BBB", "CCC")
	if left["BBB"].ID != first["BBB"].ID || left["BBB"].Restarts != 0 || !left["BBB"].StartedAt.Equal(first["BBB"].StartedAt) {
		t.Errorf("the instance of another device is %+v, want it untouched: %+v", left["BBB"], first["BBB"])
	}
	plug("1-4", "AAA", "ttyUSB7", zero)
	if back := await("it is plugged in elsewhere", "AAA", "BBB", "CCC"); back["AAA"].ID != first["AAA"].ID {
		t.Errorf("the first device has instance %s, want %s as before", back["AAA"].ID, first["AAA"].ID)
	}

	plant.stopAgent()
	must(plant.Worker.Close())
	plant.startWorker("")
	again := await("the agent was restarted", "AAA", "BBB", "CCC")
	if again["BBB"].ID != first["BBB"].ID || !again["BBB"].StartedAt.Equal(first["BBB"].StartedAt) {
		t.Errorf("after a restart of the agent the instance is %+v, want it untouched: %+v", again["BBB"], first["BBB"])
	}
	leads("the agent was restarted", again["AAA"], false)
	leads("the agent was restarted", again["BBB"], true)
	plant.do(apps.Restart{Service: skerry.ServiceKey{App: again["BBB"].Service.App, Service: "line"}})
	plant.await("the instances were restarted", func() bool {
		now := has()
		for _, n := range []string{"AAA", "BBB", "CCC"} {
			if i, ok := now[n]; !ok || i.StartedAt.Equal(again[n].StartedAt) {
				return false
			}
		}
		return len(now) == 3
	})
	leads("the instances were restarted", has()["AAA"], false)
	leads("the instances were restarted", has()["BBB"], true)
}
