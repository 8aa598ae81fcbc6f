package cluster

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// fates is what dependents see of a site.
type fates struct{ l *ledger }

// Ends implements autonomy.Fates.
func (f fates) Ends(id skerry.InstanceID) (after time.Duration, ok bool) {
	p := f.l.places[id]
	after, ok = p.alone()
	return after, ok && !p.Removing && !p.Refused && !p.ended() && p.Obs.Phase != skerry.PhaseCutOff
}

// endAlone ends what may not run for so long without the root.
func (am *amender) endAlone(now time.Time, fx *wire.Effects) {
	since, heard := am.uplink.Away()
	for _, id := range am.dependents.Overdue(now, since, heard) {
		p := am.places[id]
		why := "ended by its site, which has not heard the root since it started"
		if heard {
			why = "ended by its site, which has been out of touch with the root for " + now.Sub(since).Round(time.Second).String()
		}
		am.event(fx, now, p, wire.EventWarning, "CutOff", why)
		am.unstrand(p)
		am.abandon(p)
		am.endOriginal(p)
		am.letGo(p)
		am.leave(p, p.Worker)
		am.reserve(p, -1)
		am.questions.Drop(id)
		am.bind(p, "")
		am.wait(id, false)
		p.Obs = wire.Observation{ID: id, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.ClusterScheduled, Phase: skerry.PhaseCutOff, Reason: why, Restarts: p.Obs.Restarts, Restart: p.Obs.Restart}
		am.linked[p.A.Service.App] = true
		am.freed()
		am.changed(now, p, fx)
	}
}
