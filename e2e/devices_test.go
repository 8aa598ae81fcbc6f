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
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// TestDevices gives instances devices that a vendor describes, and one by its stable name: each to one instance, which finds it in its
// container. Who comes when all are taken waits and is told why. When a device is unplugged its instance ends, and starts again when it is back.
func TestDevices(t *testing.T) {
	vendor, dev := t.TempDir(), t.TempDir()
	describe := func(names ...string) {
		t.Helper()
		var list []string
		for _, n := range names {
			list = append(list, fmt.Sprintf(`{"name": %[1]q, "annotations": {"acme.example/side": %[1]q}, "containerEdits": {
"env": ["SENSOR=%[1]s"], "deviceNodes": [{"path": "/dev/sensor", "hostPath": "/dev/zero", "permissions": "rw"}]}}`, n))
		}
		text := `{"cdiVersion": "0.6.0", "kind": "acme.example/sensor", "annotations": {"hall": "4"}, "containerEdits": {"mounts": [
{"hostPath": "/etc/os-release", "containerPath": "/etc/sensor", "options": ["ro"]}]}, "devices": [` + strings.Join(list, ",") + `]}`
		if err := os.WriteFile(filepath.Join(vendor, "acme.json.new"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(vendor, "acme.json.new"), filepath.Join(vendor, "acme.json")); err != nil {
			t.Fatal(err)
		}
	}
	const serial = "usb-ACME_PLC_7-if00"
	plug := func() {
		t.Helper()
		dir := filepath.Join(dev, "serial", "by-id")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mknod(filepath.Join(dir, serial), unix.S_IFCHR|0o660, int(unix.Mkdev(1, 5))); err != nil {
			t.Fatal(err)
		}
	}
	describe("left", "right")
	hooked := `{"cdiVersion": "0.6.0", "kind": "acme.example/hooked", "devices": [{"name": "a", "containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "/usr/bin/true"}]}}]}`
	if err := os.WriteFile(filepath.Join(vendor, "hooked.json"), []byte(hooked), 0o644); err != nil {
		t.Fatal(err)
	}
	plug()
	s := (&site{t: t, attach: worker.AttachOptions{CDI: []string{vendor}, Dev: dev}}).open()
	s.image("test/workload:1", workload)
	sensing := func(n int) {
		t.Helper()
		with := func(name string, n int, r spec.DeviceRequest) spec.ServiceSpec {
			return service(name, "test/workload:1", func(x *spec.ServiceSpec) {
				x.Replicas, x.Args, x.Devices = &n, []string{"sleep"}, []spec.DeviceRequest{r}
			})
		}
		s.do(app("plant", with("sense", n, spec.DeviceRequest{CDI: "acme.example/sensor"}), with("plc", 1, spec.DeviceRequest{Path: "/dev/serial/by-id/" + serial})))
	}
	says := func(text string) func() bool {
		return func() bool {
			for _, of := range []func(context.Context) ([]wire.Instance, error){s.Root.Instances, s.Cluster.Instances} {
				list, _ := of(context.Background())
				for _, i := range list {
					if strings.Contains(i.Reason, text) || slices.ContainsFunc(i.Why, func(r wire.Reason) bool { return strings.Contains(r.Text, text) }) {
						return true
					}
				}
			}
			return false
		}
	}
	chosen := func(side string) {
		t.Helper()
		match := map[string]string{"hall": "4", "acme.example/side": side}
		s.do(app("chosen", service("one", "test/workload:1", func(x *spec.ServiceSpec) {
			x.Args, x.Devices = []string{"sleep"}, []spec.DeviceRequest{{CDI: "acme.example/sensor", Match: match}}
		})))
	}
	chosen("right")
	s.await("one has the sensor on the right", func() bool {
		list, err := s.Cluster.Instances(context.Background())
		return err == nil && len(list) == 1 && slices.Equal(list[0].Devices, []string{"acme.example/sensor=right"}) && s.ready(1)()
	})
	chosen("top")
	s.await("none is on top", func() bool {
		list, err := s.Root.Instances(context.Background())
		return err == nil && slices.ContainsFunc(list, func(i wire.Instance) bool {
			return slices.ContainsFunc(i.Conditions, func(c skerry.Condition) bool {
				return strings.Contains(c.Reason, "acme.example/sensor (acme.example/side=top, hall=4)")
			})
		})
	})
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "chosen"}})
	s.await("nobody has any", func() bool {
		list, err := s.Root.Instances(context.Background())
		return err == nil && len(list) == 0
	})
	sensing(2)
	s.await("three instances are ready", s.ready(3))
	list, err := s.Root.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, i := range list {
		if i.Service.Service != "sense" {
			if out, code := s.insideOf(i.ID, "write", "/dev/serial/by-id/"+serial, "x"); code != 0 {
				t.Error(out)
			}
			continue
		}
		env, _ := s.insideOf(i.ID, "env")
		for _, v := range strings.Fields(env) {
			if name, ok := strings.CutPrefix(v, "SENSOR="); ok {
				have = append(have, name)
			}
		}
		if out, code := s.insideOf(i.ID, "write", "/dev/sensor", "x"); code != 0 {
			t.Errorf("it cannot write to its device: %s", out)
		}
		if out, code := s.insideOf(i.ID, "read", "/etc/sensor"); code != 0 || out == "" {
			t.Errorf("the vendor's file: %q", out)
		}
	}
	if slices.Sort(have); !slices.Equal(have, []string{"left", "right"}) {
		t.Errorf("they have %v", have)
	}
	sensing(3)
	s.await("the third is told why it waits", says("lacks a device"))
	sensing(2)
	s.await("three are ready again", s.ready(3))

	describe("left")
	if err := os.Remove(filepath.Join(dev, "serial", "by-id", serial)); err != nil {
		t.Fatal(err)
	}
	s.await("an instance has lost its sensor, and one its serial line", func() bool {
		list, err := s.Root.Instances(context.Background())
		running := 0
		for _, i := range list {
			if i.State == skerry.Running {
				running++
			}
		}
		return err == nil && len(list) == 3 && running == 1
	})
	told := false
	if list, err = s.Root.Instances(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		told = told || slices.ContainsFunc(i.Timeline, func(st wire.Step) bool {
			return strings.Contains(st.Text, "its device /dev/serial/by-id/"+serial+" is gone")
		})
	}
	if !told {
		t.Errorf("nobody says that the device is gone: %+v", list)
	}
	describe("left", "right")
	plug()
	s.await("all are plugged in again", s.ready(3))

	s.do(app("hooked", service("hooked", "test/workload:1", func(x *spec.ServiceSpec) {
		x.Args, x.Devices = []string{"sleep"}, []spec.DeviceRequest{{CDI: "acme.example/hooked=a"}}
	})))
	s.await("hooks are refused", says("--cdi-hooks"))
}
