package ingress

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// held counts what waits for an instance to lead to, by service.
type held struct {
	sync.Mutex
	by map[string]int
}

// Waiting lists the services that something waits for, by name.
func (in *Ingress) Waiting() []string {
	in.held.Lock()
	defer in.held.Unlock()
	return slices.Sorted(maps.Keys(in.held.by))
}

// wait counts what waits for a service, and tells when it is the first; what it gives ends that, and tells when it was the last.
func (in *Ingress) wait(name string) (end func()) {
	count := func(by int) {
		h := &in.held
		h.Lock()
		if h.by == nil {
			h.by = map[string]int{}
		}
		before := h.by[name]
		if h.by[name] = before + by; before+by == 0 {
			delete(h.by, name)
		}
		h.Unlock()
		if (before == 0 || before+by == 0) && in.opt.Waits != nil {
			in.opt.Waits()
		}
	}
	count(1)
	return func() { count(-1) }
}

// hold waits for as long as a route holds what comes until it has a target, and gives it as it is then. Without one it gives the
// route as it was.
func (d *listener) hold(ctx context.Context, t *table, rt *route, find func(t *table) *route) (*table, *route) {
	if rt.Hold <= 0 || len(rt.Targets) > 0 {
		return t, rt
	}
	defer d.in.wait(rt.Name)()
	limit := time.NewTimer(rt.Hold)
	defer limit.Stop()
	for {
		select {
		case <-t.replaced:
		case <-limit.C:
			return t, rt
		case <-ctx.Done():
			return t, rt
		case <-d.ctx.Done():
			return t, rt
		}
		t = d.table.Load()
		now := find(t)
		if now == nil || now.Name != rt.Name || len(now.Targets) > 0 && now.Net == rt.Net {
			if now != nil && now.Name == rt.Name {
				rt = now
			}
			return t, rt
		}
	}
}
