package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// spot is where one copy of a group belongs: a worker, and in mode perDevice one of the devices there. What a worker finds in a network is
// one spot, whoever of the site's workers sees it: by its name and its address there, which are all that anybody knows of it.
//
//	worker                 mode perWorker
//	worker/class=name      mode perDevice
//	/class=name@address    the same, of a device in a network
type spot string

// deviceSpot is where the copy for a device belongs that a worker offers.
func deviceSpot(worker string, d *spec.DeviceOffer) spot {
	if d.Host != "" {
		return spot("/" + d.Name + "@" + d.Host)
	}
	return spot(worker + "/" + d.Name)
}

// worker gives the only worker of a spot; empty: it is in a network.
func (s spot) worker() string {
	worker, _, _ := strings.Cut(string(s), "/")
	return worker
}

// device gives the name of its device; empty: it is a whole worker.
func (s spot) device() string {
	worker, device, _ := strings.Cut(string(s), "/")
	if worker == "" {
		device = device[:max(strings.LastIndexByte(device, '@'), 0)]
	}
	return device
}

// inNetwork reports whether several workers may see its device.
func (s spot) inNetwork() bool { return strings.HasPrefix(string(s), "/") }

// suffix tells the copies of a group apart by their IDs. A device's name, such as its serial number, is not to be read there.
func (s spot) suffix() string {
	if s.device() == "" {
		return string(s)
	}
	sum := sha256.Sum256([]byte(s[len(s.worker()):]))
	return strings.TrimPrefix(s.worker()+"-", "-") + hex.EncodeToString(sum[:5])
}

// spot is where a copy of a group belongs.
func (p *placement) spot() spot { return cmp.Or(p.Spot, spot(p.Pinned)) }

// spots gives where the copies of a service belong, with the workers on which each can be, by name.
func (f *finder) spots(s *spec.ServiceSpec) map[spot][]string {
	out := map[spot][]string{}
	for _, name := range slices.Sorted(maps.Keys(f.workers)) {
		if s.Mode != spec.ModePerDevice {
			out[spot(name)] = []string{name}
			continue
		}
		for _, d := range s.Each(f.site.Devices(name)) {
			at := deviceSpot(name, &d)
			out[at] = append(out[at], name)
		}
	}
	return out
}

// copyAt makes a copy of a group for a spot, on a worker.
func (g *group) copyAt(at spot, worker string) *placement {
	p := &placement{A: g.A, Origin: g.Origin, Group: g.A.ID, location: location{Pinned: worker}}
	p.A.ID += "-" + skerry.InstanceID(at.suffix())
	p.A.Exchange = ""
	if device := at.device(); device != "" {
		p.Spot, p.A.Spec = at, g.A.Spec.For(device)
	}
	return p
}

// notFor reports whether a spot is none for a group's service, whatever runs there.
func (f *finder) notFor(g *group, at spot, worker string) bool {
	device := at.device()
	if of := g.A.Spec.DeviceClasses(); device != "" && (len(of) != 1 || of[0] != spec.DeviceClass(device)) {
		return true
	}
	p := g.copyAt(at, worker)
	policy, _, why := f.policyOf(&p.A)
	return why == nil && f.site.Fails(policy.OfMachines(), f.request(p), worker) != nil
}

const (
	// deviceGrace is for how long a copy is kept whose device has gone: one that is plugged in again soon gets it back. What comes and goes
	// all the time does not have the site make copies all the time.
	deviceGrace = 30 * time.Second
	// A copy that lost its device is started again after a time that doubles, up to the longest, unless it ran for long.
	firstAgain, longestAgain, ranLong = time.Second, time.Minute, 10 * time.Minute
)

// restart has a copy started again that its worker has given up for its device, as others are by their owner.
func (l *lifecycle) restart(now time.Time, p *placement, fx *wire.Effects) {
	if now.Sub(p.Placed) > ranLong {
		p.Moves = 0
	}
	p.Moves++
	l.move(now, p, p.Obs.Reason, false, fx)
	p.again = now.Add(min(firstAgain<<min(p.Moves-1, 10), longestAgain))
}

// lostDevice reports whether a copy has ended at its worker because its device went, rather than by itself.
func (p *placement) lostDevice() bool {
	always := p.A.Spec.Restart.Policy == "" || p.A.Spec.Restart.Policy == "always"
	return p.Group != "" && len(p.A.Devices) > 0 && p.Obs.State == skerry.Failed && always && !p.Removing
}

