package core

import (
	"encoding/json"
	"fmt"
	"iter"
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

// volumeBook owns which local volumes are kept here, which are to go, and which instances wait for volumes that another one has.
//
// A claim is in the book until its files are gone, and its record says what the book does.
type volumeBook struct {
	ledger *ledger
	claims map[spec.VolumeClaim]*volumes
	// awaited are the instances that wait for volumes which another one has.
	awaited map[skerry.InstanceID]bool
}

func newVolumeBook(l *ledger) *volumeBook {
	return &volumeBook{l, map[spec.VolumeClaim]*volumes{}, map[skerry.InstanceID]bool{}}
}

// load takes a record of local volumes.
func (b *volumeBook) load(value []byte) error {
	v := new(volumes)
	if err := json.Unmarshal(value, v); err != nil {
		return err
	}
	b.claims[v.VolumeClaim] = v
	return nil
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
	// VolumeDeleted tells of a local volume that somebody else deletes.
	VolumeDeleted struct {
		Claim spec.VolumeClaim
		Text  string
	}
)

const (
	prefixVolumes = "volumes/"
	removeAgain   = time.Minute
)

func (b *volumeBook) save(v *volumes, fx *wire.Effects) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	fx.Put(prefixVolumes+v.Key(), data)
}

// item takes what the cluster says of local volumes.
func (b *volumeBook) item(claim spec.VolumeClaim, gone bool, fx *wire.Effects) {
	v := b.claims[claim]
	switch {
	case v == nil && gone:
		return
	case v == nil:
		v = &volumes{VolumeClaim: claim}
		b.claims[claim] = v
	case v.Gone == gone:
		return
	}
	v.Gone, v.again = gone, time.Time{}
	b.save(v, fx)
	b.remove(v, fx)
}

