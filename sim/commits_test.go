package sim

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
)

// committing is the production engine, noting its commits. A batch that has only events counts as one: journals, which would write them,
// are not simulated.
type committing struct {
	engine
	w     *World
	noted func(keys string)
}

func (c committing) Flush(now time.Time, real loop.Commit) {
	committed, events := false, len(c.w.Events)
	c.engine.Flush(now, func(ops []store.Op, done func(error)) {
		committed = true
		var keys []string
		for _, op := range ops {
			keys = append(keys, op.Key)
		}
		c.noted(strings.Join(keys, " "))
		real(ops, done)
	})
	if !committed && len(c.w.Events) > events {
		c.noted("events")
	}
}

// TestCommitsOfADeployment counts how often each role waits for its disk because of one instance. With disks that take no time nothing
// shares a commit that did not have to. Whoever makes one of these numbers larger makes every deployment slower and wears every flash
// memory; whoever makes one smaller writes it here.
func TestCommitsOfADeployment(t *testing.T) {
	w := New(5)
	w.UseNetwork()
	commits := map[string][]string{}
	driven(w, func(n *Node, e engine) engine {
		return committing{e, w, func(keys string) {
			if keys != "root/alive" { // a time, written whether or not anything happens
				commits[n.Name] = append(commits[n.Name], keys)
			}
		}}
	})
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.Run(30 * time.Second)
	counted := func() map[string]int {
		got := map[string]int{}
		for name, list := range commits {
			got[name] = len(list)
		}
		return got
	}
	var before map[string]int
	w.Machine.Started = func(*spec.Assignment, string, int) { before = counted() }
	for _, step := range []struct {
		name string
		msg  any
		want map[string]int
	}{
		// The application with what the site gets of it; the site's answer; it runs and is ready.
		// The placement with what the worker gets of it; it runs.
		// What it is to run, while that is prepared; what runs.
		{"create", app("shop", 1), map[string]int{"root": 3, "a": 2, "a/w1": 2}},
		// What is not wanted any more; it stops; it is gone, with the application.
		// The same, and that the application's network is not wanted any more, which the root knows only then.
		// What is to end; what has ended; that nothing is left of it.
		{"delete", deleteApp("shop"), map[string]int{"root": 3, "a": 4, "a/w1": 3}},
	} {
		clear(commits)
		w.must(t, w.Root, step.msg)
		w.Run(time.Minute)
		got := counted()
		if !maps.Equal(got, step.want) {
			t.Errorf("%s: %v commits, want %v", step.name, got, step.want)
			for name, list := range commits {
				t.Logf("%s:\n\t%s", name, strings.Join(list, "\n\t"))
			}
		}
	}
	// The site's answer is stored at the root beside all else, and at the worker the assignment while it is prepared: two are waited for.
	if want := map[string]int{"root": 2, "a": 1, "a/w1": 1}; !maps.Equal(before, want) {
		t.Errorf("before the container starts: %v commits, want %v", before, want)
	}
}

// TestStepsOfAStartAreToldAgain: how far an instance is that starts is not stored by itself at root and site. Whoever forgot it is told it
// again, shows it while it lasts, and goes on as if nothing had been; also what the site decides about itself.
func TestStepsOfAStartAreToldAgain(t *testing.T) {
	for _, owner := range []string{"root", "a"} {
		for _, forgets := range []string{"root", "a", "both"} {
			for _, phase := range []skerry.Phase{skerry.PhaseFetching, skerry.PhaseStarting} {
				t.Run(fmt.Sprintf("%s/%s/%s", owner, forgets, phase), func(t *testing.T) {
					w := New(5)
					w.UseNetwork()
					site := w.AddCluster("a")
					w.AddWorker("a", "w1", facts(2000))
					w.Machine.Prepare, w.Machine.Start = time.Minute, time.Minute
					w.Run(5 * time.Second)
					w.must(t, site, apps.PutOrg{Org: apps.Org{Name: "default"}})
					w.must(t, site, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
					node := map[string]*Node{"root": w.Root, "a": site}
					w.must(t, node[owner], app("shop", 1))
					if w.Run(20 * time.Second); phase == skerry.PhaseStarting {
						w.Run(time.Minute)
					}
					shown := func() (phases []skerry.Phase) {
						for _, i := range w.ClusterCore("a").Instances() {
							phases = append(phases, i.Phase)
						}
						if owner == "root" {
							for _, i := range w.RootCore().Apps.Instances(web("shop")) {
								phases = append(phases, i.Phase)
							}
						}
						return phases
					}
					want := fmt.Sprint(shown())
					if !strings.Contains(want, string(phase)) {
						t.Fatalf("before anybody forgets: %s", want)
					}
					for name, n := range node {
						if forgets == name || forgets == "both" {
							w.crash(n, true)
							w.boot(n)
						}
					}
					if w.Run(15 * time.Second); fmt.Sprint(shown()) != want {
						t.Errorf("after that: %v, want %s", shown(), want)
					}
					w.Run(3 * time.Minute)
					for _, got := range shown() {
						if got != skerry.PhaseRunning {
							t.Errorf("in the end: %v", shown())
						}
					}
				})
			}
		}
	}
}
