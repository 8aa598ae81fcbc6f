package cluster

import (
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/fleet"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// notGiven is why what a worker holds is not taken up.
const notGiven = "it is not shown that this site gave it to that worker; apply its application again"

// salvager takes up what workers run and this store has lost, of the site's own applications: all of it in a rebuild, and else what an
// operator names.
type salvager struct {
	*lifecycle
	intake  *intake
	rebuild *autonomy.Rebuild
	opt     *Options
}

// salvageFrom takes up what a worker runs of the site's own applications, which this store has lost, with what the worker holds of
// it. What is the root's, the root tells itself, and adopt then finds the copy that runs.
func (sv *salvager) salvageFrom(now time.Time, child *fleet.Child, fx *wire.Effects) {
	orphans, known := child.Desired.Orphans()
	if !known {
		return
	}
	for _, o := range orphans {
		id, ok := strings.CutPrefix(o.Key, "inst/")
		if !ok || sv.places[skerry.InstanceID(id)] != nil || !ofSite(skerry.InstanceID(id)) {
			continue
		}
		value, orphaned, has := child.Observed.Get(o.Key)
		var a spec.Assignment
		var obs wire.Observation
		if !has || orphaned || sv.said(value, &obs) != nil || sv.codec.Unmarshal(o.Value, &a) != nil || string(a.ID) != id {
			continue
		}
		why := notGiven
		if sv.wasGiven(child.Name, o.Value) {
			why = sv.salvageOne(now, child.Name, &a, &obs, fx)
		}
		if why != "" {
			sv.rebuild.Left(a.ID, "on worker "+child.Name+", of "+a.Service.String()+": "+why)
		}
	}
}

func (sv *salvager) salvageOne(now time.Time, worker string, a *spec.Assignment, obs *wire.Observation, fx *wire.Effects) (why string) {
	switch app := sv.Apps.App(a.Service.App); {
	case a.Spec.Mode != spec.ModeService:
		return "only services are taken up, and this is a " + string(a.Spec.Mode)
	case obs.State != skerry.Running || obs.Fence != a.Fence:
		return "it does not run as it was assigned last"
	case app != nil && !sv.rebuild.Made(a.Service.App):
		return "the application is there already, and does not know this instance"
	}
	if sv.Apps.Instance(a.ID) != nil {
		return ""
	}
	wanted := 1
	if a.Spec.Replicas != nil {
		wanted = *a.Spec.Replicas
	}
	if err := sv.takeUp(now, a, obs, fx); err != nil {
		return err.Error()
	}
	sv.rebuild.Took(a.Service, a.ID, wanted)
	sv.siteEvent(fx, now, wire.EventNormal, "Salvaged", fmt.Sprintf("%s, an instance of %s, runs on worker %s; its application was rebuilt from what the worker holds", a.ID, a.Service, worker), worker)
	return ""
}

// rootAway reports whether there is a root, and it is not connected.
func (sv *salvager) rootAway() bool { return !sv.opt.Standalone && !sv.Up.Connected }

// endRebuild takes up what workers run once they have had their time, and has services be as many as they were.
func (sv *salvager) endRebuild(now time.Time, fx *wire.Effects) {
	if !sv.rebuild.End(now, sv.rootAway()) {
		return
	}
	for _, name := range sv.Kids.Names() {
		if child := sv.Kids.Get(name); child.Settled() {
			sv.salvageFrom(now, child, fx)
		}
	}
	for _, r := range sv.rebuild.Services() {
		if r.Wanted > r.Instances {
			more, _ := sv.Apps.Handle(now, apps.Scale{Service: r.Service, Replicas: r.Wanted, Actor: "rebuilt"})
			fx.Merge(more)
		}
	}
	sv.siteEvent(fx, now, wire.EventNormal, "Rebuilt", "the site was rebuilt from what its workers hold; `skerry cluster status` tells what was not recovered", "")
}
