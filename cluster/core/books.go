package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/detect"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/network"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/cluster/volumes"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// books are what the workers of a site have, and what of it is promised: to instances, to those that are about to end, and to data. Whoever
// gives a worker something enters it here, and the scheduler sees it. They decide nothing.
//
//	             ┌ reserve ─► reserved ─┐
//	an instance ─┼ leave ───► leaving ──┼─► available, ports ─► the scheduler's view (seeWorker)
//	             └ claimAt ─► volumes ──┘
type books struct {
	herald
	marks
	Children   *members.Children // the links to workers, and their sets
	site       *sched.Site       // the scheduler's view of workers
	detect     *detect.Detector
	trust      *trust.Trust
	releases   *moves.Releases
	farewells  *moves.Farewells
	hearing    *moves.Hearing
	neighbours *moves.Neighbours
	volumes    *volumes.Claims
	uplink     *uplink.Uplink
	far        *network.Far // where links lead to from here, or from, at other sites
	admission  *Admission
	held       map[string]bool  // workers that are held on their devices
	keepCounts map[string]keeps // by worker
}

// answered has it looked again what a worker confirmed, or whether it is gone.
func (b *books) answered(name string) {
	b.farewells.Touch(name)
	b.hearing.Touch(name)
}

// seeWorker tells the scheduler what changed of a worker.
func (b *books) seeWorker(w *worker) {
	child := b.Children.Get(w.Name)
	view := &sched.Worker{Name: w.Name, Refusing: w.refusing(), Lost: w.sight.Lost() || w.sight.Quiet() || child == nil || !child.Connected,
		Available:  w.available(),
		Coordinate: w.coordinate(), Reported: informedAt(w), HostPorts: map[string]bool{}}
	if f := w.Facts; f != nil {
		view.Arch, view.Runtimes, view.Costs, view.Devices, view.Labels, view.Taints = f.Arch, f.PassedRuntimes(), f.RuntimeCosts(), f.Devices,
			f.Labels, f.Taints
		if !w.untold { // else one that is taken by a name would be free by another
			view.Attachable, view.DeviceDetails = f.Attachable[:min(len(f.Attachable), spec.MaxDevices)], f.Details()
		}
		if f.Accelerators != nil {
			view.Accelerators = *f.Accelerators
		}
		view.Egress, view.Levels, view.Signatures = f.Egress, f.Levels, f.Signatures
		view.Features = f.Features[:min(len(f.Features), spec.MaxFeatures)]
		view.Area, view.Location, view.Capacity, view.Power = f.Area, f.Location, f.Capacity, f.Power
	}
	if view.Limited = w.external(); view.Limited && w.Facts != nil {
		for _, r := range w.Facts.Runtimes {
			if r.Passed {
				view.Abilities = append(view.Abilities, r.Abilities...)
			}
		}
	}
	view.Load = w.loads
	view.Trust, view.Suspicion = w.trust.Rank()
	for k := range w.ports {
		if !strings.HasPrefix(k, deviceKey("")) {
			view.HostPorts[k] = true
		}
	}
	view.DevicesTaken, view.DevicesWere = w.devicesTaken(view.DeviceDetails)
	b.site.Set(view)
	b.detect.See(w.Name)
}

// saveWorker keeps a worker. It tells its facts again whenever it connects, so those that older programs do not know are kept only where a
// feature that is in use needs them meanwhile: such a program would refuse the store (docs/RATIONALE.md).
func (b *books) saveWorker(w *worker, fx *wire.Effects) {
	kept := *w
	if kept.Facts != nil {
		facts := *kept.Facts
		facts.Signatures = facts.Signatures && len(b.admission.Signers) > 0
		kept.Facts = facts.Kept()
	}
	fx.Put(prefixWorker+w.Name, mustJSON(workerRecord{worker: &kept, Record: w.trust.Record()}))
}

// addWorker enters a worker, new or read from the store.
func (b *books) addWorker(w *worker, r trust.Record) {
	b.workers[w.Name] = w
	w.sight, w.trust, w.leaving = b.detect.Add(w.Name), b.trust.Add(w.Name, r), b.releases.Add(w.Name)
}

