package core

import (
	"math"
	"time"

	"skerry.dev/skerry/wire"
)

// When the next full report is due (the lambda of Oakestra, section 3.2, which the paper leaves open). What the site holds is
// wrong by the divergence of usage since the last report, and the harm of that is its integral over time, the penalty of the
// age of incorrect information (Maatouk et al., 2020). A report is sent when the integral reaches what a report costs (sampling by
// the integral criterion: Miskowicz, Sensors 7, 2007): at once after a jump, soon while something moves, and after a minute where
// nothing does. A noise that comes and goes adds little, which is the hysteresis.
//
//	due when  the integral of gain * (divergence + idle)  reaches cost,  within [least, most] of the last report
//
// gain is told by the cluster, which knows how near a limit what runs here is; least is 1 s, more on a slow or lossy link,
// where a report is on its way for longer than that.
const (
	leastReport = time.Second
	mostReport  = time.Minute
	// reportCost is in seconds of a divergence of 1, which is what a scheduler or a person would notice: 5 s of that are worth
	// a report.
	reportCost = 5.0
	// linkTrips is how many round trips lie between two reports at least.
	linkTrips = 4
	// worstLoss bounds what loss does to that.
	worstLoss = 0.75
	// mostGain bounds what the cluster may ask for.
	mostGain = 8
	// gapShare is how much of the interval that is shown the last gap is.
	gapShare = 0.3
	// measureLeast bounds how often use is measured because a limit is near.
	measureLeast = 2 * time.Second
)

// pacing is what is known of when to report.
type pacing struct {
	sentAt time.Time // the last report, also where something had the next one told at once
	area   float64   // of the divergence since the last report, up to
	at     time.Time // then
	apart  float64   // since then
	gain   float64   // 0 and 1: nothing is near a limit
	gap    float64   // seconds from report to report, of late
}

// MeasureEvery has use measured at another interval than usual; 0: as usual.
type MeasureEvery struct{ Every time.Duration }

// grow adds up the divergence until now.
func (c *Core) grow(now time.Time) {
	p := &c.pacing
	if d := now.Sub(p.at); !p.at.IsZero() && d > 0 {
		p.area += d.Seconds() * c.rate()
	}
	p.at = now
}

// rate is how fast the area grows.
func (c *Core) rate() float64 {
	return max(c.pacing.gain, 1) * (c.pacing.apart + reportCost/c.most().Seconds())
}

// most is the longest interval.
func (c *Core) most() time.Duration {
	return max(mostReport, time.Duration(c.pace.ReportIdle)*time.Millisecond)
}

// least is the shortest interval.
func (c *Core) least() time.Duration {
	link := max(leastReport, linkTrips*c.usage.RTT)
	link = time.Duration(float64(link) / (1 - min(max(c.usage.Loss, 0), worstLoss)))
	return max(min(link, mostReport), time.Duration(c.pace.Report)*time.Millisecond)
}

// used takes what is used now.
func (c *Core) used(now time.Time, u Usage) {
	c.grow(now)
	c.usage = u
	c.pacing.apart = divergence(c.told, u)
}

// reportDue is when the next report is due.
func (c *Core) reportDue() time.Time {
	p := &c.pacing
	if c.reportAt.IsZero() {
		return time.Time{} // there is something that is told at once
	}
	if c.opt.ReportFixed > 0 {
		return c.reportAt.Add(c.opt.ReportFixed)
	}
	due := c.reportAt.Add(c.most())
	if left := max(reportCost-p.area, 0) / c.rate(); left < mostReport.Seconds()*2 {
		if at := p.at.Add(time.Duration(math.Ceil(left*1e3)) * time.Millisecond); at.Before(due) {
			due = at
		}
	}
	if at := c.reportAt.Add(c.least()); due.Before(at) {
		due = at
	}
	return due
}

// reported notes that a report was sent, and gives what it says of the interval.
func (c *Core) reported(now time.Time) wire.ReportPace {
	p := &c.pacing
	c.grow(now)
	gap := now.Sub(c.pacing.sentAt).Seconds()
	switch {
	case c.pacing.sentAt.IsZero() || gap < 0:
		p.gap = 0
	case p.gap == 0:
		p.gap = gap
	default:
		p.gap += (gap - p.gap) * gapShare
	}
	out := wire.ReportPace{Every: uint32(p.gap * 1000), Why: c.whyNow()}
	c.pacing.sentAt = now
	p.area, p.apart = 0, 0
	return out
}

// whyNow says in a word what made the interval what it is.
func (c *Core) whyNow() string {
	switch {
	case c.opt.ReportFixed > 0:
		return wire.PaceFixed
	case c.pace.Report > 0:
		return wire.PaceMetered
	case c.least() > leastReport && c.pacing.area > 2*reportCost:
		return wire.PaceLink // it would have been earlier
	case c.pacing.gain > 1 && c.pacing.apart < 1:
		return wire.PaceLimit
	case c.pacing.apart >= 0.25:
		return wire.PaceChange
	}
	return wire.PaceIdle
}

// setGain takes how near a limit the cluster says that something here is.
func (c *Core) setGain(now time.Time, u wire.Urgency, fx *wire.Effects) {
	gain := min(max(float64(u.Gain), 1), mostGain)
	if gain == max(c.pacing.gain, 1) {
		return
	}
	c.grow(now)
	c.pacing.gain = gain
	every := time.Duration(0)
	if gain > 1 {
		every = max(UsualMeasure/time.Duration(gain), measureLeast)
	}
	fx.Actions = append(fx.Actions, MeasureEvery{every})
}

// UsualMeasure is how often use is measured.
const UsualMeasure = 10 * time.Second
