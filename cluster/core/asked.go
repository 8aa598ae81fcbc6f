package core

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// AppView shows one application; the manifest is there for the site's own.
func (vs *views) AppView(key skerry.AppKey, gen skerry.Generation) (view.AppView, error) {
	list := vs.AppViews(true)
	for i := range list {
		if list[i].Key == key {
			vs.showIngress(list[i : i+1])
			return vs.Apps.AsOf(list[i], gen)
		}
	}
	return view.AppView{}, skerry.Errorf(skerry.CodeNotFound, "there is no application %s at this site", key).WithHint("`skerry get apps` lists them")
}

// Admitted gives what has a worker and would be admitted today, by id.
func (vs *views) Admitted() iter.Seq[*spec.Assignment] {
	return func(yield func(*spec.Assignment) bool) {
		for _, id := range sortedIDs(vs.places) {
			p := vs.places[id]
			if p.Worker != "" && !p.Removing && !p.ended() && vs.opt.Admission.Check(&p.A) == nil && !yield(&p.A) {
				return
			}
		}
	}
}

// HasWorker reports whether the site knows a worker.
func (vs *views) HasWorker(name string) bool { return vs.workers.has(name) }

// Serving gives what answers for an instance, and its worker. Of a perWorker service that is one of its copies, one
// that is ready if there is any.
func (vs *views) Serving(id skerry.InstanceID) (worker string, at skerry.InstanceID, err error) {
	if list := vs.copies(id); len(list) > 0 {
		n := max(0, slices.IndexFunc(list, func(p *placement) bool { return p.Obs.Ready }))
		return list[n].Worker, list[n].A.ID, nil
	}
	if _, _, ok := vs.Instance(id); !ok {
		return "", "", NoInstance(id)
	}
	return vs.WorkerOf(id), id, nil
}

// Refused counts what was not taken of workers and of other sites so far, by reason.
func (vs *views) Refused() map[string]int {
	all := maps.Clone(vs.overlayNet.refused)
	maps.Copy(all, vs.remote.sites.Refused())
	return all
}

// Ignored counts what was ignored of workers and of the root so far, by reason.
func (vs *views) Ignored() map[string]int {
	all := vs.Children.Ignored.All()
	for why, n := range vs.Up.Ignored.All() {
		if all == nil {
			all = map[string]int{}
		}
		all[why] += n
	}
	return all
}

// Hosts lists the host names under which the site offers something.
func (vs *views) Hosts() []network.HostEntries { return vs.ingress.Hosts() }

// IngressWorkers lists workers in touch that have an ingress, at most so many.
func (vs *views) IngressWorkers(most int) []string {
	var out []string
	for name := range vs.workers {
		if k := vs.Children.Get(name); vs.ingress.Tells(name) && k != nil && k.Connected {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), most)]
}

// CertificateMetrics sums up the certificates of a public authority.
func (vs *views) CertificateMetrics() certs.Metrics { return vs.certs.Metrics() }

// certificateCounts is what the root learns of the certificates of a public authority: numbers, and no host.
func (vs *views) certificateCounts(now time.Time) *wire.SiteCertificates {
	sum := vs.certs.Metrics()
	if sum.Hosts == 0 {
		return nil
	}
	return &wire.SiteCertificates{Hosts: sum.Hosts, Valid: sum.Valid, Expiring: vs.certs.Expiring(now), Failing: sum.Failing,
		Unserved: sum.Unserved}
}

// IngressAuthority is that of the site's ingresses; nil: they have none.
func (vs *views) IngressAuthority() *wire.IngressCertificate { return vs.ingress.Authority() }

// SecretNames are those that something at the site names.
func (vs *views) SecretNames() map[spec.SecretName]bool {
	named := vs.Apps.SecretNames()
	see := func(a *spec.Assignment) {
		for _, n := range a.Spec.SecretNames(a.Service.App.Namespace) {
			named[n] = true
		}
	}
	for _, p := range vs.places {
		see(&p.A)
	}
	for _, g := range vs.groups {
		see(&g.A)
	}
	return named
}

// OrgsBehind lists the organisations of a namespace of the root's, as far as the site has anything of them.
func (vs *views) OrgsBehind(namespace string) (out []string) {
	for _, p := range vs.places {
		if org := p.A.Org; p.A.Service.App.Namespace == namespace && org != "" && !slices.Contains(out, org) {
			out = append(out, org)
		}
	}
	return out
}

// ImageUses lists what images are used for: by applications of the site's own, by what the root gave it, and by its workers' agents.
func (vs *views) ImageUses() apps.ImageUses {
	uses := vs.Apps.ImageUses()
	see := func(a *spec.Assignment) {
		for _, ref := range a.Spec.Images() {
			uses.Run(cmp.Or(a.Digest[ref], ref), a.Service, a.Gen)
		}
	}
	for _, p := range vs.places {
		see(&p.A)
	}
	for _, g := range vs.groups {
		see(&g.A)
	}
	for name, w := range vs.workers {
		if w.Agent != nil {
			use := uses.Of(w.Agent.Image)
			use.UsedBy = append(use.UsedBy, "worker/"+name)
		}
	}
	return uses
}

// Snapshot finds a snapshot.
func (vs *views) Snapshot(id spec.SnapshotID) (spec.Snapshot, bool) {
	if p := vs.volumes.Snapshot(id); p != nil {
		return *p, true
	}
	return spec.Snapshot{}, false
}

// Readable gives a snapshot that can be read now, from its worker.
func (vs *views) Readable(id spec.SnapshotID) (spec.Snapshot, error) {
	p := vs.volumes.Snapshot(id)
	if p == nil || p.State != spec.SnapshotReady {
		return spec.Snapshot{}, noSnapshot(id)
	}
	return *p, vs.connectedWorker(string(p.Worker))
}

// Restorable reports whether no instance has volumes any more, but for those on workers that are out of touch.
func (vs *views) Restorable(v spec.VolumeClaim) bool {
	for name := range vs.workers {
		if vs.connectedWorker(name) == nil && (disks{b: vs.books}).Occupied(v, name) {
			return false
		}
	}
	return true
}