// takePorts counts host ports of a worker as taken (sign 1) or free (-1), and tells the scheduler what it has left.
func (b *books) takePorts(w *worker, ports []string, sign int) {
	for _, k := range ports {
		if w.ports[k] += sign; w.ports[k] <= 0 {
			delete(w.ports, k)
		}
	}
	if len(ports) > 0 {
		b.seeWorker(w)
	} else {
		b.site.SetAvailable(w.Name, w.available())
	}
}

// load adds what a placement does to its neighbours to its worker, or takes it off; the worker's next report sets the
// sum right.
func (b *books) load(w *worker, p *placement, sign int) {
	if k := b.neighbours.Of(&p.A); sign > 0 {
		w.loads = w.loads.Plus(k)
	} else {
		w.loads = w.loads.Minus(k)
	}
	b.site.SetLoad(w.Name, w.loads)
}

// reload sums anew what runs on a worker.
func (b *books) reload(w *worker, instances map[skerry.InstanceID]wire.QoS) {
	var sum spec.Contention
	for _, id := range sortedIDs(instances) {
		if p := b.places[id]; p != nil && (p.Worker == w.Name || p.Next != nil && p.Next.Worker == w.Name) {
			sum = sum.Plus(b.neighbours.Of(&p.A))
		}
	}
	if sum != w.loads {
		w.loads = sum
		b.site.SetLoad(w.Name, sum)
	}
}

// reserve adds a placement's needs to its worker (sign 1) or takes them off (-1). Ended instances hold nothing.
func (b *books) reserve(p *placement, sign int) {
	if !p.ended() {
		b.reserveOn(p.Worker, p, sign)
	}
}

func (b *books) reserveOn(worker string, p *placement, sign int) {
	w := b.workers[worker]
	if w == nil {
		return
	}
	b.load(w, p, sign)
	need := p.charge(worker)
	if sign > 0 {
		w.reserved = w.reserved.Add(need)
	} else {
		w.reserved = w.reserved.Sub(need)
	}
	b.takePorts(w, p.takes(worker), sign)
}

// revalue makes a change of what a placement needs, and sets the books right.
func (b *books) revalue(p *placement, change func()) {
	count := func(sign int) {
		b.reserve(p, sign)
		if p.Next != nil {
			b.reserveOn(p.Next.Worker, p, sign)
		}
	}
	count(-1)
	change()
	count(1)
}

// leave counts what an instance still holds on a worker that was told to end it, so that nothing is placed on top of what
// still runs. A worker that is out of touch runs it too, for all that is known, and says so when it comes back.
func (b *books) leave(p *placement, worker string) {
	h := moves.Releasing{Need: p.charge(worker), Ports: p.takes(worker), Service: p.A.Service, Ordinal: p.A.Ordinal}
	if p.Worker == worker {
		h.Address = p.Obs.Address
	}
	if record := b.releases.Begin(moves.Place{Worker: worker, ID: p.A.ID}, h); record != nil {
		b.takePorts(b.workers[worker], h.Ports, 1)
		b.note(*record)
	}
}

// left says that nothing of an instance is left on a worker.
func (b *books) left(worker string, id skerry.InstanceID) {
	at := moves.Place{Worker: worker, ID: id}
	if b.farewells.End(at) {
		b.Children.Delete(worker, wire.AssignmentKey(id))
	}
	h, record := b.releases.End(at)
	if record == nil {
		return
	}
	b.note(*record)
	b.volumes.Touch()
	b.linked[h.Service.App] = true // its worker may be without the application's network now
	if b.interests.Wanted(h.Service) {
		b.interests.Touch(h.Service)
	}
	b.takePorts(b.workers[worker], h.Ports, -1)
	b.freed()
}

// loadLeaving counts again what was leaving when the orchestrator ended.
func (b *books) loadLeaving(fx *wire.Effects) {
	for _, at := range b.releases.Start(func(at moves.Place) bool {
		p := b.places[at.ID]
		return b.workers[at.Worker] != nil && (p == nil || p.Worker != at.Worker)
	}, fx) {
		w := b.workers[at.Worker]
		b.takePorts(w, w.leaving[at.ID].Ports, 1)
	}
}

