package cluster

import (
	"context"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cluster/history"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// siteHistory is the part of the server that keeps what the site uses, and shows it.
type siteHistory struct {
	kept *history.History
	hub  *tier.Hub
	up   func() *tier.Up // nil: there is no link to a root
}

// Run lives until ctx ends. Beside the role's lives it keeps the site's history: while the store takes no writes, too, because
// then somebody will want to see it.
func (h *siteHistory) Run(ctx context.Context) error {
	return beside(ctx, h.hub.Run, func(ctx context.Context) {
		reader := useReader{of: h}
		h.kept.Run(ctx, reader.read)
	})
}

// lastWrite is how long the role waits in the end until its history is written: a disk that hangs must not hold it.
const lastWrite = 5 * time.Second

// beside runs a role, and something else that is to end with it but need not.
func beside(ctx context.Context, role func(context.Context) error, other func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		other(ctx)
	}()
	err := role(ctx)
	cancel()
	select {
	case <-done:
	case <-time.After(lastWrite):
	}
	return err
}

// History shows what the site used, and each of its workers if that is asked for.
func (h *siteHistory) History(ctx context.Context, query view.HistoryQuery) (view.History, error) {
	list, err := tier.View(ctx, h.hub.Role, func(c *core.Core) ([]view.WorkerView, error) { return c.Workers(), nil })
	if err != nil {
		return view.History{}, err
	}
	now := time.Now()
	out := view.History{StepMinutes: int(query.Step / time.Minute), Series: []view.HistorySeries{}}
	show := func(name string, capacity spec.Resources) {
		out.Series = append(out.Series, view.HistorySeries{Worker: skerry.WorkerName(name), Capacity: capacity,
			Points: h.kept.Show(name, now, query.Span, query.Step)})
	}
	if query.Worker == "" {
		var all spec.Resources
		for _, w := range list {
			all = all.Add(capacityOf(&w))
		}
		show("", all)
		out.Left = h.kept.Left()
	}
	for _, w := range list {
		if name := string(w.Name); query.Workers && h.kept.Has(name) || name == query.Worker {
			show(name, capacityOf(&w))
		}
	}
	if len(out.Series) == 0 {
		return out, skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", query.Worker).WithHint("`skerry get workers` lists them")
	}
	return out, nil
}

// capacityOf is what a worker has, nothing if it has not said.
func capacityOf(w *view.WorkerView) spec.Resources {
	if w.Facts == nil {
		return spec.Resources{}
	}
	return w.Facts.Capacity
}

// useReader reads what the site's workers use.
type useReader struct {
	of       *siteHistory
	restarts restartCount
}

func (u *useReader) read(ctx context.Context) (map[string]history.Reading, error) {
	list, err := tier.View(ctx, u.of.hub.Role, func(c *core.Core) ([]core.WorkerUse, error) { return c.Use(), nil })
	if err != nil {
		return nil, err
	}
	out := map[string]history.Reading{}
	restarts := u.restarts.since(list)
	for _, w := range list {
		out[w.Name] = history.Reading{CPU: w.Used.CPU, Memory: w.Used.Memory, Storage: w.Used.Storage, Instances: w.Running,
			Restarts: restarts[w.Name], RTT: childRTT(u.of.hub, w.Name), MostCPU: w.Capacity.CPU, MostMemory: w.Capacity.Memory}
	}
	if up := u.of.up(); up != nil {
		out[""] = history.Reading{RTT: up.RTT()}
	}
	return out, nil
}

// restartCount makes of the restarts since instances were first started those since the reading before.
type restartCount struct {
	last    map[skerry.InstanceID]int // at the reading before
	workers map[string]bool           // of which that told
}

// mostRestarts is how often an instance counts as restarted between two readings at most, one each second: a worker may say anything.
const mostRestarts = 60

// since counts for each worker. Of one that was not in touch at the reading before, nobody knows when its instances restarted: it has none.
func (r *restartCount) since(list []core.WorkerUse) map[string]int {
	out, last, workers := map[string]int{}, map[skerry.InstanceID]int{}, map[string]bool{}
	for _, w := range list {
		workers[w.Name] = true
		for id, n := range w.Restarts {
			n = max(n, 0)
			if last[id] = n; r.workers[w.Name] {
				out[w.Name] += min(max(n-r.last[id], 0), mostRestarts)
			}
		}
	}
	r.last, r.workers = last, workers
	return out
}

// childRTT is the last round trip that a worker measured to here; 0: it is not known. Nothing is sent for it.
func childRTT(hub *tier.Hub, name string) time.Duration {
	if down := hub.Down(); down != nil {
		if p := down.Peer(name); p != nil {
			return p.RTT()
		}
	}
	return 0
}
