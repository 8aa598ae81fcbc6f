package spec

import (
	"fmt"
	"strings"
	"testing"
)

// What a service asks of its worker's tables is bounded, wherever it comes from: a worker has one for all organisations.
func TestNumbersAreBounded(t *testing.T) {
	for field, make := range map[string]func(s *ServiceSpec, n int){
		"volumes": func(s *ServiceSpec, n int) {
			for i := range n {
				s.Volumes = append(s.Volumes, Volume{Name: fmt.Sprint("v", i), Empty: &EmptyVolume{}})
			}
		},
		"mounts": func(s *ServiceSpec, n int) {
			s.Volumes = []Volume{{Name: "v", Empty: &EmptyVolume{}}}
			s.Sidecars = []SideContainer{{Name: "side", Container: Container{Image: "side:1"}}}
			for i := range n {
				k := &s.Container
				if i%2 > 0 {
					k = &s.Sidecars[0].Container
				}
				k.Mounts = append(k.Mounts, Mount{Volume: "v", Path: fmt.Sprint("/m", i), SubPath: "x"})
			}
		},
		"config": func(s *ServiceSpec, n int) {
			for i := range n {
				s.Config = append(s.Config, ConfigFile{Path: fmt.Sprint("/f", i)})
			}
		},
		"ports": func(s *ServiceSpec, n int) {
			for i := range n {
				s.Ports = append(s.Ports, Port{Port: i + 1, HostPort: -1})
			}
		},
	} {
		for _, x := range []struct {
			n  int
			ok bool
		}{{100, true}, {10_000, false}} {
			s := ServiceSpec{Name: "web"}
			s.Image = "web:1"
			make(&s, x.n)
			app := Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"},
				Spec: ApplicationSpec{Services: []ServiceSpec{s}}}
			app.SetDefaults()
			if err := app.Validate(); (err == nil) != x.ok || err != nil && !strings.Contains(fmt.Sprintf("%+v", err), field) {
				t.Errorf("%d %s in a manifest: %v, want taken %t", x.n, field, err, x.ok)
			}
			a := Assignment{ID: "web-r1", Spec: app.Spec.Services[0]}
			if err := a.CheckPlaces(); (err == nil) != x.ok {
				t.Errorf("%d %s in an assignment: %v, want taken %t", x.n, field, err, x.ok)
			}
		}
	}
}
