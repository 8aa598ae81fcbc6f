package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func checkpointed(s *spec.ServiceSpec) { s.Migration.Mode = spec.MigrateCheckpoint }

// able is a machine whose runtime writes and reads what runs.
func able(cpu skerry.MilliCPU) wire.WorkerFacts {
	f := facts(cpu)
	f.Runtimes = []wire.RuntimeReport{{Name: "oci", Passed: true, Abilities: []string{spec.AbilityCheckpoint, spec.AbilityResize}}}
	return f
}

// memories lists what runs of all applications, by what it has in its memory.
func (w *World) memories() (out []string) {
	for _, n := range w.nodes() {
		for _, t := range n.tasks {
			if t.running {
				out = append(out, t.memory)
			}
		}
	}
	return out
}

// An instance that is moved with its memory has it afterwards, at another worker, whatever fails on the way: then it goes on where it was.
func TestCarriedWithItsMemory(t *testing.T) {
	for _, what := range []string{"", "writing", "reading", "the other agent", "the other machine", "its agent", "the site", "the link there", "undrained"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, 5)
			w.Audit = true
			w.Machine.Stop, w.Machine.Prepare = 300*time.Millisecond, 300*time.Millisecond
			w.AddCluster("a")
			first := w.AddWorker("a", "w1", able(2000))
			w.Run(time.Second)
			w.must(t, w.Root, app("db", 1, checkpointed))
			w.Run(3 * time.Second)
			second := w.AddWorker("a", "w2", able(2000))
			w.Run(3 * time.Second)
			before := fmt.Sprint(w.memories())
			switch what {
			case "writing", "reading":
				at := map[string]string{"writing": "a/w1", "reading": "a/w2"}[what]
				broken := true
				w.Machine.Checkpoint = func(name string) string {
					if name == at && broken {
						broken = false
						return "CRIU says no"
					}
					return ""
				}
			}
			w.must(t, w.Clusters["a"], cluster.DrainWorker{Name: "w1", Reason: "new roof"})
			for n := range 60 {
				w.Run(50 * time.Millisecond)
				if list := w.memories(); len(list) > 1 {
					t.Fatalf("%v run", list)
				}
				if n != 9 { // written, not yet sent
					continue
				}
				switch what {
				case "the other agent":
					w.Restart(second, second.facts)
				case "the other machine":
					w.PowerOff(second)
				case "its agent":
					w.Restart(first, first.facts)
				case "the site":
					w.Restart(w.Clusters["a"], nil)
				case "the link there":
					w.Cut(second)
					w.Run(20 * time.Second)
					w.Heal(second)
				case "undrained":
					w.must(t, w.Clusters["a"], cluster.CordonWorker{Name: "w1"})
				}
			}
			w.Run(3 * time.Minute)
			if what == "the other machine" {
				w.Restart(second, second.facts)
			}
			w.Run(3 * time.Minute)
			w.check(t, "db", 1, 1)
			w.booksHold(t)
			if after := fmt.Sprint(w.memories()); after != before {
				t.Errorf("%s became %s", before, after)
			}
			if at := w.RootCore().Apps.Instances(web("db"))[0]; at.Restarts != 0 {
				t.Errorf("it was restarted %d times", at.Restarts)
			}
			if what != "undrained" && second.Tasks() != 1 {
				t.Error("it is where it was")
			}
			told := w.texts("Migrated")
			if what != "undrained" && (len(told) == 0 || !strings.Contains(told[len(told)-1], "with its memory; it served nobody for ")) {
				t.Error(told)
			}
		})
	}
}

// Where that cannot be done the instance stays, and whoever drains its worker is told why; by force it moves without its memory.
func TestCarriedNowhere(t *testing.T) {
	w := newWorld(t, 5)
	w.Audit = true
	w.AddCluster("a")
	f := facts(2000)
	f.Runtimes = []wire.RuntimeReport{{Name: "oci", Passed: true, Cause: "no checkpoints: CRIU 3.17 does not know this kernel"}}
	w.AddWorker("a", "w1", f)
	w.Run(time.Second)
	w.must(t, w.Root, app("db", 1, checkpointed))
	w.Run(3 * time.Second)
	w.AddWorker("a", "w2", able(2000))
	w.must(t, w.Clusters["a"], cluster.DrainWorker{Name: "w1"})
	w.Run(time.Minute)
	d := w.ClusterCore("a").Workers()[0].Drain
	if d == nil || len(d.Stays) != 1 || !strings.Contains(d.Stays[0].Reason, "CRIU 3.17 does not know this kernel") || w.Workers["a/w1"].Tasks() != 1 {
		t.Fatalf("%+v", d)
	}
	w.must(t, w.Clusters["a"], cluster.DrainWorker{Name: "w1", Force: true})
	w.Run(time.Minute)
	w.check(t, "db", 1, 1)
	if w.Workers["a/w2"].Tasks() != 1 {
		t.Error("it stayed")
	}
	w.booksHold(t)
}
