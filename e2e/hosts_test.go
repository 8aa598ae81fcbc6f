//go:build linux

package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestHostsHooksAndParts has a container with a name and a hosts file of its own and a part of a volume. It waits for a job that writes
// nothing but its status, and what it does before its end is found by the instance after it.
func TestHostsHooksAndParts(t *testing.T) {
	s := newSite(t)
	s.image("test/workload:1", workload)
	once := func(x *spec.ServiceSpec) {
		x.Mode, x.Replicas, x.Args = spec.ModeJob, nil, []string{"exit", "0"}
	}
	web := func(text string) func(x *spec.ServiceSpec) {
		return func(x *spec.ServiceSpec) {
			x.Args = []string{"sleep"}
			x.Hostname = "mail.island.example"
			x.ExtraHosts = []spec.HostEntry{{Address: netip.MustParseAddr("203.0.113.5"), Names: []string{"lighthouse", "light.example"}}}
			x.Volumes = []spec.Volume{{Name: "kept", Local: &spec.LocalVolume{}}}
			x.Mounts = []spec.Mount{{Volume: "kept", Path: "/all"}, {Volume: "kept", Path: "/part", SubPath: "deep/er"}}
			x.PostStart = &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"/program", "write", "/part/hello", text}}}
			x.PreStop = &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"/program", "write", "/part/bye", text}}}
			x.StartAfter = []spec.StartAfter{{Service: "first"}}
		}
	}
	id := skerry.InstanceID("")
	running := func() bool {
		list, err := s.Worker.Instances(context.Background())
		if err != nil {
			return false
		}
		for _, i := range list {
			if strings.HasPrefix(string(i.ID), "web-") && i.Phase == skerry.PhaseRunning && i.ID != id {
				id = i.ID
				return true
			}
		}
		return false
	}
	s.do(app("shop", service("web", "test/workload:1", web("first")), service("first", "test/workload:1", once)))
	s.await("it runs", running)
	list, err := s.Root.Instances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i.Service.Service == "first" && i.State != skerry.Terminated {
			t.Errorf("it runs before its job has succeeded: %+v", i)
		}
	}
	read := func(what ...string) string {
		out, _ := s.byWorker(id, append([]string{"/program"}, what...)...)
		return strings.TrimSpace(out)
	}
	if got := read("hostname"); got != "mail.island.example" {
		t.Errorf("it calls itself %q", got)
	}
	hosts := read("read", "/etc/hosts")
	for _, line := range []string{" mail.island.example mail\n", "203.0.113.5 lighthouse light.example"} {
		if !strings.Contains(hosts+"\n", line) {
			t.Errorf("its hosts file lacks %q:\n%s", line, hosts)
		}
	}
	s.await("its postStart is done", func() bool { return read("read", "/all/deep/er/hello") == "first" })
	if _, ok := s.byWorker(id, "/program", "write", "/part/file", "in a part"); !ok || read("read", "/all/deep/er/file") != "in a part" {
		t.Errorf("the part of the volume has %q", read("read", "/all/deep/er/file"))
	}

	s.do(app("shop", service("web", "test/workload:1", web("second")), service("first", "test/workload:1", once)))
	s.await("it was replaced", running)
	if got := read("read", "/all/deep/er/bye"); got != "first" {
		t.Errorf("before its end it wrote %q", got)
	}

	// What an instance made of its volume is its own affair, and shown as that: a link that leads out keeps the next one from starting.
	if got := s.told("PreStopFailed"); got != "" {
		t.Errorf("a hook failed: %s", got)
	}
	s.do(app("shop", service("web", "test/workload:1", func(x *spec.ServiceSpec) {
		web("third")(x)
		x.PreStop = &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"/program", "exit", "7"}}}
	}), service("first", "test/workload:1", once)))
	s.await("it was replaced again", running)
	s.do(app("shop", service("first", "test/workload:1", once)))
	s.await("its preStop has failed", func() bool { return strings.Contains(s.told("PreStopFailed"), "container main: preStop: status 7") })

	s.do(app("shop", service("web", "test/workload:1", func(x *spec.ServiceSpec) {
		web("fourth")(x)
		x.PostStart = &spec.Hook{Exec: &spec.ExecProbe{Command: []string{"/program", "exit", "7"}}}
	}), service("first", "test/workload:1", once)))
	s.await("its postStart has failed, and it is started anew", func() bool {
		list, err := s.Root.Instances(t.Context())
		return err == nil && strings.Contains(s.told("PostStartFailed"), "postStart of container main failed: status 7") &&
			slices.ContainsFunc(list, func(i wire.Instance) bool { return i.Service.Service == "web" && i.Restarts > 0 })
	})
}

// told gives the texts of events.
func (s *site) told(reason string) string {
	var out []string
	for _, e := range s.Root.Journal().List(0, func(e *wire.Event) bool { return e.Reason == reason }) {
		out = append(out, e.Text)
	}
	return strings.Join(out, "\n")
}
