package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// views shows what the site has, and changes nothing.
type views struct {
	*overlay
	drainer   *drainer
	overrides *autonomy.Overrides
	rebuild   *autonomy.Rebuild
	grants    *grants
	upgrader  *upgrader
}

// Workers lists the site's workers by name.
func (vs *views) Workers() []view.WorkerView {
	count := map[string]int{}
	for _, p := range vs.places {
		count[p.Worker]++
	}
	out := make([]view.WorkerView, 0, len(vs.workers))
	for name, w := range vs.workers {
		v := view.WorkerView{Name: skerry.WorkerName(name), Lost: w.sight.Lost(), Cordon: w.Cordon, Frozen: w.report.Frozen,
			Refusing: w.refusing(), Facts: w.Facts, Reserved: w.reserved,
			Available: w.available(), Used: w.report.Used, Coordinate: w.report.Coordinate, ReportAt: w.reportAt, Instances: count[name]}
		if v.Beats, v.CutOff = w.sight.Beats(), w.sight.CutOff(); w.sight.Lost() {
			v.Verdict = vs.detect.Verdict(w.Name)
		}
		v.Carrier = w.Carrier
		v.Updates = w.updates()
		told := w.trust.Record()
		v.Trust, v.Claims = view.NewTrust(told.Trust), told.Claims
		v.Drain, v.Upgrade = vs.drainer.viewDrain(w), w.Agent
		if k := vs.Children.Get(name); k != nil {
			v.Connected, v.Since, v.Version, v.Machine = k.Connected, k.Since, k.Version, k.Machine
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b view.WorkerView) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

// AppViews lists the site's own applications and what it holds of the root's, by key.
func (vs *views) AppViews(manifest bool) []view.AppView {
	out := []view.AppView{}
	for _, a := range vs.Apps.Apps() {
		if !a.Delegated {
			out = append(out, vs.Apps.View(a, "cluster", manifest))
		}
	}
	for _, v := range vs.RootApps() {
		if vs.overrides.Has(v.Key) {
			v = vs.viewAmended(v, manifest)
		}
		out = append(out, v)
	}
	for _, k := range vs.overrides.Apps() { // of which nothing is left here
		if !slices.ContainsFunc(out, func(v view.AppView) bool { return v.Key == k }) {
			told, _ := vs.overrides.Show(k)
			out = append(out, vs.viewAmended(view.AppView{Key: k, Org: vs.overrides.Org(k), Origin: "root", Deployed: true, Gen: told.Base,
				Services: []view.ServiceView{}}, manifest))
		}
	}
	vs.showIngress(out)
	return out
}

// Grants lists what the users of the root may do here.
func (vs *views) Grants() []wire.Granted { return slices.Clone(vs.grants.list) }

// RootApps shows the root's applications as far as this site knows them: the services and instances that it holds.
func (vs *views) RootApps() []view.AppView {
	by := map[skerry.AppKey]*view.AppView{}
	services := map[skerry.ServiceKey]*view.ServiceView{}
	worst := map[skerry.ServiceKey]*wire.Worst{}
	see := func(a *spec.Assignment) *view.ServiceView {
		v := by[a.Service.App]
		if v == nil {
			v = &view.AppView{Key: a.Service.App, Org: a.Org, Deployed: true, Origin: "root", Status: "Ready"}
			by[a.Service.App] = v
		}
		v.Gen = max(v.Gen, a.Gen)
		service := services[a.Service]
		if service == nil {
			service = &view.ServiceView{Name: a.Service.Service, Mode: a.Spec.Mode, Image: a.Spec.Image, Digest: a.Digest[a.Spec.Image],
				Revision: a.Revision,
				Probed:   a.Spec.Probes.Readiness != nil || a.Spec.Probes.Startup != nil}
			services[a.Service] = service
		}
		return service
	}
	newest, ids := map[skerry.ServiceKey]*spec.Assignment{}, sortedIDs(vs.places)
	for _, id := range ids { // in order: instances of two revisions may have one generation
		inst := vs.places[id]
		if n := newest[inst.A.Service]; n == nil || n.Gen < inst.A.Gen {
			newest[inst.A.Service] = &inst.A
		}
	}
	for _, id := range ids {
		inst := vs.places[id]
		if inst.Origin != "root" || inst.Refused {
			continue
		}
		service := see(newest[inst.A.Service])
		service.Restarts += inst.Obs.Restarts
		if worst[inst.A.Service] == nil {
			worst[inst.A.Service] = &wire.Worst{}
		}
		shown := vs.show(inst)
		worst[inst.A.Service].See(&shown)
		once := inst.A.Spec.Mode == spec.ModeJob || inst.A.Spec.Mode == spec.ModeCron
		if inst.Removing || once && inst.Obs.State == skerry.Terminated {
			continue // it is about to end, or has done its work
		}
		service.Instances++
		if inst.A.Revision == newest[inst.A.Service].Revision {
			service.UpToDate++
		}
		if !once || inst.Obs.State != skerry.Failed { // another one takes its place
			service.Want++
		}
		if inst.Obs.CrashLoop != "" {
			service.CrashLoops++
		}
		if inst.Obs.Ready {
			service.Ready++
		} else if inst.Obs.Unreachable && inst.Obs.State == skerry.Running {
			service.OutOfTouch++
		}
		if !inst.Obs.Ready || inst.Obs.CrashLoop != "" {
			by[inst.A.Service.App].Status = "Progressing"
		}
		if vs.workers.uses(inst) {
			sum := *inst.qos
			if service.QoS != nil {
				sum = service.QoS.Add(sum)
			}
			service.QoS = &sum
		}
	}
	for k, service := range services {
		service.Reason = worst[k].String()
		by[k.App].Services = append(by[k.App].Services, *service)
		if v := by[k.App]; v.Status == "Progressing" && service.Ready+service.OutOfTouch > 0 &&
			(service.Mode == spec.ModeService || service.Mode.HasCopies()) {
			v.Status = "Degraded"
		}
	}
	for k, service := range services {
		if v := by[k.App]; v.Status == "Ready" && service.Instances == 0 &&
			(service.Mode == spec.ModeService || service.Mode.HasCopies()) {
			v.Status = "Progressing" // all that there is of it ends
		}
	}
	out := make([]view.AppView, 0, len(by))
	for _, v := range by {
		if !slices.ContainsFunc(v.Services, func(s view.ServiceView) bool {
			return s.Instances > 0 || s.Mode != spec.ModeJob && s.Mode != spec.ModeCron
		}) {
			v.Status = "Completed"
		}
		slices.SortFunc(v.Services, func(a, b view.ServiceView) int { return strings.Compare(a.Name, b.Name) })
		v.Reason = apps.Reason(v.Services)
		apps.ViewNetwork(v, vs.network(v.Key), true)
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b view.AppView) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// WorkerOf names the worker that runs an instance, or "".
func (l *ledger) WorkerOf(id skerry.InstanceID) string {
	if p := l.places[id]; p != nil {
		return p.Worker
	}
	return ""
}

// Scrapes lists the instances that run and whose service declares metrics.
func (vs *views) Scrapes() []view.Scrape {
	out := []view.Scrape{}
	for _, id := range sortedIDs(vs.places) {
		if p := vs.places[id]; !p.Refused && p.A.Spec.Metrics != nil && p.Obs.State == skerry.Running {
			out = append(out, view.Scrape{Instance: vs.show(p), Metrics: *p.A.Spec.Metrics})
		}
	}
	return out
}

// viewAmended shows an application that was changed here while the root is away, whose present state is in view.
func (vs *views) viewAmended(v view.AppView, manifest bool) view.AppView {
	told, deleted := vs.overrides.Show(v.Key)
	if a := vs.Apps.App(v.Key); a != nil {
		network, rest := v.Network, v.Services
		v = vs.Apps.View(a, "root", manifest)
		v.Network = network
		for _, s := range rest {
			if !slices.ContainsFunc(v.Services, func(o view.ServiceView) bool { return o.Name == s.Name }) {
				v.Services = append(v.Services, s)
			}
		}
		apps.ViewNetwork(&v, vs.network(v.Key), true)
	}
	if deleted {
		v.Status, v.Deleting = "Deleting", true
	}
	v.Amended = told
	return v
}

// Rebuilt tells what a rebuild has come to, or nil for a site that is not rebuilt.
func (vs *views) Rebuilt() *view.Rebuilt {
	if !vs.opt.Rebuild {
		return nil
	}
	rebuilt := &view.Rebuilt{Waiting: vs.rebuild.Waits()}
	for _, name := range vs.Children.Names() {
		if vs.Children.Get(name).Connected {
			rebuilt.Workers++
		}
	}
	rebuilt.Local = vs.rebuild.Services()
	for _, p := range vs.places {
		if p.Origin == "root" && p.Worker != "" && !p.Removing {
			rebuilt.OfRoot++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(vs.orphan)) {
		why := vs.rebuild.Why(id)
		if why == "" {
			why = "on worker " + strings.Join(slices.Sorted(maps.Keys(vs.orphan[id])), ", ") + ": nobody has asked for it"
		}
		if vs.places[id] == nil {
			rebuilt.Left = append(rebuilt.Left, view.RebuiltLeft{Instance: id, Why: why})
		}
	}
	return rebuilt
}

// Volumes lists the local volumes of the site: those of the root's applications and its own.
func (vs *views) Volumes() []view.VolumeView {
	local := map[spec.VolumeClaim]view.VolumeView{}
	for _, v := range vs.Apps.Volumes("local") {
		local[v.Claim()] = v
	}
	out, schedules := []view.VolumeView{}, vs.volumes.Routines()
	for _, k := range vs.volumes.List() {
		v, is := local[k.VolumeClaim]
		if !is {
			v = view.NewVolumeView(k.VolumeClaim)
			v.Origin, v.State, v.Reclaim = "root", view.VolumeKept, ""
			if vs.volumes.Loose(k.VolumeClaim) {
				v.Origin, v.Reclaim = "local", spec.ReclaimKeep
			}
			if !k.Found.IsZero() {
				v.State, v.Since = view.VolumeOrphan, k.Found
			}
		}
		for _, p := range vs.byApp[k.Service.App] {
			if p.claims() == k.VolumeClaim && !p.Refused {
				v.State, v.Instance = view.VolumeUsed, p.A.ID
			}
		}
		v.Scheduled = schedules[k.VolumeClaim]
		v.Org, v.Volumes, v.Size, v.Cluster, v.Worker = k.Org, k.Names, k.Size, skerry.ClusterName(vs.opt.Name), skerry.WorkerName(k.Worker)
		out = append(out, v)
	}
	return out
}

// Snapshots lists the snapshots at the site, by what they are of.
func (vs *views) Snapshots() []spec.Snapshot { return vs.volumes.Snapshots() }

// Unadmitted lists, by id, what runs at the site and would be refused, or given less, if it came today.
func (vs *views) Unadmitted() (out []view.Unadmitted) {
	for _, id := range sortedIDs(vs.places) {
		inst := vs.places[id]
		if inst.Worker == "" || inst.Removing || inst.ended() {
			continue
		}
		level := vs.opt.Admission.LevelOf(inst.A.Org)
		why := vs.opt.Admission.Check(&inst.A)
		if why == nil {
			why = vs.takenHere(&inst.A, inst.Origin)
		}
		switch bound := vs.opt.Admission.egressBound(inst.A.Org); {
		case why == nil && bound != nil && (inst.A.Egress == nil || inst.A.Egress.Beyond(bound) >= 0):
			why = &wire.Reason{What: "admission",
				Text: fmt.Sprintf("it was placed before the site's policy of egress, and reaches %s; once it is placed anew it reaches %s",
					inst.A.Egress, vs.opt.Admission.egressOf(inst.A.Org, &inst.A.Spec)),
				Hint: fmt.Sprintf("restart it to have that now, or change egress.%s in the site's admission policy", inst.A.Org)}
		case why == nil && !slices.Equal(inst.A.Signers, vs.opt.Admission.signersOf(inst.A.Org)) && len(inst.A.Spec.Images()) > 0:
			why = &wire.Reason{What: "admission", Text: "it was placed before the site's policy of signers, and whether one of those keys has signed its images was not looked at",
				Hint: fmt.Sprintf("check them with `skerry image verify`; restart it to have that done now, or change signers.%s in the site's admission policy", inst.A.Org)}
		case why != nil || inst.A.Level != "":
		case level == spec.LevelRestricted:
			why = &wire.Reason{What: "admission",
				Text: "it was placed before there were levels; once it is placed anew it has no capabilities, and 512Mi of memory and 4Gi of storage where it says nothing",
				Hint: fmt.Sprintf("if it needs capabilities, grant them by \"levels: {%s: %s}\" in the site's admission policy", inst.A.Org,
					spec.LevelBaseline)}
		case level == spec.LevelBaseline && (inst.A.Spec.Resources.MostMemory() == 0 || inst.A.Spec.Resources.Storage == 0):
			why = &wire.Reason{What: "admission", Text: "it was placed before there were levels; once it is placed anew it has 512Mi of memory and 4Gi of storage where it says nothing",
				Hint: "if it needs more, say so in resources.memory and resources.storage"}
		}
		if why == nil {
			if text := vs.opt.Admission.checkUsers(inst.A.Org, &inst.A.Spec.Placement); text != "" {
				why = &wire.Reason{What: "admission", Text: "latency to a user is not measured: " + text, Hint: "leave that user out, or grant it"}
			}
		}
		if why != nil {
			out = append(out, view.Unadmitted{Instance: id, Service: inst.A.Service, Org: inst.A.Org, Level: level, Reason: *why})
		}
	}
	for _, org := range slices.Sorted(maps.Keys(vs.opt.Admission.Quotas)) {
		if what := vs.opt.Admission.Quotas[org].exceeded(vs.usedBy(org, "")); what != "" {
			out = append(out, view.Unadmitted{Org: org, Reason: wire.Reason{What: "quota",
				Text: fmt.Sprintf("organisation %s is above the site's quota of %s, which counts limits, and defaults where nothing is said; what runs goes on, and no more is admitted", org, what),
				Hint: fmt.Sprintf("raise quotas.%s in the site's admission policy, or delete something", org)}})
		}
	}
	return out
}

// Aggregate gives what the root learns of the site. Only workers that are in touch count (a dead worker leaves the next
// aggregate).
func (vs *views) Aggregate() wire.ClusterReport {
	var members []uplink.Member
	for _, name := range slices.Sorted(maps.Keys(vs.workers)) {
		w, k := vs.workers[name], vs.Children.Get(name)
		if w.Facts == nil || w.sight.Lost() || k == nil || !k.Connected || w.refusing() != "" {
			continue
		}
		members = append(members, uplink.Member{Facts: w.Facts, Class: w.classKey(), Available: w.available(), Coordinate: w.coordinate()})
	}
	r := uplink.Fold(members)
	for _, p := range vs.places {
		if n := p.A.Spec.Placement.Priority; p.Worker != "" && p.Pinned == "" && !p.Removing && !p.ended() && (r.Lowest == nil || n < *r.Lowest) {
			r.Lowest = &n
		}
	}
	r.Instances = len(vs.places)
	r.Services, r.Ingress, r.Arrivals = vs.foldQoS(), vs.foldIngress(), vs.foldArrivals()
	r.Grants, r.Upgrade = vs.grants.names(), vs.upgrader.shown()
	return r
}

// foldQoS sums what the root's services use here.
func (vs *views) foldQoS() []wire.ServiceQoS {
	by := map[skerry.ServiceKey]*wire.ServiceQoS{}
	for _, id := range sortedIDs(vs.places) {
		p := vs.places[id]
		if p.Origin != "root" || !vs.workers.uses(p) {
			continue
		}
		q := by[p.A.Service]
		if q == nil {
			q = &wire.ServiceQoS{Service: p.A.Service}
			by[p.A.Service] = q
		}
		q.QoS = q.QoS.Add(*p.qos)
		if p.Obs.Ready {
			q.Ready++
		}
	}
	out := make([]wire.ServiceQoS, 0, len(by))
	for _, q := range by {
		out = append(out, *q)
	}
	slices.SortFunc(out, func(a, b wire.ServiceQoS) int { return strings.Compare(a.Service.String(), b.Service.String()) })
	return out
}
