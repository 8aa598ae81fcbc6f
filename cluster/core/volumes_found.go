package core

import (
	"time"

	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// findVolumes takes up the volumes that a worker keeps and this store does not know: it was lost, or is an older backup. They are nobody's until
// an application of their name comes back; absence removes nothing.
func (s *sender) findVolumes(now time.Time, child *members.Child, fx *wire.Effects) {
	orphans, known := child.Desired.Orphans()
	if !known {
		return
	}
	for _, o := range orphans { // in order of their keys: a replica comes before its single volumes
		v, ok := spec.ParseVolumeKey(o.Key)
		k, sealed := s.codec.SealedVolumes(s.sealKey(), child.Name, o.Value)
		switch {
		case !ok || s.unclear[child.Name+"/"+o.Key]:
		case !sealed || k.Claim() != v || !s.volumes.TakeUp(now, v, child.Name, k.Org):
			s.unclear[child.Name+"/"+o.Key] = true
			why := "volumes of that name are elsewhere now"
			if !sealed {
				why = "it is not shown that this site had them kept there"
			}
			s.siteEvent(fx, now, wire.EventWarning, "VolumesLeft", "worker "+child.Name+" keeps volumes "+v.String()+" from before, which are not taken up: "+why, child.Name)
		default:
			s.countBesides(k.Org)
			s.siteEvent(fx, now, wire.EventWarning, "VolumesFound", "worker "+child.Name+" keeps volumes "+v.String()+", which this site's store did not know; "+
				"an application of that name uses them again, and `skerry delete volume` deletes them", child.Name)
		}
	}
}
