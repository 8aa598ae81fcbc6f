package core

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	"skerry.dev/skerry"
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

// reporter owns what the cluster is told of the machine and its use, and when the next report is due. It knows nothing of instances but
// what they use.
type reporter struct {
	fixed    time.Duration // as Options.ReportFixed
	facts    *wire.WorkerFacts
	devices  map[string][]string // as Facts.Devices
	factsNew bool                // they go into the next report
	refusing string              // why it gets no new work; empty: it does
	usage    Usage               // now
	told     Usage               // in the last report
	seq      uint64
	asked    wire.Pace // that the cluster asks for
	reportAt time.Time // the last report; zero: the next one is due at once
	sentAt   time.Time // the last report, also where something had the next one told at once
	area     float64   // of the divergence since the last report, up to
	at       time.Time // then
	apart    float64   // since then
	gain     float64   // 0 and 1: nothing is near a limit
	gap      float64   // seconds from report to report, of late
	changes  bool      // the cluster understands reports of what changed
	// known is the use of instances that the cluster has been told on this connection; nil: none.
	known   map[skerry.InstanceID]wire.QoS
	wholeAt time.Time // when it was told of all
}

// MeasureEvery has use measured at another interval than usual; 0: as usual.
type MeasureEvery struct{ Every time.Duration }

// grow adds up the divergence until now.
func (r *reporter) grow(now time.Time) {
	if d := now.Sub(r.at); !r.at.IsZero() && d > 0 {
		r.area += d.Seconds() * r.rate()
	}
	r.at = now
}

// rate is how fast the area grows.
func (r *reporter) rate() float64 {
	return max(r.gain, 1) * (r.apart + reportCost/r.most().Seconds())
}

// most is the longest interval.
func (r *reporter) most() time.Duration {
	return max(mostReport, time.Duration(r.asked.ReportIdle)*time.Millisecond)
}

// least is the shortest interval.
func (r *reporter) least() time.Duration {
	link := max(leastReport, linkTrips*r.usage.RTT)
	link = time.Duration(float64(link) / (1 - min(max(r.usage.Loss, 0), worstLoss)))
	return max(min(link, mostReport), time.Duration(r.asked.Report)*time.Millisecond)
}

// linked begins with a connection to the cluster, which learns all there is.
func (r *reporter) linked(now time.Time, w *wire.Welcome, fx *wire.Effects) {
	r.asked = wire.Pace{}
	if w.Pace != nil {
		r.asked = *w.Pace
	}
	r.changes, r.known = slices.Contains(w.Features, wire.FeatureChanges), nil
	r.setGain(now, wire.Urgency{}, fx)
	r.factsNew = true
	r.hasten()
}

// hasten has the next report be due at once.
func (r *reporter) hasten() { r.reportAt = time.Time{} }

// setFacts takes what the machine is.
func (r *reporter) setFacts(facts wire.WorkerFacts) {
	if r.facts != nil && reflect.DeepEqual(*r.facts, facts) {
		return
	}
	r.facts, r.factsNew = &facts, true
	r.hasten()
}

// given gives where devices are now; nil: it is not known yet what there is.
func (r *reporter) given(devices []string) map[string][]string {
	if r.facts == nil || len(devices) == 0 {
		return nil
	}
	out := map[string][]string{}
	for _, d := range devices {
		out[d] = r.devices[d]
	}
	return out
}

// stillAt reports whether a device is where it was. More nodes of it than before are no other device.
func (r *reporter) stillAt(device string, places []string) bool {
	return !slices.ContainsFunc(places, func(p string) bool { return !slices.Contains(r.devices[device], p) })
}

// refuse keeps new work away; an empty text ends that.
func (r *reporter) refuse(text string) {
	if r.refusing != text {
		r.refusing = text
		r.hasten()
	}
}

// forget takes an instance that is gone out of what is used.
func (r *reporter) forget(id skerry.InstanceID) { delete(r.usage.Instances, id) }

// used takes what is used now.
func (r *reporter) used(now time.Time, u Usage) {
	r.grow(now)
	r.usage = u
	r.apart = divergence(r.told, u)
}

