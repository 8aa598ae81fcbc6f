package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// keySeq is that of the record of the number that was given last.
const keySeq = "cluster/seq"

// ledger has the placements and groups of a site, the lists beside them, and the numbers of their tokens. Whoever asks reads it; only its
// methods change it, and a placement where a list depends on that (archtest TestOwners), so that its audit is about this file alone.
//
//	       ┌── give ──────────────┐        ┌─ move: Next ─┐
//	add ─► waits ◄── bind to none ── bound ◄── taken over ──┘
//	                                ├─ strand ──► stranded ──► bound, and Original left behind
//	                                └─ end ─────► Removing ──► remove
type ledger struct {
	places   map[skerry.InstanceID]*placement
	byApp    map[skerry.AppKey]map[skerry.InstanceID]*placement
	byWorker map[string]map[skerry.InstanceID]*placement
	limits   map[skerry.AppKey]int // placements whose links limit where others may run
	groups   map[skerry.InstanceID]*group
	groupsOf map[skerry.ServiceKey]map[skerry.InstanceID]*group
	term     uint64 // the second part of fencing tokens,
	seq      uint64 // and their last: the number that was given last

	waiting   map[skerry.InstanceID]bool            // placements that need a worker
	making    map[skerry.InstanceID]string          // workers on which others make room for an instance that waits
	removing  map[skerry.InstanceID]bool            // placements whose worker has not yet said that they are gone
	moving    map[skerry.InstanceID]bool            // placements with a successor
	stranded  map[skerry.InstanceID]bool            // placements that ran on a worker that is out of touch
	originals map[skerry.InstanceID]bool            // placements with an original
	watched   map[skerry.InstanceID]bool            // placements whose SLA is violated
	orphan    map[skerry.InstanceID]map[string]bool // instances that workers report and that are not placed there
	asking    map[skerry.InstanceID]*answer         // of placements whose owner asks whether there is a place for a successor

	grew  bool         // capacity may have appeared: what waits is to be tried again
	notes []wire.Write // records of what leaves workers and of volumes, to be written
}

func newLedger(term uint64) ledger {
	set := func() map[skerry.InstanceID]bool { return map[skerry.InstanceID]bool{} }
	return ledger{term: term, places: map[skerry.InstanceID]*placement{}, byApp: map[skerry.AppKey]map[skerry.InstanceID]*placement{},
		byWorker: map[string]map[skerry.InstanceID]*placement{}, limits: map[skerry.AppKey]int{}, groups: map[skerry.InstanceID]*group{},
		groupsOf: map[skerry.ServiceKey]map[skerry.InstanceID]*group{},
		waiting:  set(), making: map[skerry.InstanceID]string{}, removing: set(), moving: set(), stranded: set(), originals: set(),
		watched: set(),
		orphan:  map[skerry.InstanceID]map[string]bool{}, asking: map[skerry.InstanceID]*answer{}}
}

// enter takes a placement in, new or read.
func (l *ledger) enter(p *placement) {
	id, app := p.A.ID, p.A.Service.App
	l.places[id] = p
	if l.byApp[app] == nil {
		l.byApp[app] = map[skerry.InstanceID]*placement{}
	}
	l.byApp[app][id] = p
	if p.limited() {
		l.limits[app]++
	}
	if p.Removing {
		l.removing[id] = true
	}
	if p.Next != nil {
		l.moving[id] = true
	}
	if p.Original != nil {
		l.originals[id] = true
	}
	l.put(p, p.Worker)
}

// strike takes a placement out. It reports whether it was the last one of its application.
func (l *ledger) strike(p *placement) (last bool) {
	id, app := p.A.ID, p.A.Service.App
	l.unlist(p)
	delete(l.places, id)
	for _, list := range []map[skerry.InstanceID]bool{l.waiting, l.removing, l.moving, l.stranded, l.originals, l.watched} {
		delete(list, id)
	}
	l.ask(id, nil)
	if p.limited() {
		if l.limits[app]--; l.limits[app] == 0 {
			delete(l.limits, app)
		}
	}
	delete(l.byApp[app], id)
	if last = len(l.byApp[app]) == 0; last {
		delete(l.byApp, app)
	}
	return last
}

