package core

import (
	"crypto/hmac"
	"crypto/sha256"
	"iter"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// sender puts into the desired set of each worker what it is to run, and takes it out. It decides nothing: a worker is given what the
// placement says.
//
//	a placement ─ target ─► given: sealed, as its agent reads it ─► Children.Put
//	  its successor ─ sendNext ─┘        the copy that was left behind ─ endOriginal ─► Children.Delete
type sender struct {
	*books
	secret *[]byte            // a key of it seals what is given
	life   skerry.Incarnation // of the store
	// counted are workers whose count of what they were given to keep is to be written with this step.
	counted map[string]bool
}

// given encodes an assignment for a worker.
func (s *sender) given(worker string, a *spec.Assignment) []byte {
	a.Seal = nil
	value := s.item(worker, a)
	if w := s.workers[worker]; w == nil || w.Carrier != "" || !ofSite(a.ID) {
		return value
	}
	a.Seal = s.codec.Seal(s.sealKey(), worker, value)
	return s.item(worker, a)
}

// sealKey is the key of what this site gives its workers, which any backup has.
func (s *sender) sealKey() []byte {
	key := hmac.New(sha256.New, *s.secret)
	key.Write([]byte("assignment"))
	return key.Sum(nil)
}

// wasGiven reports whether an assignment that a worker holds has the seal with which this site gave it to that worker.
func (s *sender) wasGiven(worker string, value []byte) bool {
	return s.codec.Sealed(s.sealKey(), worker, value)
}

// send puts the placement into its worker's desired set. What has ended is not told to a worker that does not have it: one that
// took over a name would do the work again.
func (s *sender) send(p *placement) {
	a := p.target()
	if n := p.Next; n != nil && n.Recipient != "" {
		a.Leave = &spec.Leave{For: n.Fence, Recipient: n.Recipient}
	}
	if p.ended() && !s.has(p.Worker, a.ID) {
		return
	}
	if err := s.Children.Put(p.Worker, wire.AssignmentKey(a.ID), s.given(p.Worker, &a)); err != nil {
		p.Obs.Reason = err.Error()
	}
	s.linked[a.Service.App] = true // its worker needs the application's directory
	if w := s.workers[p.Worker]; w != nil && w.Peer != 0 && w.cramped(len(s.byWorker[w.Name])) {
		s.readmit[w.Name] = true
	}
}

// sendNext puts the successor into its worker's desired set.
func (s *sender) sendNext(p *placement) {
	if p.Next == nil {
		return
	}
	a := p.target() // it is started with the limits that the first one was to have
	a.Fence, a.PriorFence, a.Runtime, a.Devices, a.Signers = p.Next.Fence, nil, p.Next.Runtime, p.Next.Devices, s.admission.signersOf(a.Org)
	if p.Next.Checkpoint {
		from := p.A.Fence
		a.From = &from
	}
	if err := s.Children.Put(p.Next.Worker, wire.AssignmentKey(a.ID), s.given(p.Next.Worker, &a)); err != nil {
		p.Next.Obs.Reason = err.Error()
	}
}

// letGo has the worker of a placement end it; one that serves, as soon as nobody is sent to it any more.
func (s *sender) letGo(p *placement) {
	w := s.workers[p.Worker]
	switch {
	case p.Worker == "":
	case p.Obs.Ready && w != nil && !w.sight.Lost() && s.hasAudience(p.A.Service):
		s.farewells.Begin(moves.Place{Worker: p.Worker, ID: p.A.ID}, p.A.Service)
		s.linked[p.A.Service.App] = true
	default:
		s.Children.Delete(p.Worker, wire.AssignmentKey(p.A.ID))
	}
}

// endNow has all who run an instance end it: another one may start at once, and no two are to run.
func (s *sender) endNow(p *placement) {
	s.letGoNow(p.A.ID)
	if p.Worker != "" {
		s.Children.Delete(p.Worker, wire.AssignmentKey(p.A.ID))
	}
}

// letGoNow has workers end the copies of an instance that are not told yet.
func (s *sender) letGoNow(id skerry.InstanceID) {
	for _, at := range s.farewells.EndAll(id) {
		s.Children.Delete(at.Worker, wire.AssignmentKey(id))
	}
}

// hasAudience reports whether anybody was told of the instances of a service.
func (s *sender) hasAudience(k skerry.ServiceKey) bool {
	for range s.told(k) {
		return true
	}
	return len(s.interests.Sites(k)) > 0
}

// told runs over the workers that were told of a service, by their sets: what they want they say only when they have come back.
func (b *books) told(k skerry.ServiceKey) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range b.workers {
			c := b.Children.Get(name)
			if c != nil && (c.Desired.Told(wire.RouteKey(k)) || c.Desired.Told(wire.EndpointsKey(k))) && !yield(name) {
				return
			}
		}
	}
}

// unconfirmed reports whether a worker that is in touch has yet to confirm what it was told of a service last.
func (b *books) unconfirmed(name string, k skerry.ServiceKey) bool {
	w, c := b.workers[name], b.Children.Get(name)
	return w != nil && c != nil && !w.sight.Lost() && (c.Desired.Pending(wire.RouteKey(k)) || c.Desired.Pending(wire.EndpointsKey(k)))
}

