//go:build linux

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// TestHistory: a site tells what it and its worker used; a cluster that ends and starts again still does. The root neither has nor gets it.
func TestHistory(t *testing.T) {
	s := newSite(t)
	s.image("test/web:1", "skerry.dev/skerry/examples/shop/catalog")
	web := spec.ServiceSpec{Name: "web", Ports: []spec.Port{{Name: "http", Port: 8080}},
		Resources: spec.Resources{CPU: 100, Memory: 32 * skerry.MiB}}
	web.Image = "test/web:1"
	if _, err := s.Root.Do(t.Context(), app("shop", web)); err != nil {
		t.Fatal(err)
	}
	ask := view.HistoryQuery{Workers: true, Span: time.Hour, Step: time.Minute}
	last := func(c *parents.Cluster) (site, worker view.HistoryPoint) {
		h, err := c.History(t.Context(), ask)
		if err != nil || len(h.Series) < 2 || len(h.Series[0].Points) == 0 || len(h.Series[1].Points) == 0 {
			return site, worker
		}
		if h.Series[0].Worker != "" || h.Series[1].Worker != "w1" || h.Series[1].Capacity.Memory == 0 {
			t.Fatalf("got series of %q and %q, want those of the site and of w1, with its capacity", h.Series[0].Worker, h.Series[1].Worker)
		}
		return h.Series[0].Points[len(h.Series[0].Points)-1], h.Series[1].Points[len(h.Series[1].Points)-1]
	}
	s.patience = 3 * time.Minute // points come once a minute
	var site, w1 view.HistoryPoint
	s.await("the history has an instance that runs", func() bool {
		site, w1 = last(s.Cluster)
		return w1.Instances == 1
	})
	if w1.Memory == 0 || w1.Storage == 0 || w1.Workers != 1 {
		t.Errorf("got the worker's point %+v, want memory and storage in use", w1)
	}
	if site.Workers != 1 || site.Instances != 1 || site.Memory != w1.Memory {
		t.Errorf("got the site's point %+v, want the sum of its one worker %+v", site, w1)
	}
	_, client := s.serve("cluster", s.Cluster, s.Cluster.Store)
	h, err := client.History(t.Context(), view.HistoryQuery{Worker: "w1", Span: time.Hour, Step: time.Minute})
	if err != nil || len(h.Series) != 1 || h.Series[0].Worker != "w1" || len(h.Series[0].Points) == 0 {
		t.Errorf("over the API: got history %+v and error %v, want w1's", h, err)
	}
	if _, err := s.Root.History(t.Context(), ask); skerry.AsError(err).Code != skerry.CodeWrongTier {
		t.Errorf("the history at the root: got error %v, want code %s", err, skerry.CodeWrongTier)
	}

	link := s.Cluster.LinkAddr().String()
	s.stops["cluster API"]()
	s.stops["cluster"]()
	if _, err := os.Stat(filepath.Join(s.dir, "cluster", "history")); err != nil {
		t.Fatalf("the file of the history: got %v, want one", err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "root", "history")); !os.IsNotExist(err) {
		t.Errorf("the root's directory: got %v, want no history there", err)
	}
	again, err := parents.OpenCluster(t.Context(), parents.ClusterConfig{Common: s.common("cluster"),
		Server: cluster.ServerOptions{Link: link},
		Join:   node.Join{Name: "harbour", Parent: []string{s.Root.LinkAddr().String()}}})
	if err != nil {
		t.Fatal(err)
	}
	s.Cluster = again
	s.run("cluster", again.Run, again.Close)
	s.await("the history is there again", func() bool {
		h, err := again.History(context.Background(), ask)
		if err != nil || len(h.Series) < 2 {
			return false
		}
		for _, p := range h.Series[1].Points {
			if p.At.Equal(w1.At) && p.Instances == w1.Instances && p.Memory == w1.Memory {
				return true
			}
		}
		return false
	})
}