// put says which worker an instance is on; an empty name: none.
func (l *ledger) put(p *placement, worker string) {
	l.unlist(p)
	if p.Worker = worker; worker == "" {
		return
	}
	if l.byWorker[worker] == nil {
		l.byWorker[worker] = map[skerry.InstanceID]*placement{}
	}
	l.byWorker[worker][p.A.ID] = p
}

func (l *ledger) unlist(p *placement) {
	if on := l.byWorker[p.Worker]; on != nil {
		if delete(on, p.A.ID); len(on) == 0 {
			delete(l.byWorker, p.Worker)
		}
	}
}

// on lists the placements on a worker, by id.
func (l *ledger) on(worker string) []*placement {
	out := slices.Collect(maps.Values(l.byWorker[worker]))
	slices.SortFunc(out, func(a, b *placement) int { return strings.Compare(string(a.A.ID), string(b.A.ID)) })
	return out
}

// limitedFrom reports whether a link with a limit leads to a service from another one that has instances here.
func (l *ledger) limitedFrom(k skerry.ServiceKey) bool {
	if l.limits[k.App] == 0 {
		return false
	}
	for _, p := range l.byApp[k.App] {
		if slices.ContainsFunc(p.A.Spec.Links, func(x spec.Link) bool { return x.Limited() && x.Service == k.Service }) {
			return true
		}
	}
	return false
}

// wait notes whether an instance needs a worker.
func (l *ledger) wait(id skerry.InstanceID, waits bool) { enlist(l.waiting, id, waits) }

// watch notes whether the SLA of an instance is violated.
func (l *ledger) watch(id skerry.InstanceID, violated bool) { enlist(l.watched, id, violated) }

// beStranded notes whether the worker of an instance that ran is out of touch.
func (l *ledger) beStranded(id skerry.InstanceID, stranded bool) { enlist(l.stranded, id, stranded) }

// end notes that the worker of an instance is told to end it.
func (l *ledger) end(p *placement) {
	p.Removing = true
	l.removing[p.A.ID] = true
}

// succeed gives an instance a successor; nil: it has none any more.
func (l *ledger) succeed(p *placement, n *successor) {
	p.Next = n
	enlist(l.moving, p.A.ID, n != nil)
}

// leaveCopy notes the copy of an instance that is left behind on a worker that is out of touch; nil: there is none any more.
func (l *ledger) leaveCopy(p *placement, o *original) {
	p.Original = o
	enlist(l.originals, p.A.ID, o != nil)
}

// stray notes that a worker reports an instance that is not placed there, and found that it no longer does.
func (l *ledger) stray(id skerry.InstanceID, worker string) {
	if l.orphan[id] == nil {
		l.orphan[id] = map[string]bool{}
	}
	l.orphan[id][worker] = true
}

// found says that a worker no longer has an orphan.
func (l *ledger) found(id skerry.InstanceID, worker string) {
	if at := l.orphan[id]; at != nil {
		if delete(at, worker); len(at) == 0 {
			delete(l.orphan, id)
		}
	}
}

// keep has a worker be kept for an instance for which others leave it.
func (l *ledger) keep(id skerry.InstanceID, worker string) { l.making[id] = worker }

// keeps reports whether an instance for which room is made still waits for it.
func (l *ledger) keeps(id skerry.InstanceID) bool {
	p := l.places[id]
	return p != nil && !p.Removing && (l.waiting[id] || l.stranded[id])
}

// keepNot has no worker be kept for an instance. It reports whether one was.
func (l *ledger) keepNot(id skerry.InstanceID) bool {
	_, kept := l.making[id]
	delete(l.making, id)
	return kept
}

// retry has what waits tried again: capacity may have appeared. retries ends that, and reports whether it was so.
func (l *ledger) retry() { l.grew = true }

func (l *ledger) retries() bool {
	was := l.grew
	l.grew = false
	return was
}

// ask notes the answer to whether there is a place for a successor of an instance; nil: nobody asks any more.
func (l *ledger) ask(id skerry.InstanceID, a *answer) {
	if delete(l.asking, id); a != nil {
		l.asking[id] = a
	}
}

