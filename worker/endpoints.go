//go:build linux

package worker

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"skerry.dev/skerry"
)

// endpoints keeps what instances are told of the services they are linked to: a file of service name to endpoints, which
// is replaced as a whole at each change.
type endpoints struct {
	mu    sync.Mutex
	lists map[skerry.ServiceKey][]skerry.Endpoint
	insts map[skerry.InstanceID]skerry.AppKey
}

func newEndpoints() *endpoints {
	return &endpoints{lists: map[skerry.ServiceKey][]skerry.Endpoint{}, insts: map[skerry.InstanceID]skerry.AppKey{}}
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

// of gives the endpoints of a service.
func (e *endpoints) of(k skerry.ServiceKey) []skerry.Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lists[k])
}

// set takes a new list and writes the files of all instances of the application.
func (e *endpoints) set(a Endpoints, dir func(skerry.InstanceID) string) (errs []error) {
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
	for id, app := range e.insts {
		if app != a.Service.App {
			continue
		}
		// A directory that is not there yet gets its file when it is made.
		if err := e.writeLocked(filepath.Join(dir(id), "run", endpointsFile), app); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errs
}

func (e *endpoints) write(path string, app skerry.AppKey) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.writeLocked(path, app)
}

func (e *endpoints) writeLocked(path string, app skerry.AppKey) error {
	all := map[string][]skerry.Endpoint{}
	for k, list := range e.lists {
		if k.App == app {
			if list == nil {
				list = []skerry.Endpoint{}
			}
			all[k.Service] = list
		}
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(path, append(data, '\n'))
}
