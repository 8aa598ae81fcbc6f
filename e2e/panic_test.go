//go:build linux

package e2e

import (
	"maps"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
)

// odd is a message that no core knows, on which each panics. Nothing outside can send it.
type odd struct{ N int }

// TestPanicsEndNoRole: a panic in the core of any role ends neither its process nor what runs. Links come back, what was acknowledged
// is there, and what is asked next is done.
func TestPanicsEndNoRole(t *testing.T) {
	s := newSite(t)
	s.image("test/catalog:1", "skerry.dev/skerry/examples/shop/catalog")
	one := 1
	s.do(app("shop", service("web", "test/catalog:1", func(x *spec.ServiceSpec) {
		x.Replicas = &one
		x.Ports = []spec.Port{{Port: 8080, HostPort: -1}}
	})))
	s.await("an instance is ready", s.ready(1))
	before := s.pids()
	panics := map[string]func(any) (any, error){
		"root":    func(m any) (any, error) { return s.Root.Do(t.Context(), m) },
		"cluster": func(m any) (any, error) { return s.Cluster.Do(t.Context(), m) },
		"worker":  func(m any) (any, error) { return s.Worker.Role.Do(t.Context(), m) },
	}
	for n, role := range []string{"root", "cluster", "worker"} {
		for range 2 { // the second time it is not tried
			if _, err := panics[role](odd{n}); skerry.AsError(err).Code != skerry.CodeInternal {
				t.Errorf("%s: %v", role, err)
			}
		}
		s.do(apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}, Replicas: n + 2})
		s.await("the next request is carried out after a panic of the "+role, s.ready(n+2))
	}
	after := s.pids()
	for id, pid := range before {
		if after[id] != pid {
			t.Errorf("%s has process %d instead of %d", id, after[id], pid)
		}
	}
	if maps.Equal(before, after) {
		t.Error("nothing was started")
	}
}
