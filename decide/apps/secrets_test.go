package apps

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// sealed is a version of a secret as a server makes it.
func sealed(id string) SecretVersion {
	return SecretVersion{ID: id, Files: []string{"password"}, Size: 3, Sealed: []byte("sealed " + id)}
}

func uses(list ...spec.SecretUse) func(*Apply) {
	return func(a *Apply) { a.App.Spec.Services[0].Secrets = slices.Clone(list) }
}

func TestSecrets(t *testing.T) {
	c := controller(t, Quota{})
	db := spec.SecretUse{Name: "db"}
	put := func(rotate bool, id string) PutSecret {
		return PutSecret{Namespace: "default", Name: "db", Rotate: rotate, Actor: "anne", Version: sealed(id)}
	}
	current := func(service string) string { return c.App(shop).Manifest.Spec.Service(service).Secrets[0].Current }

	refused(t, c, apply(1, uses(db)), skerry.CodeInvalid, "not valid")
	if _, err := c.Plan(now, apply(1, uses(db)).App, nil); err == nil || !strings.Contains(skerry.AsError(err).Problems[0].Hint, "skerry secret create db") {
		t.Errorf("planned without the secret: %v", err)
	}
	refused(t, c, put(true, "a"), skerry.CodeNotFound, "no secret")
	refused(t, c, PutSecret{Namespace: "nowhere", Name: "db", Version: sealed("a")}, skerry.CodeNotFound, "no namespace")
	if fx, _ := c.Handle(now, PutSecret{Namespace: "default", Name: "db", Version: SecretVersion{ID: "a"}}); fx.Err == nil {
		t.Error("what is not sealed was taken")
	}
	do(t, c, put(false, "a"))
	refused(t, c, put(false, "b"), skerry.CodeConflict, "already")

	// One takes the newest, one keeps to a version, a job has what it was applied with.
	done := 1
	do(t, c, apply(1, uses(db), func(a *Apply) {
		pinned, job := a.App.Spec.Services[0], a.App.Spec.Services[0]
		pinned.Name, pinned.Secrets = "pinned", []spec.SecretUse{{Name: "db", Version: 1}}
		job.Name, job.Mode, job.Replicas, job.Job, job.Secrets = "job", spec.ModeJob, nil, &spec.JobSpec{Completions: &done}, []spec.SecretUse{db}
		a.App.Spec.Services = append(a.App.Spec.Services, pinned, job)
	}))
	before := maps.Clone(c.App(shop).revisions)
	v := do(t, c, put(true, "b")).Result.(view.SecretView)
	if v.Version != 2 || v.Author != "anne" || !slices.Equal(v.UsedBy, []string{"shop/job", "shop/pinned", "shop/web"}) || len(v.Versions) != 2 {
		t.Errorf("%+v", v)
	}
	for service, want := range map[string]string{"web": "2-b", "pinned": "1-a", "job": "1-a"} {
		if got := current(service); got != want || (c.App(shop).revisions[service] != before[service]) != (want == "2-b") {
			t.Errorf("%s has %s, revision %s, before %s", service, got, c.App(shop).revisions[service], before[service])
		}
	}
	if list := c.Instances(skerry.ServiceKey{App: shop, Service: "web"}); c.App(shop).Gen != 2 || list[0].Spec.Secrets[0].Current != "2-b" {
		t.Errorf("generation %d, %+v: the update did not begin", c.App(shop).Gen, list[0].Spec.Secrets)
	}
	name := func(version string) spec.SecretName {
		return spec.SecretName{Namespace: "default", Name: "db", Version: version}
	}
	for version, want := range map[string]string{"1-a": "sealed a", "2-b": "sealed b", "1-b": "", "2": ""} {
		if got := c.Secret(name(version)); string(got) != want {
			t.Errorf("version %s: %q", version, got)
		}
	}
	refused(t, c, DeleteSecret{Namespace: "default", Name: "db"}, skerry.CodeConflict, "shop/job, shop/pinned, shop/web")
	refused(t, c, DeleteNamespace{Name: "default"}, skerry.CodeConflict, "application")

	// Back to what the generation before had, with the secret that it had; the same manifest again takes the newest.
	do(t, c, Undo{Service: skerry.ServiceKey{App: shop, Service: "web"}})
	if got := current("web"); got != "1-a" {
		t.Errorf("undone: %s", got)
	}
	do(t, c, apply(1, uses(db)))
	if got := current("web"); got != "2-b" {
		t.Errorf("applied again: %s", got)
	}

	// What nobody names is forgotten, but for the last few.
	for _, id := range []string{"c", "d", "e", "f"} {
		do(t, c, put(true, id))
	}
	c.App(shop).Rollouts["web"].EndedAt = now // else what it came from is kept, with its secret
	for range maxPast + 1 {
		n := len(c.history.earlier[shop])
		do(t, c, apply(1, uses(db), func(a *Apply) { a.App.Spec.Services[0].Env = map[string]string{"N": itoa(n + int(c.App(shop).Gen))} }))
	}
	for _, i := range c.InstancesOf(shop) {
		if i.Revision != c.App(shop).revisions["web"] {
			c.dropInstance(i, &wire.Effects{})
		}
	}
	do(t, c, put(true, "g"))
	if c.Secret(name("1-a")) != nil || c.Secret(name("6-f")) == nil || c.Secret(name("7-g")) == nil {
		t.Errorf("%+v", c.Secrets("default")[0].Versions)
	}

	// Loaded again it is the same; deleted with the application it is gone, and made again it is another.
	fresh := controller(t, Quota{})
	for _, w := range do(t, c, put(true, "h")).Writes {
		if w.Value == nil {
			continue
		}
		if ours, err := fresh.Load(w.Key, w.Value); !ours || err != nil {
			t.Errorf("%s: %v %v", w.Key, ours, err)
		}
	}
	if string(fresh.Secret(name("8-h"))) != "sealed h" {
		t.Error("it was not stored")
	}
	for _, i := range c.InstancesOf(shop) {
		c.dropInstance(i, &wire.Effects{})
	}
	do(t, c, Delete{Key: shop})
	do(t, c, DeleteSecret{Namespace: "default", Name: "db"})
	refused(t, c, DeleteSecret{Namespace: "default", Name: "db"}, skerry.CodeNotFound, "no secret")
	do(t, c, put(false, "i"))
	if c.Secret(name("1-a")) != nil || c.Secret(name("1-i")) == nil {
		t.Error("a new secret passes for the old one")
	}
	refused(t, c, DeleteNamespace{Name: "default"}, skerry.CodeConflict, "secret db")
}

// TestDelegatedSecrets: a site changes the root's application with the secrets that it had, and with no others.
func TestDelegatedSecrets(t *testing.T) {
	had := apply(1, uses(spec.SecretUse{Name: "db", Current: "2-b"})).App
	for _, x := range []struct {
		use     spec.SecretUse
		refused bool
	}{{spec.SecretUse{Name: "db"}, false}, {spec.SecretUse{Name: "db", Version: 2, Current: "9-forged"}, false}, {spec.SecretUse{Name: "db", Version: 1}, true}, {spec.SecretUse{Name: "other"}, true}} {
		next := apply(1, uses(x.use)).App
		err := DelegateSecrets(&next, &had)
		if got := next.Spec.Services[0].Secrets[0].Current; (err != nil) != x.refused || !x.refused && got != "2-b" {
			t.Errorf("%+v: %q, %v", x.use, got, err)
		}
	}
}
