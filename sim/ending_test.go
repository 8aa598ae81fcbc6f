package sim

import (
	"testing"
	"time"
)

// TestWhatEndsIsNotReady: a site whose worker is away has not ended what the root deleted, and none of it is ready.
func TestWhatEndsIsNotReady(t *testing.T) {
	w := New(5)
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(2000))
	w.Run(5 * time.Second)
	w.must(t, w.Root, app("shop", 1))
	w.Run(10 * time.Second)
	status := func() string {
		t.Helper()
		list := w.ClusterCore("a").AppViews(false)
		if len(list) != 1 {
			t.Fatalf("the site shows %+v", list)
		}
		return list[0].Status
	}
	if got := status(); got != "Ready" {
		t.Fatalf("before it is %s", got)
	}
	w.PowerOff(w.Workers["a/w1"])
	w.must(t, w.Root, deleteApp("shop"))
	w.Run(time.Second)
	if got := status(); got != "Progressing" {
		t.Errorf("while it ends it is %s", got)
	}
}