// expand gives every spot that fits its copy, and ends copies whose spot is no longer there. It says what is over a quota.
func (in *intake) expand(now time.Time, g *group, policy sched.Policy, fx *wire.Effects) (over *wire.Reason) {
	spots, have, on := in.find.spots(&g.A.Spec), map[spot]bool{}, map[string]int{}
	stay, _ := in.before(g)
	for _, p := range stay {
		have[p.spot()] = true
		on[p.Pinned]++
	}
	for _, p := range in.copies(g.A.ID) {
		have[p.spot()] = true
		on[p.Pinned]++
		in.review(now, g, p, spots[p.spot()], policy, fx)
	}
	for at := range in.begunFor(g) {
		if w := in.workers[at.worker()]; at.device() != "" && len(spots[at]) == 0 && !have[at] && (w == nil || !w.untold) {
			in.settled(g, at, fx) // there is nothing that the next version could serve
		}
	}
	for _, at := range slices.Sorted(maps.Keys(spots)) {
		if have[at] {
			continue
		}
		p := in.placeAt(now, g, at, spots[at], policy)
		if p == nil || in.places[p.A.ID] != nil {
			continue
		}
		if at.device() != "" && on[p.Pinned] >= spec.MaxCopiesWorker {
			in.crowded(now, g, p, fx)
			continue
		}
		if over = in.admission.CheckQuota(in.usedBy(p.A.Org, p.A.ID), &p.A); over != nil {
			break
		}
		on[p.Pinned]++
		p.Created = now
		p.Obs = wire.Observation{ID: p.A.ID, Gen: p.A.Gen, Fence: p.A.Fence, State: skerry.ClusterScheduled}
		in.addPlacement(p)
		in.wait(p.A.ID, true)
		in.changed(now, p, fx)
	}
	return over
}

// placeAt makes the copy for a spot on the best of the workers on which it can be; nil: none of them can take it. One that runs it already
// comes first.
func (in *intake) placeAt(now time.Time, g *group, at spot, workers []string, policy sched.Policy) (best *placement) {
	score := 0.0
	for _, name := range workers {
		p := g.copyAt(at, name)
		d := in.site.Place(now, policy, in.find.request(p), 0)
		if d.Chosen == "" {
			continue
		}
		if len(workers) == 1 || in.orphan[p.A.ID][name] {
			return p
		}
		if s := d.Top[0].Score; best == nil || s > score {
			best, score = p, s
		}
	}
	return best
}

// review ends a copy whose worker has left, or whose device has been gone for a while, and moves one for a device in a network to another
// worker that sees it. The workers given are those that do.
func (in *intake) review(now time.Time, g *group, p *placement, workers []string, policy sched.Policy, fx *wire.Effects) {
	w := in.workers[p.Pinned]
	seen := slices.Contains(workers, p.Pinned)
	switch {
	case p.Removing, w != nil && w.untold && !w.sight.Lost(): // it has yet to tell of its devices
		return
	case len(workers) == 0 && p.Spot != "" && w != nil && (p.gone.IsZero() || now.Before(p.gone.Add(deviceGrace))) && !p.ended():
		if p.gone.IsZero() {
			p.gone = now
		}
		if at := p.gone.Add(deviceGrace); in.goneAt.IsZero() || at.Before(in.goneAt) {
			in.goneAt = at
		}
		return
	case len(workers) == 0:
		if p.Spot != "" {
			in.settled(g, p.Spot, fx)
		}
		in.remove(now, p, fx)
		return
	}
	p.gone = time.Time{}
	if !p.spot().inNetwork() || seen && p.Worker != "" && !w.sight.Lost() && w.Drain == nil {
		return
	}
	why := "its worker does not see its device any more"
	switch {
	case p.Worker == "":
		why = "another worker can take it"
	case w != nil && w.sight.Lost():
		why = "its worker is out of touch, and another one sees its device"
	case w != nil && w.Drain != nil:
		why = "its worker is drained"
	}
	others := slices.DeleteFunc(slices.Clone(workers), func(name string) bool { return name == p.Pinned && p.Worker != "" })
	best := in.placeAt(now, g, p.spot(), others, policy)
	if best == nil || best.Pinned == p.Pinned {
		return
	}
	p.Pinned = best.Pinned
	if p.Worker == "" {
		in.changed(now, p, fx)
		return
	}
	in.move(now, p, why, false, fx)
}

// nextLook is when copies of groups are to be looked at next; zero: at no time.
func (in *intake) nextLook() time.Time {
	if in.goneAt.IsZero() || !in.steadyAt.IsZero() && in.steadyAt.Before(in.goneAt) {
		return in.steadyAt
	}
	return in.goneAt
}

// goneDue reports whether it is time to look for copies whose device has gone.
func (in *intake) goneDue(now time.Time) bool { return !in.goneAt.IsZero() && !now.Before(in.goneAt) }

// crowded tells once that a worker offers more devices than get an instance.
func (in *intake) crowded(now time.Time, g *group, p *placement, fx *wire.Effects) {
	if g.crowded {
		return
	}
	g.crowded = true
	in.event(fx, now, p, wire.EventWarning, "TooManyDevices", "worker "+p.Pinned+" offers more devices than get an instance of this service: "+
		strconv.Itoa(spec.MaxCopiesWorker)+" do")
}
