//go:build linux

package worker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// endpoints keeps what instances are told of the services they are linked to: a file of service name to endpoints, which
// is replaced as a whole at each change. Where the overlay is on these are service addresses, and change with the manifest
// alone.
type endpoints struct {
	mu    sync.Mutex
	lists map[skerry.ServiceKey][]wire.Endpoint // single instances, as the cluster says
	nets  map[skerry.AppKey]*wire.AppNetwork    // of the overlay
	insts map[skerry.InstanceID]skerry.AppKey
}

func newEndpoints() *endpoints {
	return &endpoints{lists: map[skerry.ServiceKey][]wire.Endpoint{}, nets: map[skerry.AppKey]*wire.AppNetwork{},
		insts: map[skerry.InstanceID]skerry.AppKey{}}
}

// know remembers to which application an instance belongs, forget ends that.
func (e *endpoints) know(id skerry.InstanceID, app skerry.AppKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.insts[id] = app
}

func (e *endpoints) forget(id skerry.InstanceID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.insts, id)
}

// of gives the single instances of a service that can be reached from the host.
func (e *endpoints) of(k skerry.ServiceKey) []wire.Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lists[k])
}

// set takes a new list and writes the files of all instances of the application.
func (e *endpoints) set(a core.Endpoints, dir func(skerry.InstanceID) string) (errs []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.Gone {
		delete(e.lists, a.Service)
	} else {
		if slices.Equal(e.lists[a.Service], a.List) && e.lists[a.Service] != nil {
			return nil
		}
		e.lists[a.Service] = a.List
	}
	return e.writeAllLocked(a.Service.App, dir)
}

// network takes the directory of an application's network; nil: there is none any more. It writes the files of its
// instances.
func (e *endpoints) network(app skerry.AppKey, n *wire.AppNetwork, dir func(skerry.InstanceID) string) []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n == nil {
		delete(e.nets, app)
	} else {
		e.nets[app] = n
	}
	return e.writeAllLocked(app, dir)
}

func (e *endpoints) writeAllLocked(app skerry.AppKey, dir func(skerry.InstanceID) string) (errs []error) {
	for id, of := range e.insts {
		if of != app {
			continue
		}
		// A directory that is not there yet gets its file when it is made.
		if err := e.writeLocked(filepath.Join(dir(id), "run", endpointsFile), app); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errs
}

// addressesLocked gives the service addresses of a service, one for each of its ports; nil where there is no overlay.
func (e *endpoints) addressesLocked(k skerry.ServiceKey) (out []wire.Endpoint) {
	n := e.nets[k.App]
	if n == nil {
		return nil
	}
	for i := range n.Services {
		s := &n.Services[i]
		if n.Real(s) != k || !s.RoundRobin.IsValid() {
			continue
		}
		for _, q := range s.Ports {
			out = append(out, wire.Endpoint{Name: k.Service, Port: q.PortName(), Protocol: q.Proto(),
				Address: netip.AddrPortFrom(s.RoundRobin, uint16(q.Port)).String()})
		}
	}
	return out
}

func (e *endpoints) write(path string, app skerry.AppKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writeLocked(path, app)
}

func (e *endpoints) writeLocked(path string, app skerry.AppKey) error {
	all := map[string][]wire.Endpoint{}
	for k, list := range e.lists {
		if k.App == app {
			if to := e.addressesLocked(k); to != nil {
				list = to
			}
			if list == nil {
				list = []wire.Endpoint{}
			}
			all[k.Service] = list
		}
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return files.Swap(path, append(data, '\n'), 0o644)
}
