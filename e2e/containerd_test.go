//go:build linux

package e2e

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestContainerd runs a service by a containerd that was there before: it is ready, prints and can be entered as others, goes on without the agent, and
// leaves nothing behind.
func TestContainerd(t *testing.T) {
	daemon := testenv.NewContainerd(t)
	s := (&site{t: t, foreign: node.Containerd{Socket: daemon.Socket,
		Classes: []node.ContainerdClass{{Name: "runc", Shim: "io.containerd.runc.v2", Binary: "runc", Isolation: spec.IsolationShared}}}}).open()
	s.image("test/kit:1", "skerry.dev/skerry/examples/kit")
	web := spec.ServiceSpec{Name: "web", Runtime: spec.RuntimeContainerd, Ports: []spec.Port{{Port: 8080, HostPort: -1}}, Resources: spec.Resources{CPU: 200, Memory: 64 * skerry.MiB},
		Probes: spec.Probes{Readiness: &spec.Probe{HTTP: &spec.HTTPProbe{Port: 8080, Path: "/"}}}}
	web.Image, web.Args = "test/kit:1", []string{"answer", ":8080"}
	s.do(app("shop", web))
	s.await("the service is ready", s.ready(1))
	i := s.only()
	if at, err := s.Cluster.Instances(t.Context()); err != nil || len(at) != 1 || at[0].Runtime != spec.RuntimeContainerd || at[0].Overhead.Memory != spec.RuntimeNamed(spec.RuntimeContainerd).Memory {
		t.Errorf("%+v, %v", at, err)
	}
	driver := func() runtime.Driver {
		return s.Worker.Drivers[slices.IndexFunc(s.Worker.Drivers, func(d runtime.Driver) bool { return d.Name() == spec.RuntimeContainerd })]
	}
	list, err := driver().List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	var out bytes.Buffer
	code, err := driver().(runtime.Execer).Exec(t.Context(), list[0], runtime.ExecSpec{Args: []string{"/program", "hello"}, Stdout: &out, Stderr: &out})
	if err != nil || code != 0 || !strings.Contains(out.String(), "instance "+string(i.ID)) {
		t.Errorf("%d, %v, %q", code, err, out.String())
	}
	before := s.pids()
	s.stopAgent()
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	s.startWorker("")
	s.await("the next agent has taken it up", func() bool { return s.ready(1)() && s.pids()[i.ID] == before[i.ID] })
	if after := s.only(); after.ID != i.ID || after.Restarts != i.Restarts {
		t.Errorf("%+v after the agent was started again", after)
	}
	side := web
	side.Name, side.RuntimeClass, side.Ports, side.Probes = "side", "runc", nil, spec.Probes{}
	s.do(app("side", side))
	s.await("one of a class runs beside it", s.ready(2))
	at, err := s.Cluster.Instances(t.Context())
	if err != nil || !slices.ContainsFunc(at, func(i wire.Instance) bool {
		return i.Runtime == spec.ClassRuntime(spec.IsolationShared, "runc")
	}) {
		t.Errorf("%+v, %v", at, err)
	}
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "side"}})
	s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: "shop"}})
	s.await("nothing is left", func() bool {
		list, err := driver().List(t.Context())
		return err == nil && len(list) == 0 && s.ready(0)()
	})
}
