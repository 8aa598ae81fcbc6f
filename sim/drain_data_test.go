package sim

import (
	"testing"
	"time"

	root "skerry.dev/skerry/root/core"
)

// What is bound to a cordoned or drained site by its data runs on: an update of it waits until the site may be used again, and goes on
// then.
func TestUpdateAtDrainedSiteWaits(t *testing.T) {
	for n, msg := range []any{root.CordonCluster{Name: "a", Reason: "new roof"}, root.DrainCluster{Name: "a", Reason: "new roof"}} {
		name := []string{"cordoned", "drained"}[n]
		w := newWorld(t, 5)
		w.Audit = true
		w.AddCluster("a")
		w.AddWorker("a", "w-a", facts(4000))
		w.Run(time.Second)
		w.must(t, w.Root, kept("1", 1))
		w.Run(10 * time.Second)
		w.AddCluster("b")
		w.AddWorker("b", "w-b", facts(4000))
		w.Run(time.Second)
		w.must(t, w.Root, msg)
		w.Run(10 * time.Second)
		w.must(t, w.Root, kept("2", 1))
		for range 60 {
			w.Run(time.Second)
			if w.ready("db") != 1 {
				t.Fatalf("%s: the update ended it, and its successor has no place", name)
			}
		}
		if got := w.told("UpdateWaits"); got != 1 {
			t.Errorf("%s: %d events that the update waits", name, got)
		}
		w.Kill(w.Root)
		w.Restart(w.Root, nil)
		w.Run(30 * time.Second)
		if w.ready("db") != 1 {
			t.Fatalf("%s: the update ended it after a restart", name)
		}
		w.must(t, w.Root, root.CordonCluster{Name: "a"})
		w.Run(time.Minute)
		list := w.RootCore().Apps.Instances(web("db"))
		live := 0
		for _, i := range list {
			if i.Live() && i.Spec.Env["VERSION"] == "2" && i.Holder == "a" {
				live++
			}
		}
		if live != 1 || w.ready("db") != 1 {
			t.Errorf("%s: uncordoned, %d of the new version, %d ready", name, live, w.ready("db"))
		}
	}
}