// note has a record be written with this step.
func (l *ledger) note(w wire.Write) { l.notes = append(l.notes, w) }

// written gives the records that this step is to write.
func (l *ledger) written(fx *wire.Effects) {
	fx.Writes = append(fx.Writes, l.notes...)
	l.notes = nil
}

// enterGroup takes a group in, and strikeGroup takes it out.
func (l *ledger) enterGroup(g *group) {
	l.groups[g.A.ID] = g
	of := l.groupsOf[g.A.Service]
	if of == nil {
		of = map[skerry.InstanceID]*group{}
		l.groupsOf[g.A.Service] = of
	}
	of[g.A.ID] = g
}

func (l *ledger) strikeGroup(id skerry.InstanceID) {
	g := l.groups[id]
	if g == nil {
		return
	}
	delete(l.groups, id)
	of := l.groupsOf[g.A.Service]
	if delete(of, id); len(of) == 0 {
		delete(l.groupsOf, g.A.Service)
	}
}

func enlist(m map[skerry.InstanceID]bool, id skerry.InstanceID, on bool) {
	if delete(m, id); on {
		m[id] = true
	}
}

// number gives a number that no life of the store has given before.
func (l *ledger) number(fx *wire.Effects) uint64 {
	l.seq++
	l.saveSeq(fx)
	return l.seq
}

// mint gives the next fencing token of an instance: the owner's part of it stays, the site's is higher than any before.
func (l *ledger) mint(p *placement, fx *wire.Effects) skerry.Fence {
	return skerry.Fence{RootEpoch: p.A.Fence.RootEpoch, ClusterTerm: l.term, Sequence: l.number(fx)}
}

// above has no number be given again that is not above this one.
func (l *ledger) above(n uint64) { l.seq = max(l.seq, n) }

// saveSeq writes the record of the last number, and loadSeq takes it.
func (l *ledger) saveSeq(fx *wire.Effects) { fx.Put(keySeq, []byte(fmt.Sprint(l.seq))) }

func (l *ledger) loadSeq(value []byte) error { return json.Unmarshal(value, &l.seq) }

// audit reports contradictions between the placements and the lists; workers are those that the site knows.
func (l *ledger) audit(workers map[string]*worker) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	limits, on := map[skerry.AppKey]int{}, 0
	for id, p := range l.places {
		if p.A.ID != id || l.byApp[p.A.Service.App][id] != p {
			bad("%s is not listed under its application", id)
		}
		if p.Worker != "" {
			if on++; l.byWorker[p.Worker][id] != p {
				bad("%s is not listed on %s", id, p.Worker)
			}
		}
		if p.Next != nil && (p.Worker == "" || p.Next.Worker == p.Worker || p.Removing || p.ended()) {
			bad("%s on %q, %s, removing %v, has a successor on %s", id, p.Worker, p.Obs.State, p.Removing, p.Next.Worker)
		}
		if p.limited() {
			limits[p.A.Service.App]++
		}
		if waits := p.Worker == "" && !p.Removing && !p.Refused && p.Obs.Phase != skerry.PhaseCutOff; waits != l.waiting[id] {
			bad("%s on %q, removing %v, refused %v: waits is %v", id, p.Worker, p.Removing, p.Refused, l.waiting[id])
		}
		if p.Removing != l.removing[id] || p.Removing && p.Worker == "" {
			bad("%s on %q: removing is %v, its list says %v", id, p.Worker, p.Removing, l.removing[id])
		}
		if (p.Original != nil) != l.originals[id] || p.Original != nil && (p.Removing || p.Original.Worker == p.Worker) {
			bad("%s on %q, removing %v, was left behind: %+v, its list says %v", id, p.Worker, p.Removing, p.Original, l.originals[id])
		}
		if l.stranded[id] && (p.Removing || workers[p.Worker] == nil || !workers[p.Worker].sight.Lost()) {
			bad("%s on %q, removing %v, is stranded", id, p.Worker, p.Removing)
		}
		if (p.Next != nil) != l.moving[id] {
			bad("%s: moving is %v", id, l.moving[id])
		}
	}
	for name, m := range l.byWorker {
		if on -= len(m); len(m) == 0 {
			bad("an empty list is kept for %s", name)
		}
	}
	if on != 0 {
		bad("%d placements too few are listed on workers", on)
	}
	if !maps.Equal(limits, l.limits) {
		bad("limits are %v, counted %v", l.limits, limits)
	}
	for _, m := range []map[skerry.InstanceID]bool{l.waiting, l.removing, l.moving, l.watched, l.stranded, l.originals} {
		for id := range m {
			if l.places[id] == nil {
				bad("%s is gone, and still listed", id)
			}
		}
	}
	for id := range l.asking {
		if l.places[id] == nil {
			bad("%s is gone, and its owner is still answered", id)
		}
	}
	for id, at := range l.orphan {
		for name := range at {
			p := l.places[id]
			if workers[name] == nil || p != nil && (p.Worker == name || p.Next != nil && p.Next.Worker == name) {
				bad("%s is an orphan on %s", id, name)
			}
		}
	}
	listed := 0
	for _, of := range l.groupsOf {
		listed += len(of)
	}
	for id, g := range l.groups {
		if g.A.ID != id || l.groupsOf[g.A.Service][id] != g || listed != len(l.groups) {
			bad("group %s is listed as %s, or not under its service", g.A.ID, id)
		}
	}
	return faults
}

