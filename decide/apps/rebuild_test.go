package apps

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What is taken up belongs to the organisation whose namespace it is in: after a backup was restored that may be another one.
func TestRebuildOfAnotherOrganisation(t *testing.T) {
	c := controller(t, Quota{})
	spec := spec.ServiceSpec{Name: "web", Mode: spec.ModeService}
	spec.Image = "web:1"
	one := 1
	spec.Replicas = &one
	for _, org := range []string{"rogue", "harbour"} {
		want := org == "harbour"
		var fx wire.Effects
		i := &Instance{Instance: wire.Instance{ID: skerry.InstanceID("web-" + org), Service: skerry.ServiceKey{App: shop, Service: "web"}, Org: org, Gen: 1, State: skerry.Running}, Spec: &spec, Holder: "a"}
		err := c.Rebuild(now, i, nil, &fx)
		if (err == nil) != want || !want && (!strings.Contains(err.Error(), `namespace "default" belongs to "harbour"`) || c.App(shop) != nil || len(fx.Writes) > 0 || c.orgs["rogue"] != nil) {
			t.Errorf("of %s: %v", org, err)
		}
	}
}
