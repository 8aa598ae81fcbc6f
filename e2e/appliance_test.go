//go:build linux && amd64

package e2e

import (
	"net/netip"
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
)

// TestAppliances has one service run in a container and in a virtual machine, a unikernel, at the same time: the new version came for
// one of its instances, and both answer at the service's address. Beside them a machine boots a disk, and is told who it is.
func TestAppliances(t *testing.T) {
	s := (&site{t: t, patience: 5 * time.Minute, machines: node.Machines{Enabled: true, Emulate: true}}).open()
	s.image("test/kit:1", "skerry.dev/skerry/examples/kit")
	for tag, o := range map[string]artifact.BuildOptions{
		"skerry.local/test/greeter:1": {Source: testenv.Unikernel(t, "..")},
		"skerry.local/test/system:1":  {Source: testenv.BootDisk(t, "..", t.TempDir()), Platform: artifact.HostPlatform()},
	} {
		o.Tag = tag
		if _, err := s.Root.Images.Store.Build(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.await("machines have passed their self-tests", func() bool { // a worker does not wait for them
		passed := 0
		for _, r := range s.Worker.Server.Runtimes() {
			if r.Passed && (r.Name == spec.RuntimeUnikernel || r.Name == spec.RuntimeVM) {
				passed++
			}
		}
		return passed == 2
	})
	const address = "10.30.9.2"
	probe := spec.Probes{Readiness: &spec.Probe{TCP: &spec.TCPProbe{Port: 80}}}
	greet := service("greet", "test/kit:1", func(x *spec.ServiceSpec) {
		two := 2
		x.Replicas, x.Args, x.Probes = &two, []string{"answer", ":80"}, probe
		x.Ports = []spec.Port{{Port: 80}}
		x.Addresses = &spec.ServiceAddresses{RoundRobin: netip.MustParseAddr(address)}
	})
	ask := service("ask", "test/kit:1", func(x *spec.ServiceSpec) { x.Args = []string{"answer", ":8080"} })
	system := service("system", "test/system:1", func(x *spec.ServiceSpec) {
		x.Runtime, x.Machine = spec.RuntimeVM, &spec.Machine{UserData: "#cloud-config\nname: ann\n", Durability: spec.DurabilityRelaxed}
		x.Config = []spec.ConfigFile{{Path: "/etc/ann", Content: "x"}}
	})
	s.do(app("greeter", greet, ask, system))
	s.await("the containers and the machine are ready", s.ready(4))
	hour, one := spec.Duration(time.Hour), 1
	greet.Image, greet.Runtime, greet.Args = "test/greeter:1", spec.RuntimeUnikernel, []string{"ip=$(NET_IPV4)", "name=unikernel"}
	greet.Update = spec.UpdateSpec{Batch: one, HealthyTime: &hour}
	s.do(app("greeter", greet, ask, system))
	var asker skerry.InstanceID
	s.await("one instance is a unikernel", func() bool {
		kinds := map[string]int{}
		list, err := s.Root.Instances(t.Context())
		for _, i := range list {
			if skerry.HasCondition(i.Conditions, skerry.Ready) && !i.Stopping {
				kinds[i.Service.Service+" "+i.Runtime]++
			}
			if i.Service.Service == "ask" {
				asker = i.ID
			}
		}
		return err == nil && kinds["greet oci"] > 0 && kinds["greet unikernel"] > 0
	})
	s.await("both answer at the service's address", func() bool {
		out, ok := s.byWorker(asker, "/program", "get", "http://"+address+"/", "12")
		return ok && strings.Contains(out, "hello from unikernel") && strings.Contains(out, "greet-")
	})
	s.await("the machine was told who it is", func() bool {
		for _, d := range s.Worker.Drivers {
			list, _ := d.List(t.Context())
			if d.Name() != spec.RuntimeVM || len(list) != 1 {
				continue
			}
			log, err := d.(runtime.Logger).OpenLog(t.Context(), list[0], runtime.LogOptions{})
			if err != nil {
				return false
			}
			defer log.Close()
			for {
				e, err := log.Next()
				if err != nil {
					return false
				}
				if e.Line == "name: ann" {
					return true
				}
			}
		}
		return false
	})
	if _, err := s.Root.Do(t.Context(), apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "greeter"}}); err != nil {
		t.Fatal(err)
	}
	s.await("nothing is left", s.ready(0))
}