// due is when the next report is due.
func (r *reporter) due() time.Time {
	if r.reportAt.IsZero() {
		return time.Time{} // there is something that is told at once
	}
	if r.fixed > 0 {
		return r.reportAt.Add(r.fixed)
	}
	due := r.reportAt.Add(r.most())
	if left := max(reportCost-r.area, 0) / r.rate(); left < mostReport.Seconds()*2 {
		if at := r.at.Add(time.Duration(math.Ceil(left*1e3)) * time.Millisecond); at.Before(due) {
			due = at
		}
	}
	if at := r.reportAt.Add(r.least()); due.Before(at) {
		due = at
	}
	return due
}

// report gives the next report, and notes that it is sent.
func (r *reporter) report(now time.Time, frozen string) wire.WorkerReport {
	r.seq++
	pace := r.interval(now)
	r.told = r.usage
	out := wire.WorkerReport{Seq: r.seq, Used: r.usage.Used, Instances: r.usage.Instances, Refusing: r.refusing, Frozen: frozen,
		Coordinate: r.usage.Coordinate, Pressure: r.usage.Pressure, Ingress: r.usage.Ingress, Heard: r.usage.Heard, Pace: &pace}
	if r.factsNew {
		out.Facts, r.factsNew = r.facts, false
	}
	r.onlyChanges(now, &out)
	r.reportAt = now
	return out
}

// wholeEvery is how often a cluster is told of all instances. Until then it may know of one a little less than what is notable.
const wholeEvery = 10 * time.Minute

// onlyChanges takes out of a report what the cluster knows already.
func (r *reporter) onlyChanges(now time.Time, report *wire.WorkerReport) {
	if since := now.Sub(r.wholeAt); !r.changes || r.known == nil || since < 0 || since >= wholeEvery {
		r.known, r.wholeAt = maps.Clone(report.Instances), now
		if r.known == nil {
			r.known = map[skerry.InstanceID]wire.QoS{}
		}
		return
	}
	report.Changes, report.Instances = true, map[skerry.InstanceID]wire.QoS{}
	for id, is := range r.usage.Instances {
		if was, told := r.known[id]; !told || worthTelling(&was, &is) {
			report.Instances[id], r.known[id] = is, is
		}
	}
	for id := range r.known {
		if _, there := r.usage.Instances[id]; !there {
			report.Gone = append(report.Gone, id)
			delete(r.known, id)
		}
	}
	slices.Sort(report.Gone)
}

// interval begins another interval, and gives what a report says of the one that ends.
func (r *reporter) interval(now time.Time) wire.ReportPace {
	r.grow(now)
	gap := now.Sub(r.sentAt).Seconds()
	switch {
	case r.sentAt.IsZero() || gap < 0:
		r.gap = 0
	case r.gap == 0:
		r.gap = gap
	default:
		r.gap += (gap - r.gap) * gapShare
	}
	out := wire.ReportPace{Every: uint32(r.gap * 1000), Why: r.whyNow()}
	r.sentAt = now
	r.area, r.apart = 0, 0
	return out
}

// whyNow says in a word what made the interval what it is.
func (r *reporter) whyNow() string {
	switch {
	case r.fixed > 0:
		return wire.PaceFixed
	case r.asked.Report > 0:
		return wire.PaceMetered
	case r.least() > leastReport && r.area > 2*reportCost:
		return wire.PaceLink // it would have been earlier
	case r.gain > 1 && r.apart < 1:
		return wire.PaceLimit
	case r.apart >= 0.25:
		return wire.PaceChange
	}
	return wire.PaceIdle
}

// setGain takes how near a limit the cluster says that something here is.
func (r *reporter) setGain(now time.Time, u wire.Urgency, fx *wire.Effects) {
	gain := min(max(float64(u.Gain), 1), mostGain)
	if gain == max(r.gain, 1) {
		return
	}
	r.grow(now)
	r.gain = gain
	every := time.Duration(0)
	if gain > 1 {
		every = max(UsualMeasure/time.Duration(gain), measureLeast)
	}
	fx.Actions = append(fx.Actions, MeasureEvery{every})
}

// UsualMeasure is how often use is measured.
const UsualMeasure = 10 * time.Second