// has reports whether an instance is in a worker's desired set, or left there by an earlier life of it.
func (s *sender) has(worker string, id skerry.InstanceID) bool {
	k := s.Children.Get(worker)
	if k == nil {
		return false
	}
	key := wire.AssignmentKey(id)
	_, orphan := k.Desired.Orphan(key)
	return orphan || k.Desired.Has(key)
}

// said reads what a worker reports of an instance.
func (s *sender) said(value []byte, o *wire.Observation) error {
	if err := s.codec.Unmarshal(value, o); err != nil {
		return err
	}
	o.Bound()
	return nil
}

// resend puts everything that a worker is to run anew, for another agent; that has no part in what ended.
func (s *sender) resend(name string) {
	for _, p := range s.on(name) {
		s.linked[p.A.Service.App] = true
		switch {
		case p.Removing:
		case p.ended():
			s.letGo(p)
		default:
			s.send(p)
		}
	}
	for _, id := range sortedIDs(s.moving) {
		if p := s.places[id]; p.Next.Worker == name {
			s.sendNext(p)
		}
	}
}

// reviewChildren brings, after a start, what workers are to run in line with the placements, for the same reason.
func (s *sender) reviewChildren() {
	for _, name := range s.Children.Names() {
		for _, key := range s.Children.Get(name).Desired.Keys() {
			id, ok := strings.CutPrefix(key, "inst/")
			p := s.places[skerry.InstanceID(id)]
			switch {
			case !ok || p != nil && !p.Removing && p.at(name):
			case p != nil && p.Worker == name:
				s.letGo(p)
			default:
				if h := s.releases.On(name)[skerry.InstanceID(id)]; h.Address != "" && s.hasAudience(h.Service) {
					s.farewells.Begin(moves.Place{Worker: name, ID: skerry.InstanceID(id)}, h.Service)
				} else {
					s.Children.Delete(name, key)
				}
			}
		}
	}
	for _, id := range sortedIDs(s.places) {
		if p := s.places[id]; s.workers[p.Worker] != nil && !p.Removing && !p.ended() {
			s.send(p)
			s.sendNext(p)
		}
	}
}

// decideOrphans ends or adopts what a worker has of an earlier life of its set, which forgot what was deleted then. What this
// store does not know either runs on, and keeps what it has of the overlay. What the worker does not report does not run:
// kept, it would when the agent starts again.
func (s *sender) decideOrphans(child *members.Child) {
	orphans, known := child.Desired.Orphans()
	if !known || len(orphans) == 0 {
		return
	}
	unknown, w := false, s.workers[child.Name]
	for _, o := range orphans {
		id, ok := strings.CutPrefix(o.Key, "inst/")
		if !ok {
			continue
		}
		p := s.places[skerry.InstanceID(id)]
		switch {
		case p != nil && !p.Removing && p.Worker == child.Name:
			s.send(p)
		case p != nil && p.Next != nil && p.Next.Worker == child.Name:
			s.sendNext(p)
		case p != nil && !p.Removing && p.at(child.Name):
			// The copy that was left behind; it is decided who stays.
		case p != nil || w != nil && w.leaving.Has(skerry.InstanceID(id)) || !tells(child, o.Key):
			s.Children.Delete(child.Name, o.Key)
		default:
			unknown = true
		}
	}
	for _, o := range orphans {
		_, data := spec.ParseVolumeKey(o.Key)
		_, snapshot := spec.ParseSnapshotKey(o.Key)
		if !unknown && !strings.HasPrefix(o.Key, "inst/") && !data && !snapshot { // what they are about would be gone
			s.Children.Delete(child.Name, o.Key)
		}
	}
}

// endOriginal has the copy that was left behind ended, at once or when its worker is back.
func (s *sender) endOriginal(p *placement) {
	if o := p.Original; o != nil {
		s.leaveCopy(p, nil)
		s.Children.Delete(o.Worker, wire.AssignmentKey(p.A.ID))
	}
}

// leaveBehind keeps what is known of a copy on a worker that is out of touch, when another takes its place.
func (s *sender) leaveBehind(p *placement) {
	s.endOriginal(p) // of two that were left behind the older one has no say
	s.leaveCopy(p, &original{Worker: p.Worker, Fence: p.A.Fence, Need: p.need()})
}

// reclaim ends that a worker keeps the original of an instance, because it is given the instance itself.
func (s *sender) reclaim(p *placement, worker string) {
	if p.Original != nil && p.Original.Worker == worker {
		s.leaveCopy(p, nil)
	}
}

// ofSite reports whether an instance is of an application of a site's own.
func ofSite(id skerry.InstanceID) bool { return id.MintedBy() == "c" }

// tells says whether a worker tells of an instance, by its key.
func tells(child *members.Child, key string) bool {
	_, orphaned, has := child.Observed.Get(key)
	return has && !orphaned
}
