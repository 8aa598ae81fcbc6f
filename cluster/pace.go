package cluster

import (
	"time"

	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// urge tells a worker how near a limit something there is, if that changed by a step.
func (c *Core) urge(now time.Time, w *worker, fx *wire.Effects) {
	k := c.Kids.Get(w.Name)
	if w.Carrier != "" || k == nil || !k.Connected || c.opt.Pace != nil && c.opt.Pace.Report > 0 {
		return // it does not adapt, or must not
	}
	if gain, changed := w.urgency.See(now, c.margin(w)); changed {
		fx.Sends = append(fx.Sends, wire.Outgoing{To: w.Name, Msg: &wire.Report{Kind: wire.ReportUrgency, Payload: c.codec.Marshal(&wire.Urgency{Gain: gain})}})
	}
}

// margin is how far the nearest limit of anything on a worker is.
func (c *Core) margin(w *worker) moves.Margin {
	m := moves.NewMargin()
	if f := w.Facts; f != nil {
		m.Machine(&w.report.Used, &f.Capacity)
	}
	for _, id := range sortedIDs(c.byWorker[w.Name]) {
		if p := c.byWorker[w.Name][id]; p.qos != nil && !p.Removing && !p.ended() {
			m.Instance(&p.A, p.qos)
		}
	}
	return m
}

// updates is how a worker's reports come.
func (w *worker) updates() *view.UpdatesView {
	p := w.report.Pace
	if p == nil {
		return nil
	}
	gain, near := w.urgency.Told()
	return &view.UpdatesView{EveryMs: p.Every, Why: p.Why, Gain: gain, Near: near}
}

// informedAt is the time from which the numbers of a worker age. The scheduler expects a report every minute from a worker on which nothing
// changes (sched, freshness). A worker that reports less often, because its traffic costs money, is known as well, up to the slowest pace.
func informedAt(w *worker) time.Time {
	const usual, slowest = time.Minute, 5 * time.Minute
	if p := w.report.Pace; p != nil {
		every := min(time.Duration(p.Every)*time.Millisecond, slowest)
		return w.reportAt.Add(max(0, every-usual))
	}
	return w.reportAt
}
