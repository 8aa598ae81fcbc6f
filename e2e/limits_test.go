//go:build linux

package e2e

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// limits reads what the kernel holds the main containers of instances to.
func (s *site) limits() map[skerry.InstanceID]runtime.Resources {
	s.t.Helper()
	out := map[skerry.InstanceID]runtime.Resources{}
	for _, d := range s.Worker.Drivers {
		list, err := d.List(context.Background())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, h := range list {
			if h.Container != spec.MainContainer {
				continue
			}
			if l, err := d.(runtime.Resizer).Limits(context.Background(), h); err == nil {
				out[h.Instance] = l
			}
		}
	}
	return out
}

// tasks gives the first processes of the containers that run, by their names.
func (s *site) tasks() map[string]int {
	s.t.Helper()
	out := map[string]int{}
	for _, d := range s.Worker.Drivers {
		list, err := d.List(context.Background())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, h := range list {
			if st, err := d.Status(context.Background(), h); err == nil && st.State == runtime.StateRunning {
				out[h.Container] = h.PID
			}
		}
	}
	return out
}

// TestLimitsChangeWhileItRuns gives a container more and less of processor and memory, once with an agent that ends meanwhile. It stays
// the process that it was, and a client that asks all the time notices nothing. What it uses is not taken from it.
func TestLimitsChangeWhileItRuns(t *testing.T) {
	s := newSite(t)
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	s.image("test/workload:1", workload)
	version := func(cpu skerry.MilliCPU, memory, beside skerry.Bytes) {
		t.Helper()
		s.do(app("shop", service("web", "test/catalog:1", func(x *spec.ServiceSpec) {
			x.Ports = []spec.Port{{Port: 8080, HostPort: -1}}
			x.Resources.CPU, x.Resources.Memory = cpu, memory
			x.Probes.Readiness = &spec.Probe{HTTP: &spec.HTTPProbe{Port: 8080, Path: "/healthz"}, Interval: spec.Duration(time.Second)}
			side := spec.SideContainer{Name: "beside", Container: spec.Container{Image: "test/workload:1", Args: []string{"grow", "48", "0"}}}
			side.Resources.Memory = beside
			x.Sidecars = []spec.SideContainer{side}
		})))
	}
	const much = 128 * skerry.MiB // for what uses 48 of them
	version(200, 64*skerry.MiB, much)
	s.await("it is ready", s.ready(1))
	id := s.only().ID
	before := s.tasks()
	list, err := s.Cluster.Instances(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Ports) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	url := "http://" + list[0].Ports[0].Address + "/healthz"
	var asked, failed atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			res, err := http.Get(url)
			if err != nil {
				t.Log(err)
				failed.Add(1)
			} else {
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					failed.Add(1)
				}
			}
			asked.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	defer func() { stop(); <-over }()

	has := func(cpu skerry.MilliCPU, memory skerry.Bytes) func() bool {
		return func() bool {
			views, err := s.Worker.Views(context.Background())
			if err != nil || len(views) != 1 || views[0].Resources.CPU != cpu || views[0].Resources.Memory != memory {
				return false // the device itself
			}
			for _, of := range []func(context.Context) ([]wire.Instance, error){s.Root.Instances, s.Cluster.Instances} {
				list, err := of(context.Background())
				if err != nil || len(list) != 1 || list[0].Resources.CPU != cpu || list[0].Resources.Memory != memory || list[0].ID != id {
					return false
				}
			}
			return skerry.HasCondition(s.only().Conditions, skerry.UpToDate)
		}
	}
	same := func(cpu skerry.MilliCPU, memory skerry.Bytes) {
		t.Helper()
		if l := s.limits()[id]; l.CPU != cpu || l.Memory != memory {
			t.Errorf("the kernel holds it to %+v, not %v and %v", l, cpu, memory)
		}
		if now := s.tasks(); len(now) != 2 || !maps.Equal(now, before) || s.only().Restarts != 0 {
			t.Errorf("processes %v became %v, with %d restarts", before, now, s.only().Restarts)
		}
	}
	s.await("the tiers know its limits", has(200, 64*skerry.MiB))
	same(200, 64*skerry.MiB)
	version(600, 128*skerry.MiB, 2*much)
	s.await("it has more", has(600, 128*skerry.MiB))
	same(600, 128*skerry.MiB)
	version(300, 96*skerry.MiB, much)
	s.stopAgent() // wherever it is with that
	if err := s.Worker.Close(); err != nil {
		t.Fatal(err)
	}
	s.startWorker("")
	s.await("it has less", has(300, 96*skerry.MiB))
	same(300, 96*skerry.MiB)

	version(400, 32*skerry.MiB, 16*skerry.MiB)
	s.await("it is told why its memory is not cut", func() bool {
		return slices.ContainsFunc(s.only().Conditions, func(c skerry.Condition) bool {
			return c.Type == skerry.UpToDate && !c.Status && strings.Contains(c.Reason, "container beside: it uses")
		})
	})
	same(300, 96*skerry.MiB)
	version(250, 96*skerry.MiB, much)
	s.await("a version that fits follows", has(250, 96*skerry.MiB))
	same(250, 96*skerry.MiB)

	was := asked.Load()
	s.await("the client asks on", func() bool { return asked.Load() > was+20 })
	if n := failed.Load(); n != 0 {
		t.Errorf("%d of %d requests failed", n, asked.Load())
	}
	t.Logf("%d requests, %d failed", asked.Load(), failed.Load())
}
