package core

import (
	"errors"
	"slices"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// TestSecretsForWhoHoldsThem: a site gets the version that something names which it holds, and no others. What a site says of
// the root's applications while it was alone brings it no more.
func TestSecretsForWhoHoldsThem(t *testing.T) {
	r := newHostileRoot(t, "a", "b")
	for id, name := range []string{"db", "vault"} {
		r.step(apps.PutSecret{Namespace: "acme", Name: name, Version: apps.SecretVersion{ID: string(rune('a' + id)), Files: []string{"x"}, Sealed: []byte("sealed")}})
	}
	k := r.apply("shop", "", "a")
	next := r.c.Apps.App(k.App).Manifest
	next.Spec.Services = slices.Clone(next.Spec.Services)
	next.Spec.Services[0].Secrets = []spec.SecretUse{{Name: "db"}}
	r.step(apps.Apply{App: next})
	db, other := spec.SecretName{Namespace: "acme", Name: "db", Version: "1-a"}, spec.SecretName{Namespace: "acme", Name: "vault", Version: "1-b"}
	var fx wire.Effects
	for _, i := range r.c.Apps.Instances(k) {
		if i.Holder == "" {
			r.c.give(r.now, i, "a", nil, &fx)
		}
	}
	has := r.c.Views().hasSecret
	if !has("a", db) || has("b", db) || has("a", other) || r.c.Apps.Secret(db) == nil {
		t.Errorf("a has it: %v, b has it: %v, a has another: %v", has("a", db), has("b", db), has("a", other))
	}
	forged := next.Spec.Services[0]
	forged.Secrets = []spec.SecretUse{{Name: "vault", Current: "1-guessed"}}
	replicas := 1
	forged.Replicas = &replicas
	_, _, err := r.c.Apps.Adopt(r.now, "a", &wire.Amendment{App: k.App, Base: r.c.Apps.App(k.App).Gen, Author: "mallory", At: r.now,
		Services: []wire.AmendedService{{Name: "web", Replicas: 1, Spec: &forged}}}, false, func(*wire.Effects) skerry.Fence { return skerry.Fence{} }, &fx)
	if _, waits := errors.AsType[*apps.WaitsError](err); !waits {
		t.Errorf("a secret that a site names by guessing: %v", err)
	}
}
