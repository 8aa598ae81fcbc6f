package cluster

import (
	"fmt"
	"math"
	"time"

	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// How near a limit something on a worker is, which only the site knows, decides by how much a change there counts for more
// than usual (see worker/pace.go). The margin is what is left to the nearest limit, as a share of it.
//
//	margin   0.40    0.20    0.10    0
//	gain         1       2       4      8
//
// The gain rises at once; it falls only when the margin is clear of the step by slackMargin and some time has passed, so
// that a value which wavers around a step is told once.
const (
	slackMargin = 0.05
	calmGain    = 30 * time.Second
)

// gainSteps is the table of margins below which the gain doubles.
var gainSteps = [...]float64{0.40, 0.20, 0.10}

// gainFor gives the gain for a margin: 1, 2, 4 or 8.
func gainFor(margin float64) uint32 {
	gain := uint32(1)
	for _, s := range gainSteps {
		if margin < s {
			gain *= 2
		}
	}
	return gain
}

// urge tells a worker how near a limit something there is, if that changed by a step.
func (c *Core) urge(now time.Time, w *worker, fx *wire.Effects) {
	k := c.Kids.Get(w.Name)
	if w.Carrier != "" || k == nil || !k.Connected || c.opt.Pace != nil && c.opt.Pace.Report > 0 {
		return // it does not adapt, or must not
	}
	margin, near := c.margin(w)
	gain := gainFor(margin)
	switch {
	case gain == max(w.gain, 1):
		w.gainAt = now
		return
	case gain < w.gain:
		if held := gainFor(margin - slackMargin); held >= w.gain || now.Sub(w.gainAt) < calmGain && !now.Before(w.gainAt) {
			return
		}
	}
	if gain == 1 {
		near = ""
	}
	w.gain, w.gainAt, w.near = gain, now, near
	fx.Sends = append(fx.Sends, wire.Outgoing{To: w.Name, Msg: &wire.Report{Kind: wire.ReportUrgency, Payload: c.codec.Marshal(&wire.Urgency{Gain: gain})}})
}

// margin is how far the nearest limit of anything on a worker is, from 0, it is reached, to 1, and which it is.
func (c *Core) margin(w *worker) (least float64, near string) {
	least = 1
	look := func(used, limit float64, text func() string) {
		if m := 1 - used/limit; limit > 0 && m < least && !math.IsNaN(m) {
			if least = max(m, 0); least < gainSteps[0] {
				near = text()
			}
		}
	}
	if f := w.Facts; f != nil {
		u := w.report.Used
		look(float64(u.Memory), float64(f.Capacity.Memory), func() string { return "the worker's memory" })
		look(float64(u.CPU), float64(f.Capacity.CPU), func() string { return "the worker's processors" })
	}
	for _, id := range sortedIDs(c.byWorker[w.Name]) {
		p := c.byWorker[w.Name][id]
		q := p.qos
		if q == nil || p.Removing || p.ended() {
			continue
		}
		s := &p.A.Spec
		of := func(what string) func() string {
			return func() string { return fmt.Sprintf("the %s of %s", what, p.A.Service.String()) }
		}
		look(float64(q.Memory), float64(s.Need().Memory), of("memory"))
		look(q.Waiting, waitingLimit, of("wait for a processor"))
		for _, l := range s.Links {
			if ms, ok := q.Links[l.Service]; ok && l.MaxLatency != nil {
				look(ms, float64(*l.MaxLatency)/1e6, of("link to "+l.Service))
			}
		}
		if s.Scale != nil && s.Scale.Target.CPU != nil && s.Resources.CPU > 0 {
			// Its number changes when the load leaves the target on either side.
			r := float64(q.CPU) / (float64(s.Resources.CPU) * *s.Scale.Target.CPU)
			if off := math.Abs(1 - r); off < gainSteps[0] {
				look(1-off, 1, of("autoscaling target"))
			}
		}
	}
	return least, near
}

// updates is how a worker's reports come.
func (w *worker) updates() *view.UpdatesView {
	p := w.report.Pace
	if p == nil {
		return nil
	}
	return &view.UpdatesView{EveryMs: p.Every, Why: p.Why, Gain: max(w.gain, 1), Near: w.near}
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
