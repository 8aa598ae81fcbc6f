package apps

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Rebuild takes up an instance that runs, of an application that this controller has lost, with what its assignment says: the
// application grows with each of its instances, one replica for each, unless that replica is there and waits for its local volumes. Its
// organisation and namespace are made if they are not there.
// What an assignment does not hold, such as other services, old versions and who changed what, stays lost. An error means that the
// assignments make no valid application together; nothing was changed then.
func (e *editor) Rebuild(now time.Time, i *Instance, digests map[string]string, fx *wire.Effects) error {
	k := i.Service.App
	next := &App{Org: i.Org, Gen: i.Gen, Deployed: true, CreatedAt: now, UpdatedAt: now, Author: "rebuilt", Digests: map[string]string{}}
	next.Manifest = spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication, Metadata: spec.Metadata{Name: k.Name, Namespace: k.Namespace}}
	if n := e.tenants.spaces[k.Namespace]; n != nil && n.Org != i.Org {
		return skerry.Errorf(skerry.CodeConflict, "it is of organisation %q, and namespace %q belongs to %q", i.Org, k.Namespace, n.Org)
	}
	if a := e.apps[k]; a != nil {
		copied := *a
		next = &copied
		next.Manifest = cloneManifest(a.Manifest)
	}
	replicas := 1
	spec := *i.Spec
	waits := e.waitsForVolumes(i)
	if s := next.Manifest.Spec.Service(i.Service.Service); s == nil {
		next.Manifest.Spec.Services = append(next.Manifest.Spec.Services, spec)
	} else {
		if replicas = *s.Replicas; waits == nil {
			replicas++
		}
		if i.Gen > next.Gen {
			*s = spec
		}
	}
	next.Manifest.Spec.Service(i.Service.Service).Replicas = &replicas
	next.Gen = max(next.Gen, i.Gen)
	for ref, d := range digests {
		next.Digests[ref] = d
	}
	trial := cloneManifest(next.Manifest)
	if err := trial.Validate(); err != nil {
		return err
	}
	next.Manifest.SetDefaults() // which what was assigned has
	if e.tenants.orgs[i.Org] == nil {
		if more, err := e.tenants.putOrg(Org{Name: i.Org}); err == nil {
			fx.Merge(more)
		}
	}
	if e.tenants.spaces[k.Namespace] == nil {
		if more, err := e.tenants.putNamespace(Namespace{Name: k.Namespace, Org: i.Org}); err == nil {
			fx.Merge(more)
		}
	}
	e.addApp(next)
	i.Spec = next.Manifest.Spec.Service(i.Service.Service)
	e.addInstance(i)
	e.saveInstance(i, fx)
	if waits != nil {
		e.stop(now, waits, "instance "+string(i.ID)+" runs with its local volumes", fx)
	}
	s := i.Service.Service // what runs is no new version
	next.setRollout(s, &Rollout{Revision: next.revisions[s], Gen: next.Gen, StartedAt: now, EndedAt: now, Wave: 1, Limit: everything})
	e.saveApp(next, fx)
	e.Look(k)
	return nil
}
