package core

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// volumes are the local volumes of a replica here, for as long as the cluster wants them kept.
//
//	claimed (an item of the desired set) ─► kept, with or without an instance ─tombstone─► Gone ─no instance there─► removed
//
// Absence removes nothing: neither does an agent that has lost its store, nor a volume that it does not know.
type volumes struct {
	spec.VolumeClaim
	Gone     bool `json:"gone,omitempty"`
	removing bool
	again    time.Time
}

// Messages and actions about local volumes.
type (
	// RemoveVolumes removes a replica's local volumes -> VolumesRemoved. What asks for them afterwards gets new ones.
	RemoveVolumes struct{ Claim spec.VolumeClaim }
	// VolumesRemoved answers RemoveVolumes.
	VolumesRemoved struct {
		Claim spec.VolumeClaim
		Err   string // empty: nothing is left
	}
)

const (
	prefixVolumes = "volumes/"
	removeAgain   = time.Minute
)

func (c *Core) saveVolumes(v *volumes, fx *wire.Effects) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(prefixVolumes+v.Key(), data)
}

// volumeItem takes what the cluster says of local volumes.
func (c *Core) volumeItem(key string, gone bool, fx *wire.Effects) {
	claim, ok := spec.ParseVolumeKey(key)
	if !ok {
		return
	}
	v := c.vols.claims[claim]
	switch {
	case v == nil && gone:
		return
	case v == nil:
		v = &volumes{VolumeClaim: claim}
		c.vols.claims[claim] = v
	case v.Gone == gone:
		return
	}
	v.Gone = gone
	c.saveVolumes(v, fx)
	c.removeVolumes(v, fx)
}

// removeVolumes removes what nobody wants any more, once no instance is there.
func (c *Core) removeVolumes(v *volumes, fx *wire.Effects) {
	if !v.Gone || v.removing || !c.ledger.ready {
		return
	}
	used := false
	for _, i := range c.ledger.insts {
		_, has := i.A.Spec.LocalSizes()[v.Volume]
		if i.A.Service != v.Service || i.A.Ordinal != v.Ordinal || !has && v.Volume != "" {
			continue
		}
		used = true // its end comes back here
		if _, _, wanted := c.Up.Desired.Get(wire.AssignmentKey(i.A.ID)); v.Volume != "" && wanted {
			delete(c.vols.claims, v.VolumeClaim) // its replica has it again, and what is in it now
			fx.Delete(prefixVolumes + v.Key())
			return
		}
	}
	if used {
		return
	}
	v.removing, v.again = true, time.Time{}
	fx.Actions = append(fx.Actions, RemoveVolumes{v.VolumeClaim})
}

// leftVolumes looks whether what an instance leaves behind is to go.
func (c *Core) leftVolumes(i *inst, fx *wire.Effects) {
	of := spec.VolumeClaim{Service: i.A.Service, Ordinal: i.A.Ordinal}
	for _, claim := range slices.SortedFunc(maps.Keys(c.vols.claims), spec.VolumeClaim.Compare) {
		if claim.Whole() == of {
			c.removeVolumes(c.vols.claims[claim], fx)
		}
	}
}

func (c *Core) volumesRemoved(now time.Time, m VolumesRemoved, fx *wire.Effects) {
	v := c.vols.claims[m.Claim]
	if v == nil {
		return
	}
	v.removing = false
	switch {
	case m.Err != "":
		v.again = now.Add(removeAgain)
		fx.Events = append(fx.Events, wire.Event{At: now, Type: wire.EventWarning, Reason: "VolumesNotRemoved", App: v.Service.App,
			Service: v.Service.Service, Text: "local volumes are not removed yet: " + m.Err})
	case v.Gone:
		delete(c.vols.claims, m.Claim)
		fx.Delete(prefixVolumes + m.Claim.Key())
	}
}

// reviewVolumes takes up, after a start, what an earlier life was told.
func (c *Core) reviewVolumes(fx *wire.Effects) {
	known := c.Up.Desired.Incarnation() != ""
	for _, claim := range slices.SortedFunc(maps.Keys(c.vols.claims), spec.VolumeClaim.Compare) {
		if _, _, wanted := c.Up.Desired.Get(claim.Key()); known {
			c.volumeItem(claim.Key(), !wanted, fx)
		}
		c.removeVolumes(c.vols.claims[claim], fx)
	}
}

// awaitVolumes has an instance wait while another one may write to its local volumes. Whoever places instances ends one
// before the next begins, but a root or a site that was restored from a backup does not know all that runs here.
func awaitVolumes(c *Core, i *inst, fx *wire.Effects) bool {
	o := usesVolumes(c, i)
	if o == nil {
		delete(c.vols.awaited, i.A.ID)
		return false
	}
	c.vols.awaited[i.A.ID] = true
	i.Reason = "waits until instance " + string(o.A.ID) + ", which has its local volumes, has ended"
	c.ledger.save(i, fx)
	return true
}

// usesVolumes gives another instance that has begun with the local volumes of one and has not left, or nil.
func usesVolumes(c *Core, i *inst) *inst {
	if !i.A.Spec.KeepsData() {
		return nil
	}
	for _, id := range c.ledger.ids() {
		if o := c.ledger.insts[id]; o != i && o.A.Service == i.A.Service && o.A.Ordinal == i.A.Ordinal && o.A.Spec.KeepsData() && hasBegun(o) {
			return o
		}
	}
	return nil
}

// hasBegun reports whether something of an instance runs, is being started, or will be without being prepared anew.
func hasBegun(i *inst) bool {
	for _, k := range i.Containers {
		if k.Running || k.start {
			return true
		}
	}
	return i.preparing || i.Phase != skerry.PhaseFetching && i.Phase != skerry.PhaseExited
}

// volumesDue tries again what could not be removed, and goes on with who waited for volumes that are free.
func (c *Core) volumesDue(now time.Time, fx *wire.Effects) {
	for _, id := range slices.Sorted(maps.Keys(c.vols.awaited)) {
		i := c.ledger.insts[id]
		if i == nil || i.Ending || i.Phase != skerry.PhaseFetching {
			delete(c.vols.awaited, id)
		} else if usesVolumes(c, i) == nil {
			i.Reason = ""
			c.prepare(i, fx)
			c.ledger.save(i, fx)
		}
	}
	for _, v := range c.vols.claims {
		if !v.again.IsZero() && !v.again.After(now) {
			c.removeVolumes(v, fx)
		}
	}
}
