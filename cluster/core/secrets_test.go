package core

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// TestSecretsForWhoRunsThem: a worker gets the versions that something names which it was given, or is to take over, or has a copy of, and no others.
func TestSecretsForWhoRunsThem(t *testing.T) {
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	svc := spec.ServiceSpec{Name: "web", Secrets: []spec.SecretUse{{Name: "db", Current: "2-b"}}}
	c := &ledger{places: map[skerry.InstanceID]*placement{
		"web-1": {A: spec.Assignment{ID: "web-1", Service: k, Spec: svc}, location: location{Worker: "w1"}, Next: &successor{Worker: "w2"}, Original: &original{Worker: "w5"}},
		"box-1": {A: spec.Assignment{ID: "box-1", Service: k}, location: location{Worker: "w3"}},
	}}
	name := spec.SecretName{Namespace: "default", Name: "db", Version: "2-b"}
	for _, x := range []struct {
		worker string
		edit   func(*spec.SecretName)
		want   bool
	}{
		{"w1", nil, true}, {"w2", nil, true}, {"w5", nil, true}, {"w3", nil, false}, {"w4", nil, false}, {"", nil, false},
		{"w1", func(n *spec.SecretName) { n.Version = "1-a" }, false},
		{"w1", func(n *spec.SecretName) { n.Version = "" }, false},
		{"w1", func(n *spec.SecretName) { n.Name = "dc" }, false},
		{"w1", func(n *spec.SecretName) { n.Namespace = "other" }, false},
	} {
		n := name
		if x.edit != nil {
			x.edit(&n)
		}
		if got := c.HasSecret(x.worker, n); got != x.want {
			t.Errorf("%s asks for %+v: %v", x.worker, n, got)
		}
	}
}