// remove removes what nobody wants any more, once no instance is there.
func (b *volumeBook) remove(v *volumes, fx *wire.Effects) {
	if !v.Gone || v.removing || !b.ledger.ready {
		return
	}
	used := false
	for _, i := range b.ledger.insts {
		_, has := i.A.Spec.LocalSizes()[v.Volume]
		if i.A.Service != v.Service || i.A.Ordinal != v.Ordinal || !has && v.Volume != "" {
			continue
		}
		used = true // its end comes back here
		if _, _, wanted := b.ledger.up.Desired.Get(wire.AssignmentKey(i.A.ID)); v.Volume != "" && wanted {
			delete(b.claims, v.VolumeClaim) // its replica has it again, and what is in it now
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

// left looks whether what an instance leaves behind is to go.
func (b *volumeBook) left(i *inst, fx *wire.Effects) {
	of := spec.VolumeClaim{Service: i.A.Service, Ordinal: i.A.Ordinal}
	for _, claim := range slices.SortedFunc(maps.Keys(b.claims), spec.VolumeClaim.Compare) {
		if claim.Whole() == of {
			b.remove(b.claims[claim], fx)
		}
	}
}

// removed takes what came of a removal.
func (b *volumeBook) removed(now time.Time, m VolumesRemoved, fx *wire.Effects) {
	v := b.claims[m.Claim]
	if v == nil {
		return
	}
	v.removing = false
	switch {
	case m.Err != "":
		if v.Gone { // else they are wanted again
			v.again = now.Add(removeAgain)
		}
		b.warn(now, m.Claim, wire.EventWarning, "VolumesNotRemoved", "local volumes are not removed yet: "+m.Err, fx)
	case v.Gone:
		delete(b.claims, m.Claim)
		fx.Delete(prefixVolumes + m.Claim.Key())
	}
}

// deleted tells of a volume that somebody else deletes, unless it is to go.
func (b *volumeBook) deleted(now time.Time, m VolumeDeleted, fx *wire.Effects) {
	for _, of := range []spec.VolumeClaim{m.Claim, m.Claim.Whole()} {
		if v := b.claims[of]; v != nil && v.Gone {
			return
		}
	}
	b.warn(now, m.Claim, wire.EventWarning, "VolumeDeleted", m.Text, fx)
}

// warn tells of volumes, as of the instance that has them, if there is one.
func (b *volumeBook) warn(now time.Time, claim spec.VolumeClaim, kind wire.EventType, reason, text string, fx *wire.Effects) {
	for _, id := range b.ledger.ids() {
		if i := b.ledger.insts[id]; i.A.Service == claim.Service && i.A.Ordinal == claim.Ordinal {
			b.ledger.event(now, i, kind, reason, text, fx)
			return
		}
	}
	fx.Events = append(fx.Events, wire.Event{At: now, Type: kind, Reason: reason, App: claim.Service.App, Service: claim.Service.Service,
		Text: text})
}

// review takes up, after a start, what an earlier life was told.
func (b *volumeBook) review(fx *wire.Effects) {
	known := b.ledger.up.Desired.Incarnation() != ""
	for _, claim := range slices.SortedFunc(maps.Keys(b.claims), spec.VolumeClaim.Compare) {
		if _, _, wanted := b.ledger.up.Desired.Get(claim.Key()); known {
			b.item(claim, !wanted, fx)
		}
		b.remove(b.claims[claim], fx)
	}
}

// await has an instance wait while another one may write to its local volumes. Whoever places instances ends one
// before the next begins, but a root or a site that was restored from a backup does not know all that runs here.
func (b *volumeBook) await(i *inst, fx *wire.Effects) bool {
	o := b.holder(i)
	if o == nil {
		delete(b.awaited, i.A.ID)
		return false
	}
	b.awaited[i.A.ID] = true
	i.Reason = "waits until instance " + string(o.A.ID) + ", which has its local volumes, has ended"
	b.ledger.save(i, fx)
	return true
}

// holder gives another instance that has begun with the local volumes of one and has not left, or nil.
func (b *volumeBook) holder(i *inst) *inst {
	if !i.A.Spec.KeepsData() {
		return nil
	}
	for _, id := range b.ledger.ids() {
		if o := b.ledger.insts[id]; o != i && o.A.Service == i.A.Service && o.A.Ordinal == i.A.Ordinal &&
			o.A.Spec.KeepsData() && hasBegun(o) {
			return o
		}
	}
	return nil
}

// freed gives one after the other the instances that waited for volumes which are free by now. What was done with one counts for the next.
func (b *volumeBook) freed() iter.Seq[*inst] {
	return func(yield func(*inst) bool) {
		for _, id := range slices.Sorted(maps.Keys(b.awaited)) {
			i := b.ledger.insts[id]
			if i == nil || i.Ending || i.Phase != skerry.PhaseFetching {
				delete(b.awaited, id)
			} else if b.holder(i) == nil && !yield(i) {
				return
			}
		}
	}
}

// retry tries again what could not be removed.
func (b *volumeBook) retry(now time.Time, fx *wire.Effects) {
	for _, claim := range slices.SortedFunc(maps.Keys(b.claims), spec.VolumeClaim.Compare) {
		if v := b.claims[claim]; !v.again.IsZero() && !v.again.After(now) {
			v.again = time.Time{} // an instance that is there again has it removed at its end
			b.remove(v, fx)
		}
	}
}

// due is when retry has something to do, or the zero time.
func (b *volumeBook) due() (next time.Time) {
	for _, v := range b.claims {
		if !v.again.IsZero() && (next.IsZero() || v.again.Before(next)) {
			next = v.again
		}
	}
	return next
}

// audit lists what contradicts itself between two steps.
func (b *volumeBook) audit() (faults []string) {
	for claim, v := range b.claims {
		if claim != v.VolumeClaim {
			faults = append(faults, fmt.Sprintf("volumes %s are in the book as %s", v.Key(), claim.Key()))
		}
		if !v.Gone && !v.again.IsZero() {
			faults = append(faults, fmt.Sprintf("volumes %s are to be removed, and wanted", v.Key()))
		}
	}
	return faults
}
