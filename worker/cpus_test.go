//go:build linux

package worker

import (
	"context"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/topology"
	"skerry.dev/skerry/runtime"
)

// pinned is a driver of which all tasks run, and which notes where.
type pinned struct {
	runtime.Driver
	tasks []runtime.Handle
	at    map[runtime.TaskID]string
}

func (d *pinned) List(context.Context) ([]runtime.Handle, error) { return d.tasks, nil }

func (d *pinned) Status(context.Context, runtime.Handle) (runtime.Status, error) {
	return runtime.Status{State: runtime.StateRunning}, nil
}

func (d *pinned) Pin(_ context.Context, h runtime.Handle, cpus string) error {
	d.at[h.ID] = cpus
	return nil
}

// start does what the worker does.
func (d *pinned) start(t *testing.T, p *processors, id runtime.TaskID, n int) error {
	t.Helper()
	spec := runtime.Spec{ID: id}
	if err := p.take(t.Context(), &spec, n); err != nil {
		return err
	}
	h := runtime.Handle{ID: id, Labels: spec.Labels}
	d.tasks, d.at[id] = append(d.tasks, h), spec.Resources.CPUSet
	return p.started(t.Context(), d, h, spec.Resources.CPUSet)
}

func (d *pinned) end(t *testing.T, p *processors, id runtime.TaskID) {
	t.Helper()
	for i, h := range d.tasks {
		if h.ID == id {
			d.tasks = append(d.tasks[:i:i], d.tasks[i+1:]...)
			break
		}
	}
	delete(d.at, id)
	if err := p.give(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// TestProcessors: who has processors of its own is alone on them, through a restart of the agent, and they go back to the others in the end.
func TestProcessors(t *testing.T) {
	var cores []topology.Set
	for n := range 4 {
		cores = append(cores, topology.Set{n})
	}
	all := topology.Set{0, 1, 2, 3}
	d := &pinned{at: map[runtime.TaskID]string{}}
	life := func() *processors {
		p := newProcessors(func() []runtime.Driver { return []runtime.Driver{d} })
		p.read = func() (*topology.Machine, error) {
			return &topology.Machine{Online: all, Cores: cores, Caches: []topology.Set{all}, Nodes: []topology.Set{all}}, nil
		}
		return p
	}
	look := func(want map[runtime.TaskID]string) {
		t.Helper()
		for id, cpus := range want {
			if d.at[id] != cpus {
				t.Errorf("%s is on %q, not %q; all: %v", id, d.at[id], cpus, d.at)
			}
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := life()
	must(d.start(t, p, "first", 0))
	look(map[runtime.TaskID]string{"first": ""}) // nothing is pinned on a machine where nobody asks for it
	must(d.start(t, p, "own", 2))
	must(d.start(t, p, "later", 0))
	look(map[runtime.TaskID]string{"own": "1-2", "first": "0,3", "later": "0,3"})
	if err := d.start(t, p, "more", 2); err == nil || !strings.Contains(err.Error(), "2 processors are asked for, and of those that may be lent 3 are free") {
		t.Error(err)
	}
	p = life()
	must(d.start(t, p, "another", 1))
	look(map[runtime.TaskID]string{"own": "1-2", "another": "3", "first": "0", "later": "0"})
	if err := d.start(t, p, "more", 1); err == nil || !strings.Contains(err.Error(), "none are free") {
		t.Error(err)
	}
	d.end(t, p, "own")
	look(map[runtime.TaskID]string{"another": "3", "first": "0-2", "later": "0-2"})
	d.end(t, p, "another")
	d.end(t, p, "first")
	look(map[runtime.TaskID]string{"later": "0-3"})
}
