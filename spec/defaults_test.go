package spec

import (
	"strings"
	"testing"
)

// A limit on a link binds both of its ends, since either may be placed second; a policy that is named stays.
func TestDefaultPolicy(t *testing.T) {
	app := Application{Spec: ApplicationSpec{Services: []ServiceSpec{
		{Name: "web", Links: []Link{{Service: "db", MaxDistance: 120}, {Service: "log"}, {Service: "cache", MaxDistance: 120}}},
		{Name: "db"},
		{Name: "log"},
		{Name: "cache", Placement: Placement{Policy: PolicyROM}},
	}}}
	app.SetDefaults()
	for i, want := range []string{PolicyLDP, PolicyLDP, PolicyROM, PolicyROM} {
		if s := &app.Spec.Services[i]; s.Placement.Policy != want {
			t.Errorf("%s has policy %s; expected %s", s.Name, s.Placement.Policy, want)
		}
	}
	alone := Application{Spec: ApplicationSpec{Services: []ServiceSpec{{Name: "db"}}}}
	alone.SetDefaults()
	if is, was := app.Spec.Services[1].Revision(), alone.Spec.Services[0].Revision(); is != was {
		t.Errorf("a link to it gives db revision %s, which was %s", is, was)
	}
	if w := app.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0], "cache: ") {
		t.Errorf("warnings are %q; expected one about cache", w)
	}
}