// freed notes that capacity may have appeared: what waits is tried again, and the root is told.
func (b *books) freed() {
	b.retry()
	b.uplink.Touch()
}

// endKeeping has a worker on which room was made for an instance be there for others again. What was refused for that is tried anew: that
// a worker is kept is no lack of room, so that nothing else would tell.
func (b *books) endKeeping(id skerry.InstanceID) {
	if b.keepNot(id) {
		b.freed()
	}
}

// reviewKept ends the keeping of workers for what no longer waits.
func (b *books) reviewKept() {
	for id := range b.making {
		if !b.keeps(id) {
			b.endKeeping(id)
		}
	}
}

// bind says which worker an instance is on; an empty name: none.
func (b *books) bind(p *placement, worker string) {
	b.put(p, worker)
	b.touchClaims(p)
	if worker == "" {
		p.settleLimits() // nothing is promised to it, and it will be started with them
	}
}

// touchClaims has the claims looked at after an instance with data changed.
func (b *books) touchClaims(p *placement) {
	if p.A.Spec.KeepsData() {
		b.volumes.Touch()
	}
}

// usedBy sums what an organisation has at the site, leaving one instance out.
func (b *books) usedBy(org string, without skerry.InstanceID) (sum siteUse) {
	if _, ok := b.admission.Quotas[org]; !ok {
		return sum // nobody asks
	}
	for id, p := range b.places {
		if p.A.Org == org && id != without && !p.Refused && !p.Removing {
			sum.add(&p.A)
		}
	}
	sum.need.Storage += b.volumes.Besides(org)
	return sum
}