// keptFrom lists the workers on which others make room for an instance that is more important than p: those that have gone leave before
// the rest, and p would else take the place of the first, for nothing.
func (l *ledger) keptFrom(p *placement) (out []string) {
	for id, worker := range l.making {
		if l.keeps(id) && l.places[id].A.Spec.Placement.Priority > p.A.Spec.Placement.Priority {
			out = append(out, worker)
		}
	}
	slices.Sort(out)
	return out
}

// residents lists what may be moved off a worker: neither copies that belong to it, nor what is on its way already.
func (l *ledger) residents(worker string) []sched.Resident {
	var out []sched.Resident
	for _, p := range l.on(worker) {
		if p.Pinned == "" && !p.Removing && !p.ended() && p.Next == nil {
			out = append(out, sched.Resident{Instance: p.A.ID, Priority: p.A.Spec.Placement.Priority, Need: p.charge(worker)})
		}
	}
	return out
}

// seeking runs over the instances that look for a place.
func (l *ledger) seeking(yield func(skerry.InstanceID) bool) {
	for id := range l.waiting {
		if !yield(id) {
			return
		}
	}
	for id := range l.stranded {
		if l.places[id].Next == nil && !yield(id) {
			return
		}
	}
}

// Checkpoint gives the worker that has the state which a successor is to start from, to the one that is to have it: asking there ends what
// runs.
func (l *ledger) Checkpoint(id skerry.InstanceID, to string) (worker string, err error) {
	p := l.places[id]
	if p == nil || p.Next == nil || p.Next.Recipient == "" || p.Next.Worker != to {
		return "", skerry.Errorf(skerry.CodeConflict, "instance %q is not to leave its worker", id)
	}
	return p.Worker, nil
}

// group is a perWorker or perDevice assignment, with one placement at each spot that fits.
type group struct {
	A        spec.Assignment `json:"assignment"`
	Origin   string          `json:"origin"`
	Removing bool            `json:"removing,omitempty"`
	Created  time.Time       `json:"created"`
	// PerDevice is its mode. Nobody reads it: an older program, which would make one copy for each worker, refuses the store.
	PerDevice bool `json:"perDevice,omitempty"`
	// Begun are spots at which a copy was told to end for one of another group, which has not served there for long enough yet.
	Begun []spot `json:"begun,omitempty"`
	// Ailing are spots at which the version before served nobody while it served elsewhere: this one is not judged by its copies there.
	Ailing []spot `json:"ailing,omitempty"`

	trial   bool               // its first copies are watched before others follow
	ready   map[spot]readiness // of its copies, while it takes another one's place; after a start they are watched anew
	crowded bool               // it was told that a worker has too many devices
}

// answer is what the owner of an instance was told last about its successor.
type answer struct {
	wire.SuccessorAnswer
	at time.Time // when it was looked for
}

