package cluster

import (
	"time"

	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/wire"
)

// urge tells a worker how near a limit something there is, if that changed by a step.
func (rp *reports) urge(now time.Time, w *worker, fx *wire.Effects) {
	k := rp.Kids.Get(w.Name)
	if w.Carrier != "" || k == nil || !k.Connected || rp.opt.Pace != nil && rp.opt.Pace.Report > 0 {
		return // it does not adapt, or must not
	}
	if gain, changed := w.urgency.See(now, rp.margin(w)); changed {
		fx.Sends = append(fx.Sends, wire.Outgoing{To: w.Name, Msg: &wire.Report{Kind: wire.ReportUrgency, Payload: rp.codec.Marshal(&wire.Urgency{Gain: gain})}})
	}
}

// margin is how far the nearest limit of anything on a worker is.
func (rp *reports) margin(w *worker) moves.Margin {
	m := moves.NewMargin()
	if f := w.Facts; f != nil {
		m.Machine(&w.report.Used, &f.Capacity)
	}
	for _, id := range sortedIDs(rp.byWorker[w.Name]) {
		if p := rp.byWorker[w.Name][id]; p.qos != nil && !p.Removing && !p.ended() {
			m.Instance(&p.A, p.qos)
		}
	}
	return m
}
