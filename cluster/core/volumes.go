package core

import (
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// claimAt has a worker keep the local volumes of an instance that it gets.
func (b *books) claimAt(p *placement, worker string) {
	if !p.A.Spec.KeepsData() || worker == "" {
		return
	}
	names, size, _ := p.A.Spec.LocalVolumes()
	b.volumes.Place(p.claims(), worker, volumes.Want{Size: size, Org: p.A.Org, Names: names, Sizes: p.A.Spec.LocalSizes()})
	b.countBesides(p.A.Org)
}

// ranWithData notes that there is data now.
func (b *books) ranWithData(p *placement) {
	if p.A.Spec.KeepsData() {
		b.volumes.Ran(p.claims(), p.Worker)
	}
}

// dataAt gives the worker to which an instance is bound by its local volumes, or "". A drain by force gives them up.
func (b *books) dataAt(p *placement) string {
	if !p.A.Spec.KeepsData() {
		return ""
	}
	at := b.volumes.At(p.claims())
	if w := b.workers[at]; w == nil || w.Drain != nil && w.Drain.Force {
		return ""
	}
	return at
}

// releaseClaims has workers remove the data of replicas that nobody wants any more.
func (b *books) releaseClaims() {
	if b.Apps.Reclaimed() != nil {
		b.volumes.Touch()
	}
	for _, org := range b.volumes.Release() {
		b.countBesides(org)
	}
}

// reviewClaims brings, after a start, what workers are to keep in line with the claims.
func (b *books) reviewClaims() {
	for _, name := range b.Children.Names() {
		for _, key := range b.Children.Get(name).Desired.Keys() {
			if v, ok := spec.ParseVolumeKey(key); ok && !b.volumes.Wanted(v, name) {
				b.Children.Delete(name, key)
			}
		}
	}
	b.volumes.Start()
	for _, id := range sortedIDs(b.places) { // half of a commit may have been lost
		p := b.places[id]
		if !b.volumes.Known(p.claims()) && !p.Removing {
			b.claimAt(p, p.Worker)
		}
		if p.A.Spec.KeepsData() && !p.Refused {
			b.volumes.Adopt(p.claims(), p.A.Org)
		}
	}
}

// forgetClaims gives up what was on a worker that is gone for good.
func (b *books) forgetClaims(now time.Time, worker string, fx *wire.Effects) {
	for _, v := range b.volumes.Forget(worker) {
		fx.Delete(volumes.Prefix + v.Key())
		if v.Data {
			b.siteEvent(fx, now, wire.EventWarning, "DataLost",
				"the local volumes of "+v.Service.String()+" (replica "+strconv.Itoa(v.Ordinal)+") were on worker "+worker+", which was removed",
				worker)
		}
	}
	for _, o := range b.Apps.Orgs() { // their snapshots there are gone as well
		b.countBesides(o.Name)
	}
}

// disks is what the claims of volumes see of a site.
type disks struct {
	b      *books
	sender *sender // seals what they are to keep
}

// Keep implements volumes.Site.
func (d disks) Keep(worker string, v spec.VolumeClaim, org string) {
	d.sender.keepVolumes(worker, v, org)
}

// Drop implements volumes.Site.
func (d disks) Drop(worker string, v spec.VolumeClaim) { d.sender.drop(worker, v.Key()) }

// KeepSnapshot implements volumes.Site.
func (d disks) KeepSnapshot(worker string, id spec.SnapshotID, record []byte) {
	d.sender.keepSnapshot(worker, id, record)
}

// DropSnapshot implements volumes.Site.
func (d disks) DropSnapshot(worker string, id spec.SnapshotID) { d.sender.drop(worker, id.Key()) }

// Reserve implements volumes.Site.
func (d disks) Reserve(worker string, size skerry.Bytes) {
	if w := d.b.workers[worker]; w != nil {
		w.reserved.Storage += size
		d.b.site.SetAvailable(w.Name, w.available())
	}
}

// Occupied implements volumes.Site.
func (d disks) Occupied(v spec.VolumeClaim, worker string) bool {
	if w := d.b.workers[worker]; w != nil {
		for _, h := range w.leaving {
			if h.Service == v.Service && h.Ordinal == v.Ordinal {
				return true
			}
		}
	}
	for _, p := range d.b.byApp[v.Service.App] {
		if p.claims() == v && p.Worker == worker && !p.ended() {
			return true
		}
	}
	return false
}

// Replica implements volumes.Site.
func (d disks) Replica(v spec.VolumeClaim) bool {
	for _, p := range d.b.byApp[v.Service.App] {
		if p.claims() == v {
			return true
		}
	}
	return false
}

// Routine implements volumes.Site.
func (d disks) Routine(v spec.VolumeClaim) volumes.Routine {
	for _, p := range d.b.byApp[v.Service.App] {
		if p.claims() == v && !p.Refused && !p.Removing {
			if s := p.target().Spec.Snapshots; s != nil && s.Schedule != "" {
				r := volumes.Routine{Schedule: s.Schedule, Keep: s.Kept(), Far: s.Far()}
				if s.Export != nil {
					r.To, r.Recipients = s.Export.To, strings.Join(s.Export.Recipients, " ")
				}
				return r
			}
		}
	}
	return volumes.Routine{}
}

// Owned implements volumes.Site.
func (d disks) Owned(v spec.VolumeClaim) bool {
	_, _, owned := d.b.Up.Desired.Get(v.Key())
	if a := d.b.Apps.App(v.Service.App); v.Volume != "" && a != nil && a.Delegated {
		return owned // it is the root's, which has yet to hear of it
	}
	return owned || d.b.Apps.Claimed(v) != ""
}

// Write implements volumes.Site.
func (d disks) Write(w wire.Write) { d.b.note(w) }

// notLocal reports whether the root decides about volumes, or there are none.
func (b *books) notLocal(v spec.VolumeClaim) bool {
	_, _, owned := b.Up.Desired.Get(v.Key())
	return owned || !b.volumes.Known(v)
}

// othersData says why an instance may not have volumes of its name: they are kept for another organisation.
func (b *books) othersData(a *spec.Assignment) *wire.Reason {
	if !a.Spec.KeepsData() {
		return nil
	}
	v := spec.VolumeClaim{Service: a.Service, Ordinal: a.Ordinal}
	if b.volumes.OtherOrg(v, a.Org) == "" {
		return nil
	}
	return &wire.Reason{What: "volumes", Text: "this site keeps volumes " + v.String() + " of another organisation",
		Hint: "name the application or service otherwise"}
}

// countBesides has the quota of an organisation count what it has on disks that no instance asks for.
func (b *books) countBesides(org string) { b.Apps.SetBesides(org, b.volumes.Besides(org)) }
