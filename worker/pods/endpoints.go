package pods

import (
	"context"
	"encoding/json"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// direct gives the endpoints of a service to the instances of its application.
func (w *Worker) direct(told core.Endpoints) {
	w.mu.Lock()
	if told.Gone {
		delete(w.endpoints, told.Service)
	} else {
		w.endpoints[told.Service] = told.List
	}
	var ids []skerry.InstanceID
	for id, app := range w.apps {
		if app == told.Service.App {
			ids = append(ids, id)
		}
	}
	w.mu.Unlock()
	for _, id := range ids {
		w.rewrite(id, told.Service.App)
	}
}

// rewrite has the endpoints for an instance written, by one at a time: of two, the one that came last might have what was first.
func (w *Worker) rewrite(id skerry.InstanceID, app skerry.AppKey) {
	work, begin := w.work.Load(), false
	w.activity(id, func(x *activity) {
		begin = x.writer != work.Ctx
		x.writer, x.stale = work.Ctx, true
	})
	if !begin {
		return
	}
	work.Go(func() {
		defer panics.Catch(w.log, "an action")
		for again := true; again; {
			w.writeEndpoints(work.Ctx, id, app)
			w.activity(id, func(x *activity) {
				if again = x.stale && work.Ctx.Err() == nil; again {
					return
				}
				x.writer = nil
				if _, known := w.apps[id]; !known {
					delete(w.active, id) // it was removed meanwhile
				}
			})
		}
	})
}

func (w *Worker) writeEndpoints(ctx context.Context, id skerry.InstanceID, app skerry.AppKey) {
	path := secretPath(w.fleet.opt.Style.Namespace, filesName(id, w.name))
	err := persist(ctx, w.log, "the endpoints for "+string(id), func() error { // as they are by then
		w.activity(id, func(x *activity) { x.stale = false })
		return w.fleet.opt.Client.merge(ctx, path, map[string]any{"data": map[string][]byte{endpoints: w.endpointsOf(app)}})
	})
	if err != nil && !absent(err) && ctx.Err() == nil {
		w.log.Warn("write endpoints", "instance", string(id), "err", err)
	}
}

// endpointsOf writes the file with the endpoints of an application's services.
func (w *Worker) endpointsOf(app skerry.AppKey) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string][]wire.Endpoint{}
	for k, list := range w.endpoints {
		if k.App == app {
			if list == nil {
				list = []wire.Endpoint{}
			}
			all[k.Service] = list
		}
	}
	data, _ := json.MarshalIndent(all, "", "  ")
	return append(data, '\n')
}
