package core

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/detect"
	"skerry.dev/skerry/cluster/moves"
	"skerry.dev/skerry/cluster/trust"
	"skerry.dev/skerry/cluster/uplink"
	"skerry.dev/skerry/decide/coord"
	"skerry.dev/skerry/decide/ipam"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const (
	// What counts as short, beside moves.WaitingLimit: shares of time in which something waited (the kernel's pressure stall information).
	pressureLimit = 0.25
	// pressureSlack is how much more pressure elsewhere counts as the same: it is told of different moments.
	pressureSlack = 0.2
)

// roster is the workers of a site, by name. Its methods need to know nothing else.
type roster map[string]*worker

// Worker implements uplink.Names.
func (ws roster) Worker(name string) (address string, ok bool) {
	w := ws[name]
	if w != nil && w.Facts != nil {
		address = w.Facts.Address
	}
	return address, w != nil
}

// redact takes the names of workers out of a text that leaves the site, and the addresses of those that have to do with the placement.
func (ws roster) redact(p *placement, text string) string {
	near, devices := []string{p.Worker, p.Pinned}, slices.Clone(p.A.Devices)
	if d := p.spot().device(); d != "" {
		devices = append(devices, d)
	}
	if p.Next != nil {
		near, devices = append(near, p.Next.Worker), append(devices, p.Next.Devices...)
	}
	// A class is known above, and a device, such as its serial number, is not. The name of one may be the beginning of another's.
	slices.SortFunc(devices, func(a, b string) int { return len(b) - len(a) })
	for _, d := range devices {
		text = strings.ReplaceAll(text, d, spec.DeviceClass(d))
	}
	return uplink.Redact(ws, text, near...)
}

// worker is what the site knows of one worker.
type worker struct {
	Name     string            `json:"name"`
	Facts    *wire.WorkerFacts `json:"facts,omitempty"`
	Carrier  string            `json:"carrier,omitempty"` // over what it is connected; empty: the link
	Cordon   string            `json:"hold,omitempty"`    // why it gets nothing new, by an operator
	Drain    *moves.Drain      `json:"drain,omitempty"`
	Agent    *wire.AgentOrder  `json:"agent,omitempty"` // the last one
	Peer     wire.PeerID       `json:"peer,omitempty"`  // its number in the overlay; 0: it takes no part
	Blocks   []netip.Prefix    `json:"-"`               // of addresses for its instances
	closing  []netip.Prefix    // of these, those that it is to give back
	report   wire.WorkerReport
	reportAt time.Time
	numbers  members.Numbers // of the reports on this connection
	sight    *detect.Worker  // whether it is in touch; the detector's to change
	trust    *trust.Worker   // how far it is trusted; trust's to change
	reserved spec.Resources
	class    string            // key of its capability class,
	classFor *wire.WorkerFacts // worked out for these facts
	ports    map[string]int    // taken host ports, counted
	leaving  moves.Leaving     // by instances that were told to end; moves' to change
	loads    spec.Contention   // of what runs there, summed
	placed   *spec.Coordinate  // that routes tell
	urgency  moves.Urgency     // what it was told of how near a limit something is
	nodes    map[string]string // of its devices that are taken, as far as they are or were told
	untold   bool              // its facts are from the store, which does not have all that it tells of its devices
	immodest bool              // an interest of it, or what it says of itself, was refused on this connection, and that was told
	// strangers counts the events on this connection about instances of it that the store does not know.
	strangers int
}

// external reports whether a worker's agent is not Skerry's own: it does what it says that it does, and nothing else.
func (w *worker) external() bool { return w.Carrier != "" || w.Facts != nil && w.Facts.External != "" }

// keeps is what a site remembers of all that it ever gave a worker to keep: volumes and snapshots. A worker may hold on to
// what it was told to remove, or have it again from an older disk, with the site's own seal. It has a record of its own,
// which older programs leave alone. In the worker's record they would lose it, and therefore refuse the store.
type keeps struct {
	// Serial counts what the worker was given.
	Serial uint64 `json:"serial,omitempty"`
	// Searched is the life of the store in which the worker has listed what it keeps from earlier ones.
	Searched skerry.Incarnation `json:"searched,omitempty"`
}

// gaveUp reports whether a store that does not know what it gave a worker has given it up, rather than lost it.
//
//	given in this life        known ─► deleted ─► not known; but a number above the count is of a store that was set back, and has lost it
//	given in an earlier life  lost with that store, unless the worker has listed what it keeps since: then it was known, and deleted
func (k keeps) gaveUp(life skerry.Incarnation, given spec.Given) bool {
	if given.Life == life {
		return given.Serial <= k.Serial
	}
	return k.Searched == life
}

// workerRecord is what is kept of a worker, with what parts of the core own.
type workerRecord struct {
	*worker
	trust.Record
	// Keeps is only read, from stores of the days in which it had no record of its own.
	Keeps keeps `json:"keeps,omitzero"`
}

