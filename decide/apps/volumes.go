package apps

import (
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// volumes shows the local volumes that this tier decides about, and deletes them.
type volumes struct {
	*lifecycle
	tenants *tenants
}

// DeleteVolume deletes the local volumes of a replica, which no instance has, with what is in them.
type DeleteVolume struct {
	Claim spec.VolumeClaim
	Actor string
}

// Deleted is the answer to Delete.
type Deleted struct {
	Kept    []view.VolumeView `json:"kept,omitempty" doc:"Local volumes that are kept after the application is deleted."`
	Deleted []view.VolumeView `json:"deleted,omitempty" doc:"Local volumes that are deleted with it."`
}

// Volumes lists the local volumes that this tier decides about, by name. Origin says who it is.
func (vs *volumes) Volumes(origin string) []view.VolumeView {
	var out []view.VolumeView
	for app, list := range vs.claimed {
		if a := vs.apps[app]; a != nil && a.Delegated {
			continue
		}
		for _, k := range list {
			if !vs.again(k) {
				out = append(out, vs.view(k, origin))
			}
		}
	}
	view.SortVolumes(out)
	return out
}

func (vs *volumes) view(k *claim, origin string) view.VolumeView {
	v := view.NewVolumeView(k.VolumeClaim)
	v.Org, v.Volumes, v.Size, v.Since, v.Origin = vs.tenants.OrgOf(v.Namespace), k.Volumes, k.Size, k.Idle, origin
	if k.Reclaim {
		v.Reclaim = spec.ReclaimDelete
	}
	a := vs.apps[k.Service.App]
	switch i := vs.userOf(k.VolumeClaim); {
	case i != nil:
		v.State, v.Instance, v.Worker = view.VolumeUsed, i.ID, i.Worker
	case k.Volume == "" && a != nil && !a.Deleting && a.Manifest.Spec.Service(k.Service.Service).KeepsData():
		v.State = view.VolumeIdle
	default:
		v.State = view.VolumeKept
	}
	if origin == "root" {
		v.Cluster = skerry.ClusterName(k.Holder)
	}
	return v
}

// deleted tells what becomes of the local volumes of an application that is deleted.
func (vs *volumes) deleted(a *App) (out Deleted) {
	for _, k := range vs.claimed[a.Key()] {
		switch v := vs.view(k, ""); {
		case !k.Ran, vs.again(k):
		case k.Reclaim || a.DeleteVolumes:
			out.Deleted = append(out.Deleted, v)
		default:
			out.Kept = append(out.Kept, v)
		}
	}
	view.SortVolumes(out.Kept)
	view.SortVolumes(out.Deleted)
	return out
}

func (vs *volumes) delete(now time.Time, m DeleteVolume) (wire.Effects, error) {
	var fx wire.Effects
	app := m.Claim.Service.App
	k, a := vs.claimed[app][m.Claim], vs.apps[app]
	if k == nil || vs.again(k) {
		return fx, skerry.Errorf(skerry.CodeNotFound, "there is no volume %s", m.Claim).WithHint("`skerry get volumes` lists them")
	}
	if a != nil && a.Delegated {
		return fx, VolumeOfRoot(m.Claim)
	}
	if i := vs.userOf(m.Claim); i != nil {
		return fx, skerry.Errorf(skerry.CodeConflict, "instance %s uses volume %s", i.ID, m.Claim).
			WithHint("delete the application first, or scale the service down")
	}
	vs.dropClaim(k, &fx)
	fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventNormal, Reason: "VolumeDeleted", Org: vs.tenants.OrgOf(app.Namespace), App: app, Service: m.Claim.Service.Service,
		Text: "volume " + m.Claim.String() + " is deleted with what is in it, by " + orNobody(m.Actor)})
	return fx, nil
}

// VolumeOfRoot refuses what a site does not decide.
func VolumeOfRoot(v spec.VolumeClaim) error {
	return skerry.Errorf(skerry.CodeWrongTier, "volume %s belongs to an application of the root, which decides about it", v).WithHint("repeat this at the root")
}

// findsAgain tells which kept local volumes the services of an application use again.
func (vs *volumes) findsAgain(a *App) (out []string) {
	for i := range a.Manifest.Spec.Services {
		s, n := &a.Manifest.Spec.Services[i], 0
		for _, k := range vs.claimed[a.Key()] {
			if k.Volume == "" && k.Service.Service == s.Name && s.KeepsData() && k.Ordinal < *s.Replicas && k.Ran &&
				vs.view(k, "").State == view.VolumeKept {
				n++
			}
		}
		if n > 0 {
			out = append(out, s.Name+" uses the kept local volumes of "+plural(n, "replica")+" again")
		}
	}
	return out
}