// copies lists the placements of a group, by id.
func (l *ledger) copies(id skerry.InstanceID) []*placement {
	g := l.groups[id]
	if g == nil {
		return nil
	}
	var out []*placement
	for _, pid := range sortedIDs(l.byApp[g.A.Service.App]) {
		if p := l.places[pid]; p.Group == id {
			out = append(out, p)
		}
	}
	return out
}

// HasSecret reports whether something uses a secret that a worker was given or is to take over.
func (l *ledger) HasSecret(worker string, n spec.SecretName) bool {
	for _, p := range l.places {
		there := p.Worker == worker || p.Next != nil && p.Next.Worker == worker || p.Original != nil && p.Original.Worker == worker
		if there && p.A.Service.App.Namespace == n.Namespace && slices.Contains(p.A.Spec.SecretNames(n.Namespace), n) {
			return true
		}
	}
	return false
}

// instancesOf lists the instances of an application that are to stay, by id.
func (l *ledger) instancesOf(app skerry.AppKey) iter.Seq[network.Instance] {
	ids := sortedIDs(l.byApp[app])
	return func(yield func(network.Instance) bool) {
		for _, id := range ids {
			p := l.places[id]
			if p.Removing {
				continue
			}
			i := network.Instance{ID: id, Service: p.A.Service.Service, Links: p.A.Spec.Links, Worker: p.Worker,
				Serves: p.Obs.Ready && !p.Obs.Unreachable, Address: p.Obs.Address, Ports: p.Obs.Ports}
			if p.Next != nil {
				i.Next = p.Next.Worker
			}
			if !yield(i) {
				return
			}
		}
	}
}

// readiness says since when a copy has been ready, after how many restarts.
type readiness struct {
	since    time.Time
	restarts int
}

// rivals lists the groups of the service, the mode and the owner of a group, itself included, by id. One of another mode takes no place of
// its copies: they are at other spots.
func (l *ledger) rivals(g *group) (out []*group) {
	of := l.groupsOf[g.A.Service]
	for _, id := range sortedIDs(of) {
		if of[id].Origin == g.Origin && of[id].A.Spec.Mode == g.A.Spec.Mode {
			out = append(out, of[id])
		}
	}
	return out
}

// former lists the groups whose place another one takes.
func (l *ledger) former(next *group) []*group {
	return slices.DeleteFunc(l.rivals(next), func(g *group) bool { return !g.Removing })
}

// begunFor gives the spots at which a copy has ended, or is to, for one of a group that has not served there for long enough yet.
func (l *ledger) begunFor(next *group) map[spot]bool {
	out := map[spot]bool{}
	for _, g := range l.former(next) {
		for _, name := range g.Begun {
			out[name] = true
		}
	}
	return out
}

// successor gives the group that takes the place of one that is to end, or nil.
func (l *ledger) successor(g *group) (next *group) {
	for _, n := range l.rivals(g) {
		if !n.Removing && (next == nil || next.A.Gen < n.A.Gen) {
			next = n
		}
	}
	return next
}

// before lists the copies, by id, of groups whose place another one takes, and whether they are to stay for now.
func (l *ledger) before(next *group) (stay, end []*placement) {
	for _, g := range l.former(next) {
		for _, p := range l.copies(g.A.ID) {
			if p.Removing {
				end = append(end, p)
			} else {
				stay = append(stay, p)
			}
		}
	}
	return stay, end
}

// taking lists the groups that take the place of others, by id.
func (l *ledger) taking() (out []*group) {
	for _, of := range l.groupsOf {
		if len(of) < 2 {
			continue
		}
		for _, g := range of {
			if !g.Removing && l.successor(g) == g {
				out = append(out, g)
			}
		}
	}
	slices.SortFunc(out, func(a, b *group) int { return cmp.Compare(a.A.ID, b.A.ID) })
	return out
}

// copyAt makes a copy of a group for a spot, on a worker.
func (g *group) copyAt(at spot, worker string) *placement {
	p := &placement{A: g.A, Origin: g.Origin, Group: g.A.ID, location: location{Pinned: worker}}
	p.A.ID += "-" + skerry.InstanceID(at.suffix())
	p.A.Exchange = ""
	if device := at.device(); device != "" {
		p.Spot, p.A.Spec = at, spec.ForDevice(&g.A.Spec, device)
	}
	return p
}