// canCheckpoint reports whether the runtime of a worker writes and reads what runs.
func (w *worker) canCheckpoint(runtime string) bool {
	return w != nil && w.Facts != nil && slices.ContainsFunc(w.Facts.Runtimes, func(r wire.RuntimeReport) bool {
		return r.Name == runtime && r.Passed && slices.Contains(r.Abilities, spec.AbilityCheckpoint)
	})
}

// usedShare is the share of a worker's processors that is in use, with so much more.
func (w *worker) usedShare(more skerry.MilliCPU) float64 {
	if w.Facts == nil || w.Facts.Capacity.CPU <= 0 {
		return 0
	}
	return float64(w.report.Used.CPU+more) / float64(w.Facts.Capacity.CPU)
}

// blockSpare is how many addresses of its blocks a worker has left when it gets another one.
const blockSpare = 16

// cramped reports whether a worker with so many instances should have one more block.
func (w *worker) cramped(instances int) bool {
	return (len(w.Blocks)-len(w.closing))<<(32-ipam.BlockBits) < instances+len(w.leaving)+blockSpare
}

// openBlocks are those that a worker may give addresses of.
func (w *worker) openBlocks() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(w.Blocks), func(b netip.Prefix) bool { return slices.Contains(w.closing, b) })
}

// overlaps reports whether the worker's own host is in a network that a block has addresses of.
func (w *worker) overlaps(b netip.Prefix) bool {
	_, hit := ipam.Overlap(b, networksOf(w.Facts))
	return hit
}

// owns reports whether an address is of one of the worker's blocks: what it says of its instances is not trusted further.
func (w *worker) owns(a netip.Addr) bool {
	return slices.ContainsFunc(w.Blocks, func(b netip.Prefix) bool { return b.Contains(a) })
}

// distance to another worker in milliseconds of round trip: measured coordinates if both have one, else light in fibre
// along the great circle, else far away.
func (w *worker) distance(o *worker) float64 {
	switch {
	case w == o:
		return 0
	case o == nil:
		return 1e6 // at another site
	case w.coordinate() != nil && o.coordinate() != nil:
		return w.coordinate().RTT(*o.coordinate())
	case w.Facts.Location != nil && o.Facts.Location != nil:
		return coord.GreatCircleKm(*w.Facts.Location, *o.Facts.Location) / 100
	}
	return 1e6
}

// hasIngress reports whether a worker lets clients in.
func (w *worker) hasIngress() bool {
	return w.Peer != 0 && w.Facts != nil && w.Facts.Overlay != nil && len(w.Facts.Overlay.Ingress) > 0
}

// classKey names a worker's class; it is worked out once for each set of facts.
func (w *worker) classKey() string {
	if w.classFor != w.Facts {
		w.classFor, w.class = w.Facts, uplink.ClassKey(w.Facts)
	}
	return w.class
}

// devicesTaken counts the instances that have each of the devices, and gives the nodes of those that the worker does not tell of any more:
// it may have another name for them by now.
func (w *worker) devicesTaken(told map[string]wire.Device) (taken map[string]int, were map[string]string) {
	var nodes map[string]string
	for key, count := range w.ports {
		name, ok := strings.CutPrefix(key, deviceKey(""))
		if !ok {
			continue
		}
		if taken == nil {
			taken, were, nodes = map[string]int{}, map[string]string{}, map[string]string{}
		}
		taken[name] = count
		if d, ok := told[name]; ok {
			nodes[name] = d.At
		} else if at := w.nodes[name]; at != "" {
			nodes[name], were[name] = at, at
		}
	}
	w.nodes = nodes
	return taken, were
}