// frozenWorkers lists those that are frozen on their device.
func (b *books) frozenWorkers() (out []string) {
	for name := range b.held {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// connectedWorker refuses a worker that cannot be asked now.
func (b *books) connectedWorker(name string) error {
	if b.workers[name] == nil {
		return skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", name).WithHint("`skerry get workers` lists them")
	}
	if k := b.Children.Get(name); k == nil || !k.Connected {
		return skerry.Errorf(skerry.CodeUnavailable, "worker %s is not connected", name).
			WithHint("try again when it is back; `skerry volume restore SNAPSHOT --worker OTHER` brings a snapshot that is elsewhere to another worker")
	}
	return nil
}

// copier is connectedWorker for one that is to copy volumes, or to restore them.
func (b *books) copier(name string) error {
	if err := b.connectedWorker(name); err != nil {
		return err
	}
	able := func(r wire.RuntimeReport) bool { return r.Passed && slices.Contains(r.Abilities, "snapshots") }
	if w := b.workers[name]; w.external() && (w.Facts == nil || !slices.ContainsFunc(w.Facts.Runtimes, able)) {
		return skerry.Errorf(skerry.CodeUnsupported, "the agent of worker %s is not Skerry's own, and does no snapshots", name).
			WithHint("name another worker (--worker), or copy the volume with what that machine has for it")
	}
	return nil
}

// stopSpare is what may pass in the network between a worker and its site.
const stopSpare = 5 * time.Second

// surelyStopped is when a worker that is out of touch has stopped an instance, or the zero time for one that runs on. The
// worker counts from when it heard the site last, which was no later than the end of its connection here.
func (b *books) surelyStopped(p *placement) time.Time {
	return b.surelyStoppedOn(p, p.Worker)
}

func (b *books) surelyStoppedOn(p *placement, worker string) time.Time {
	d, ok := p.A.Spec.SurelyStopped(stopSpare)
	k := b.Children.Get(worker)
	if !ok || k == nil {
		return time.Time{}
	}
	return k.Since.Add(d)
}

// endsElsewhere is until when a copy that was told to end may still run on a worker that is out of touch, of an instance that
// must not run twice.
func (b *books) endsElsewhere(p *placement) (until time.Time) {
	if _, ok := p.A.Spec.OnDisconnect.StopAfter(); !ok {
		return until
	}
	for at := range b.releases.Of(p.A.Service) {
		if k := b.Children.Get(at.Worker); at.ID == p.A.ID && k != nil && !k.Connected {
			if t := b.surelyStoppedOn(p, at.Worker); t.After(until) {
				until = t
			}
		}
	}
	return until
}

// checkpointTo reports whether a successor on a worker starts from an instance's memory.
func (b *books) checkpointTo(p *placement, worker string) bool {
	return p.A.Spec.Checkpoints() && !b.stranded[p.A.ID] && p.Obs.State == skerry.Running &&
		b.workers[p.Worker].canCheckpoint(p.Obs.Runtime) && b.workers[worker].canCheckpoint(p.Obs.Runtime)
}

// item encodes an item of a worker's desired set as its agent reads it.
func (b *books) item(worker string, v any) []byte {
	if w := b.workers[worker]; w != nil && w.Carrier == wire.CarrierMQTT {
		return b.codec.Text(v)
	}
	return b.codec.Marshal(v)
}

// audit says what does not balance: what workers have given away against what is on them, and what the parts below keep.
func (b *books) audit() (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	reserved := map[string]spec.Resources{}
	ports := map[string]map[string]int{}
	take := func(worker string, p *placement) {
		reserved[worker] = reserved[worker].Add(p.charge(worker))
		if ports[worker] == nil {
			ports[worker] = map[string]int{}
		}
		for _, k := range p.takes(worker) {
			ports[worker][k]++
		}
	}
	idle, wrong := b.volumes.Audit()
	faults = append(faults, wrong...)
	for name, size := range idle {
		if b.workers[name] != nil {
			reserved[name] = reserved[name].Add(spec.Resources{Storage: size})
		}
	}
	for _, p := range b.places {
		if p.Worker != "" && !p.ended() {
			take(p.Worker, p)
		}
		if p.Next != nil {
			take(p.Next.Worker, p)
		}
	}
	for name, w := range b.workers {
		for _, h := range w.leaving {
			for _, k := range h.Ports {
				if ports[name] == nil {
					ports[name] = map[string]int{}
				}
				ports[name][k]++
			}
		}
		if w.reserved != reserved[name] {
			bad("%s: %v is reserved, what is on it needs %v", name, w.reserved, reserved[name])
		}
		for k, n := range ports[name] {
			name, ok := strings.CutPrefix(k, deviceKey(""))
			if ok && n > 1 && !w.untold && (w.Facts == nil || n > w.Facts.Details()[name].Shares) {
				bad("%s: %s was given away %d times", name, k, n)
			}
		}
		if !maps.Equal(w.ports, ports[name]) && len(w.ports)+len(ports[name]) > 0 {
			bad("%s: ports %v are taken, what is on it needs %v", name, w.ports, ports[name])
		}
		if w.Facts != nil {
			for i, v := range w.Facts.Capacity.Sub(w.reserved).Vector() {
				if v < 0 {
					bad("%s: %d of %s are promised too much", name, -v, spec.ResourceNames[i])
				}
			}
		}
	}
	seen, trusted := map[string]*detect.Worker{}, map[string]*trust.Worker{}
	for name, w := range b.workers {
		seen[name], trusted[name] = w.sight, w.trust
	}
	there := func(app skerry.AppKey) bool { return b.byApp[app] != nil }
	return slices.Concat(faults, b.detect.Audit(seen), b.trust.Audit(trusted), b.releases.Audit(b.workers.has),
		b.farewells.Audit(b.workers.has), b.hearing.Audit(b.workers.has), b.neighbours.Audit(there))
}

// marks are what of the overlay must be worked out again.
type marks struct {
	interests *network.Interests     // and whose routes they concern
	readmit   map[string]bool        // workers whose part in the overlay must be looked at
	linked    map[skerry.AppKey]bool // applications whose endpoints and directories must be
}

func newMarks() marks {
	return marks{network.NewInterests(), map[string]bool{}, map[skerry.AppKey]bool{}}
}