// checkSizes refuses a manifest with volumes that would have to become smaller: what is in them may not fit, so that workers leave them as
// they are, and the manifest would say something else. What it says already, as after an undo, it may go on saying.
func (vs *volumes) checkSizes(app *spec.Application, old *App) error {
	var wrong []skerry.Problem
	for i := range app.Spec.Services {
		s, was := &app.Spec.Services[i], map[string]skerry.Bytes{}
		if old != nil {
			was = old.Manifest.Spec.Service(s.Name).LocalSizes()
		}
		for j := range s.Volumes {
			v := &s.Volumes[j]
			if v.Local == nil {
				continue
			}
			before, is := was[v.Name]
			if is && before == v.Local.Size {
				continue
			}
			if k, has := vs.largest(skerry.ServiceKey{App: app.Key(), Service: s.Name}, v.Name, before); has > v.Local.Size {
				wrong = append(wrong, skerry.Problem{Path: "spec.services[" + itoa(i) + "].volumes[" + itoa(j) + "].local.size",
					Message: "volume " + v.Name + " of " + view.NewVolumeView(k).Name + " has " + has.String() + ", and a volume never becomes smaller",
					Hint:    "write " + has.String() + " or more, or give the volume another name and copy what is in it"})
			}
		}
	}
	if len(wrong) > 0 {
		return &skerry.Error{Code: skerry.CodeInvalid, Message: "the manifest is not valid", Problems: wrong}
	}
	return nil
}

// largest gives the replica whose volume of a name is the largest one that is there, and its size. What the manifest said before stands for
// sizes that an earlier version did not note.
func (vs *volumes) largest(service skerry.ServiceKey, name string, before skerry.Bytes) (of spec.VolumeClaim, size skerry.Bytes) {
	for _, v := range slices.SortedFunc(maps.Keys(vs.claimed[service.App]), spec.VolumeClaim.Compare) {
		k := vs.claimed[service.App][v]
		if v.Service != service || !k.Ran || !slices.Contains(k.Volumes, name) {
			continue
		}
		has, noted := k.sizes()[name]
		if !noted {
			has = before
		}
		if has > size {
			of, size = v, has
		}
	}
	return of, size
}

// releaseClaims gives up the local volumes that are to go with services that an application no longer has, once no instance is left. The
// others are kept.
func (vs *volumes) releaseClaims(now time.Time, app skerry.AppKey, a *App, fx *wire.Effects) {
	for _, v := range slices.SortedFunc(maps.Keys(vs.claimed[app]), spec.VolumeClaim.Compare) {
		k := vs.claimed[app][v]
		if k == nil {
			continue // it went with all of its replica
		}
		s := a.Manifest.Spec.Service(v.Service.Service)
		if s.KeepsData() {
			if _, _, reclaimed := s.LocalVolumes(); reclaimed != k.Reclaim {
				k.Reclaim = reclaimed
				vs.saveClaim(k, fx)
			}
		}
		there := s.KeepsData() && !a.Deleting
		switch {
		case vs.userOf(v) != nil:
		case vs.again(k):
			if !k.Idle.IsZero() {
				k.Idle = time.Time{}
				vs.saveClaim(k, fx)
			}
		case !there && len(vs.byService[v.Service]) == 0 && (k.Reclaim || !k.Ran || a.DeleteVolumes || a.Delegated):
			vs.dropClaim(k, fx)
		case k.Idle.IsZero():
			k.Idle = now
			vs.saveClaim(k, fx)
		}
	}
}

// ReviewClaims forgets, after a start, claims of applications that are gone if somebody else decides about the data, or there is none. An
// application that was given back left such claims in earlier versions.
func (vs *volumes) ReviewClaims(others func(v spec.VolumeClaim) bool, fx *wire.Effects) {
	for app, list := range vs.claimed {
		for v, k := range list {
			if vs.apps[app] == nil && others(v) {
				vs.dropClaim(k, fx)
			}
		}
	}
}

// loses names the services of an application whose local volumes go, and those whose local volumes are kept, if it comes to be what a
// manifest says.
func (vs *volumes) loses(app *spec.Application) (lost, kept []string) {
	gone, stay := map[string]int{}, map[string]int{}
	for _, v := range slices.SortedFunc(maps.Keys(vs.claimed[app.Key()]), spec.VolumeClaim.Compare) {
		k := vs.claimed[app.Key()][v]
		switch s := app.Spec.Service(v.Service.Service); {
		case v.Volume != "", vs.apps[app.Key()] == nil:
		case s.KeepsData():
			for _, name := range k.Volumes {
				if _, has := s.LocalSizes()[name]; k.Ran && !has {
					one := v
					one.Volume = name
					kept = append(kept, v.Service.Service+": volume "+name+" is kept, although the manifest no longer has it; `skerry delete volume "+
						view.NewVolumeView(one).Name+"` deletes it")
				}
			}
		case k.Reclaim:
			gone[v.Service.Service]++
		case vs.userOf(v) != nil:
			stay[v.Service.Service]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		lost = append(lost, name+": the local volumes of "+plural(gone[name], "replica")+" are removed with what is in them, because the manifest no longer has them")
	}
	for _, name := range slices.Sorted(maps.Keys(stay)) {
		kept = append(kept, name+": the local volumes of "+plural(stay[name], "replica")+" are kept, although the manifest no longer has them; `skerry delete volume` deletes them")
	}
	return lost, kept
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return itoa(n) + " " + what + "s"
}