// reachable reports whether others may be told to measure to a worker. What it says of itself is not trusted further.
func (w *worker) reachable() bool {
	if w.Facts == nil || w.Facts.Probe == "" || w.sight.Lost() {
		return false
	}
	a, err := netip.ParseAddrPort(w.Facts.Probe)
	return err == nil && a.Port() > 0 && a.Addr().IsValid() && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
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

// coordinate is where a worker is as far as that is believed, or nil.
func (w *worker) coordinate() *spec.Coordinate {
	if w.trust.Misplaced() {
		return nil
	}
	return w.report.Coordinate
}

// refusing says why a worker takes nothing new, or "".
func (w *worker) refusing() string {
	switch {
	case w.Cordon != "":
		return "held: " + w.Cordon
	case w.trust.Quarantine() != "":
		return "in quarantine: " + w.trust.Quarantine()
	case w.Facts == nil:
		return "it has not reported its resources yet"
	}
	return w.report.Refusing
}

// unpromised is what a worker has beyond what is promised to those who are to run on it. It is negative where the worker
// shrank.
func (w *worker) unpromised() spec.Resources {
	if w.Facts == nil {
		return spec.Resources{}
	}
	return w.Facts.Capacity.Sub(w.reserved)
}

// available is what is left on a worker for others: less than unpromised while some are on their way out.
func (w *worker) available() spec.Resources {
	left := w.unpromised()
	for _, h := range w.leaving {
		left = left.Sub(h.Need)
	}
	return left
}

// notCheckpointed says why an instance that is to be moved with its memory cannot be, or "". A drain by force moves it without.
func (ws roster) notCheckpointed(p *placement) string {
	w := ws[p.Worker]
	if !p.A.Spec.Checkpoints() || w == nil || w.canCheckpoint(p.Obs.Runtime) || w.Drain != nil && w.Drain.Force {
		return ""
	}
	why := "CRIU is not installed there"
	if w.Facts != nil {
		for _, r := range w.Facts.Runtimes {
			if _, cause, ok := strings.Cut(r.Cause, "no checkpoints: "); ok && r.Name == p.Obs.Runtime {
				why = cause
			}
		}
	}
	return "it is to be moved with its memory (migration: checkpoint), and runtime " + p.Obs.Runtime + " of its worker cannot: " + why
}

// runtimeAt chooses the runtime of a service on a worker.
func (ws roster) runtimeAt(s *spec.ServiceSpec, worker string) string {
	if w := ws[worker]; w != nil && w.Facts != nil {
		return s.RuntimeOn(w.Facts.Arch, w.Facts.PassedRuntimes(), w.Facts.RuntimeCosts())
	}
	return ""
}

// shortOf lists the workers that are short of processor time or memory, and no less so than own, if that is not nil.
func (ws roster) shortOf(except *wire.Pressure) (short []string) {
	for name, w := range ws {
		if r := w.report.Pressure; r != nil && (r.Memory > pressureLimit/2 || r.CPU > pressureLimit) {
			if except != nil && r.CPU <= except.CPU+pressureSlack && r.Memory <= except.Memory+pressureSlack {
				continue
			}
			short = append(short, name)
		}
	}
	return short
}

// slow reports whether what comes to an instance's service by ingresses takes longer, in the mean, than it is to take at most.
func (ws roster) slow(p *placement) bool {
	most := time.Duration(p.A.Spec.LatencyObjective).Seconds() * 1000
	if most <= 0 {
		return false
	}
	var sum wire.IngressUse
	for _, name := range slices.Sorted(maps.Keys(ws)) { // the sums do not depend on the order
		w := ws[name]
		for _, u := range w.report.Ingress {
			if !w.sight.Lost() && u.Service == p.A.Service {
				sum = sum.Add(u)
			}
		}
	}
	return sum.Requests > 0 && sum.Ms > most
}

// uses reports whether it is known what an instance uses now: what ended, is ending, or runs where nobody hears of it does not
// count with what it used last.
func (ws roster) uses(p *placement) bool {
	w := ws[p.Worker]
	return p.qos != nil && !p.Removing && !p.ended() && w != nil && !w.sight.Lost()
}

// addressPorts completes the ports of an instance with the address of its worker.
func (ws roster) addressPorts(p *placement) {
	w := ws[p.Worker]
	for i := range p.Obs.Ports {
		b := &p.Obs.Ports[i]
		b.Address = "" // whatever the worker says
		if w != nil && w.Facts != nil && b.HostPort > 0 {
			b.Address = fmt.Sprintf("%s:%d", cmp.Or(hostAddress(&p.A.Spec, b.Name), w.Facts.Address), b.HostPort)
		}
	}
}

// hostAddress is the address at which alone a port is published, or "".
func hostAddress(s *spec.ServiceSpec, port string) string {
	for _, q := range s.Ports {
		if q.PortName() == port {
			return q.HostAddress
		}
	}
	return ""
}

// where is where a worker is in the network, or nil.
func (ws roster) where(worker string) *spec.Coordinate {
	if w := ws[worker]; w != nil {
		return w.coordinate()
	}
	return nil
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

// networksOf are those that a host is in.
func networksOf(f *wire.WorkerFacts) []netip.Prefix {
	if f == nil || f.Overlay == nil {
		return nil
	}
	return f.Overlay.Networks
}

// has reports whether the site knows a worker.
func (ws roster) has(worker string) bool { return ws[worker] != nil }

// middle is where the site's gateway counts as being among its workers: in the middle of them; nil: no worker knows its place.
func (ws roster) middle() *spec.Coordinate {
	var list []spec.Coordinate
	for _, name := range slices.Sorted(maps.Keys(ws)) {
		if at := ws[name].coordinate(); at != nil {
			list = append(list, *at)
		}
	}
	c, _, ok := coord.Middle(list)
	if !ok {
		return nil
	}
	return &c
}

// silent reports whether a copy says nothing about its version: its worker has left, carries out nothing, or is lost, and was not in its
// turn, in which the version may have taken it down. So does one whose device has gone.
func (ro roster) silent(p *placement, begun map[spot]bool) bool {
	w := ro[p.Pinned]
	return w == nil || w.report.Frozen != "" || !p.gone.IsZero() || w.sight.Lost() && !begun[p.spot()] || p.Worker == "" && w.refusing() != ""
}
