//go:build linux && amd64

package e2e

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestCloudInit boots a disk with Debian in a virtual machine, as whoever brings an image of a cloud's does. Debian's own cloud-init takes what
// the machine is told: its name, the network, the user's data, keys, environment and config files. Then it serves at the service's address, where
// a container reads of it what cloud-init made.
func TestCloudInit(t *testing.T) {
	testenv.Long(t, "TestAppliances")
	s := (&site{t: t, machines: node.Machines{Enabled: true, Emulate: true}, patience: 10 * time.Minute}).open()
	s.image("test/kit:1", "skerry.dev/skerry/examples/kit")
	if _, err := s.Root.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: cloudDisk(t), Platform: artifact.HostPlatform(), Tag: "skerry.local/test/debian:12"}); err != nil {
		t.Fatal(err)
	}
	const (
		address = "10.30.9.2"
		key     = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKZZMkZ3E5tJcC0nY4gkQv8O4uSg2GzZ1tJ5n4lL0M ann"
		// What it serves is made by cloud-init's last stage, from what its earlier ones left.
		user = `#cloud-config
locale: false
write_files:
- path: /srv/ann
  content: "written for ann\n"
runcmd:
- [sh, -c, "{ hostname; cloud-id; cat /srv/ann; tail -n 1 /home/*/.ssh/authorized_keys; cat /etc/skerry/environment /etc/motto; ip -4 -o addr show scope global; ip -4 route; cat /run/systemd/resolve/resolv.conf; } >/srv/index.html"]
- [systemd-run, --unit=web, python3, -m, http.server, --directory, /srv, "80"]
`
	)
	system := service("debian", "test/debian:12", func(x *spec.ServiceSpec) {
		x.Runtime, x.Machine = spec.RuntimeVM, &spec.Machine{UserData: user, SSHKeys: []string{key}, Disk: 2 * skerry.GiB, Durability: spec.DurabilityRelaxed}
		x.Resources = spec.Resources{CPU: 1000, Memory: 768 * skerry.MiB}
		x.Env = map[string]string{"GREETING": "ahoy there"}
		x.Config = []spec.ConfigFile{{Path: "/etc/motto", Content: "per aspera\n"}}
		x.Ports = []spec.Port{{Port: 80}}
		x.Addresses = &spec.ServiceAddresses{RoundRobin: netip.MustParseAddr(address)}
		x.Probes = spec.Probes{Readiness: &spec.Probe{HTTP: &spec.HTTPProbe{Port: 80, Path: "/"}, Timeout: spec.Duration(5 * time.Second)}}
	})
	ask := service("ask", "test/kit:1", func(x *spec.ServiceSpec) { x.Args = []string{"answer", ":8080"} })
	s.do(app("cloud", system, ask))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the console:\n%s", s.consoles())
		}
	})
	s.await("the machine serves what it was told", s.ready(2))
	list, err := s.Cluster.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(list, func(i wire.Instance) bool { return i.Service.Service == "debian" })
	asker := slices.IndexFunc(list, func(i wire.Instance) bool { return i.Service.Service == "ask" })
	out, ok := s.byWorker(list[asker].ID, "/program", "get", "http://"+address+"/")
	t.Logf("%s has:\n%s", list[at].ID, out)
	for _, want := range []string{string(list[at].ID) + "\n", "nocloud\n", "written for ann\n", key + "\n", "GREETING='ahoy there'\n", "per aspera\n", " inet " + list[at].Address + "/32 ", "default via ", "nameserver "} {
		if !ok || !strings.Contains(out, want) {
			t.Errorf("it does not have %q", want)
		}
	}
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "cloud"}})
	s.await("nothing is left", s.ready(0))
}

// cloudDisk gives a disk with Debian and cloud-init.
func cloudDisk(t *testing.T) string {
	t.Helper()
	for program, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "qemu-img": "qemu-utils", "qemu-system-x86_64": "qemu-system-x86"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "a disk with Debian", Why: program + " is not installed; apt-get install " + pkg})
		}
	}
	recipe, err := os.ReadFile("testdata/cloud.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := cached(t, "cloud", recipe, func(made string) {
		// What it mounts ends with it, however it ends.
		outside(t, "a disk with Debian", "unshare", "--mount", "--propagation", "private", "sh", "testdata/cloud.sh", made, mirror())
	})
	return filepath.Join(dir, "disk.qcow2")
}

// consoles is what machines have said.
func (s *site) consoles() string {
	var b strings.Builder
	for _, d := range s.Worker.Drivers {
		list, _ := d.List(context.Background())
		if d.Name() != spec.RuntimeVM {
			continue
		}
		for _, h := range list {
			log, err := d.(runtime.Logger).OpenLog(context.Background(), h, runtime.LogOptions{})
			if err != nil {
				continue
			}
			for e, err := log.Next(); err == nil; e, err = log.Next() {
				b.WriteString(e.Line + "\n")
			}
			log.Close()
		}
	}
	return b.String()
}
