package sim

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/members"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// The invariants, by the names under which a break is reported.
const (
	BrokenWrite    = "acknowledged-write" // no acknowledged write is lost
	BrokenLive     = "one-live"           // each (service, ordinal) converges to one live instance
	BrokenPlace    = "placeable"          // every instance that fits somewhere runs, once faults have stopped
	BrokenRest     = "rest"               // a fleet that has what it wants leaves it alone
	BrokenTwice    = "one-copy"           // what stops when it is cut off never runs twice, whatever goes on
	BrokenCapacity = "capacity"           // no worker is promised or runs more than it has
	BrokenFence    = "fence"              // generations and fencing tokens never go back
	BrokenAddress  = "address"            // no address belongs to two
	BrokenSecret   = "worker-detail"      // no worker is readable at the root
	BrokenSane     = "sane"               // no panic, no spinning, nothing unreadable, no task started twice
	BrokenHarm     = "harm"               // a member that lies harms only what is placed on it
	BrokenView     = "view"               // what is shown is so
	BrokenTrust    = "credit"             // no honest member is in quarantine, and who is gets nothing new
)

// Invariants lists all names.
func Invariants() []string {
	return []string{BrokenWrite, BrokenLive, BrokenPlace, BrokenRest, BrokenTwice, BrokenCapacity, BrokenFence, BrokenAddress, BrokenSecret,
		BrokenSane, BrokenHarm, BrokenView, BrokenTrust}
}

// Break is an invariant that did not hold.
type Break struct {
	Invariant string        `json:"invariant"`
	Text      string        `json:"text"`
	Step      int           `json:"step"`
	At        time.Duration `json:"atNs"` // since the start, of the simulated clock
}

func (b *Break) Error() string {
	return fmt.Sprintf("%s does not hold at step %d, after %s: %s", b.Invariant, b.Step, b.At, b.Text)
}

// checker looks at every step whether the invariants hold. It keeps the first break.
type checker struct {
	w      *World
	born   time.Time
	broken *Break
	// marker is part of the name and address of every worker, and of nothing else.
	marker []byte
	fences map[held]skerry.Fence
	gens   map[held]skerry.Generation
	here   map[*Node]map[skerry.InstanceID]*guest
	used   map[*Node]spec.Resources
	liars  map[*Node]bool
	// garbled are members of which a message came changed, and could be read.
	garbled map[*Node]bool
	// quarantined are the members that their parents have put in quarantine.
	quarantined map[*Node]bool
	wishes      map[string]*wish
	overlaps    []overlap
	twins       map[twin]bool
	// rolled: a root or site lost what it had acknowledged.
	rolled bool
}

// overlap is an instance that started while an agent which has only just come back has still to stop another copy.
type overlap struct {
	id     skerry.InstanceID
	on, at *Node // where it started, and where the other copy is
	life   uint64
	until  time.Time
}

// twin is an instance that started, under a token, beside another copy of it while the site could not yet know better.
type twin struct {
	id     skerry.InstanceID
	on, at *Node
	fence  skerry.Fence
}

// held names something that a node holds.
type held struct {
	node string
	what string
}

// guest is an instance on a machine.
type guest struct {
	service skerry.ServiceKey
	// revision is that with which it was started.
	revision string
	ordinal  int
	need     spec.Resources // with beside
	beside   spec.Resources // what its runtime takes
	fence    skerry.Fence
	running  int // containers
	starts   int // of containers, so far
	address  string
	ports    []int // of the worker
}

func newChecker(w *World, marker string) *checker {
	return &checker{w: w, born: w.Now, marker: []byte(marker), fences: map[held]skerry.Fence{}, gens: map[held]skerry.Generation{},
		here: map[*Node]map[skerry.InstanceID]*guest{}, used: map[*Node]spec.Resources{}, liars: map[*Node]bool{}, garbled: map[*Node]bool{},
		quarantined: map[*Node]bool{}, wishes: map[string]*wish{}, twins: map[twin]bool{}}
}

func (k *checker) fail(invariant, format string, args ...any) {
	if k.broken == nil {
		k.broken = &Break{Invariant: invariant, Text: fmt.Sprintf(format, args...), Step: k.w.steps, At: k.w.Now.Sub(k.born)}
	}
}

// stepped is called after the effects of a step are carried out.
func (k *checker) stepped(n *Node, fx *wire.Effects) {
	if len(k.w.Faults) > 0 {
		k.fail(BrokenSane, "%s", k.w.Faults[0])
	}
	k.believe(n, fx)
	k.overlaps = slices.DeleteFunc(k.overlaps, func(x overlap) bool {
		over := k.w.Now.After(x.until)
		if over && x.at.life == x.life && x.at.Up && x.at.deaf() && k.runs(x.on, x.id) && k.runs(x.at, x.id) {
			k.fail(BrokenTwice, "%s runs on %s, and the agent that came back on %s did not stop it", x.id, x.on.Name, x.at.Name)
		}
		return over
	})
	switch c := n.Core.(type) {
	case *root.Core:
		k.viewed(n, c.Apps, fx)
		for _, ch := range fx.Changed {
			if i := c.Apps.Instance(ch.Instance); i != nil {
				k.fence(n, ch.Instance, i.Fence)
			} else if ch.Instance == "" {
				if net := c.Apps.Network(ch.App); net != nil {
					k.directory(n, net)
				}
				if a := c.Apps.App(ch.App); a != nil {
					k.gen(held{n.Name, "app " + ch.App.String() + " of " + a.CreatedAt.String()}, a.Gen)
				}
			}
		}
	case *cluster.Core:
		k.viewed(n, c.Apps, fx)
		for _, ch := range fx.Changed {
			if ch.Instance == "" {
				if net := c.Apps.Network(ch.App); net != nil {
					k.directory(n, net)
				}
			} else if i, _, ok := c.Instance(ch.Instance); ok && i.Fence.Sequence > 0 { // else it has no worker
				k.fence(n, ch.Instance, i.Fence)
			}
		}
		k.parent(n, c.Up)
		if len(fx.Writes)+len(fx.Changed) > 0 {
			for _, text := range c.Audit() {
				if strings.Contains(text, "promised too much") {
					if name, _, _ := strings.Cut(text, ":"); k.garbled[k.w.Workers[n.Name+"/"+name]] {
						continue // what it was promised it had, and in a garbled message it has less
					}
					k.fail(BrokenCapacity, "%s: %s", n.Name, text)
				}
				k.fail(BrokenSane, "the books of %s: %s", n.Name, text)
			}
		}
	case *worker.Core:
		k.parent(n, c.Up)
	}
}

// fence checks that the token of an instance does not go back at a node.
func (k *checker) fence(n *Node, id skerry.InstanceID, f skerry.Fence) {
	at := held{n.Name, string(id)}
	if old := k.fences[at]; f.Compare(old) < 0 {
		k.fail(BrokenFence, "the token of %s at %s went back from %s to %s", id, n.Name, old, f)
	}
	k.fences[at] = f
}

func (k *checker) gen(at held, g skerry.Generation) {
	if old := k.gens[at]; g < old {
		k.fail(BrokenFence, "generation of %s at %s went back from %d to %d", at.what, at.node, old, g)
	}
	k.gens[at] = g
}

// parent checks the generation of what a parent wants of a node.
func (k *checker) parent(n *Node, p *members.Parent) {
	if p.Desired.Gen() > 0 {
		k.gen(held{n.Name, "desired " + string(p.Desired.Incarnation())}, p.Desired.Gen())
	}
}

// directory checks that the service addresses of an application are different.
func (k *checker) directory(n *Node, net *wire.AppNetwork) {
	seen := map[netip.Addr]string{}
	for s := range net.Addressed() {
		for _, a := range append([]netip.Addr{s.RoundRobin, s.Closest, s.LeastLoaded}, s.Instances...) {
			if !a.IsValid() {
				continue
			}
			if seen[a] != "" {
				k.fail(BrokenAddress, "%s belongs to %s and to %s in the directory of %s at %s", a, seen[a], s.Name, net.App, n.Name)
			}
			seen[a] = s.Name
		}
	}
}

// framed is called for every frame that is sent.
func (k *checker) framed(from, to *Node, msg wire.Message, data []byte) {
	if to == k.w.Root && len(k.marker) > 0 && bytes.Contains(data, k.marker) {
		i := bytes.Index(data, k.marker)
		k.fail(BrokenSecret, "%s tells the root of a worker in a %T: %q", from.Name, msg, data[max(0, i-40):min(len(data), i+24)])
	}
}

// ran is called when a container starts on a machine.
func (k *checker) ran(n *Node, a *spec.Assignment, name string) {
	m := k.here[n]
	if m == nil {
		m = map[skerry.InstanceID]*guest{}
		k.here[n] = m
	}
	g := m[a.ID]
	if g == nil {
		g = &guest{}
		m[a.ID] = g
	}
	if a.Fence.Compare(g.fence) < 0 {
		k.fail(BrokenFence, "%s starts %s under %s after %s", n.Name, a.ID, a.Fence, g.fence)
	}
	g.service, g.revision, g.ordinal, g.fence, g.address = a.Service, a.Revision, a.Ordinal, a.Fence, n.addresses[a.ID]
	g.starts++
	if g.running++; g.running > 1 {
		return
	}
	g.beside = a.Spec.Overhead(a.Runtime)
	g.need, g.ports = a.Spec.Need().Add(g.beside), nil
	for _, p := range a.Spec.Ports {
		if p.HostPort > 0 {
			g.ports = append(g.ports, p.HostPort)
		}
	}
	k.used[n] = k.used[n].Add(g.need)
	k.fits(n, a.ID)
	k.addressed(n, a.ID, g.address)
	if _, stops := a.Spec.OnDisconnect.StopAfter(); stops {
		k.alone(n, a)
	}
}

// resized is called when an instance that runs was given other limits.
func (k *checker) resized(n *Node, id skerry.InstanceID, need spec.Resources) {
	if g := k.here[n][id]; g != nil && g.running > 0 {
		need = need.Add(g.beside)
		k.used[n] = k.used[n].Sub(g.need).Add(need)
		g.need = need
		k.fits(n, id)
	}
}

// fits checks that what runs on a machine takes no more than there is.
func (k *checker) fits(n *Node, id skerry.InstanceID) {
	for i, v := range n.facts.Capacity.Sub(k.used[n]).Vector() {
		if v < 0 && !k.liars[n] {
			k.fail(BrokenCapacity, "%s runs %d of %s more than it has since %s started", n.Name, -v, spec.ResourceNames[i], id)
		}
	}
}

// alone checks that an instance does not run on a machine that is known to be cut off, where its agent should have stopped it; in touch,
// one copy may start while the other ends, as in every migration. If the machine of the other is cut off then, the two run side by side
// until its agent stops it, and the new one may be restarted in that time. A machine without its agent, or whose agent has only just come
// back, cannot keep the promise: there the monitor beside the instance keeps it (runtime/lease), which these machines do not have.
func (k *checker) alone(n *Node, a *spec.Assignment) {
	for _, o := range k.w.nodes() {
		if o == n || k.liars[o] || k.liars[n] || !o.Up || !k.runs(o, a.ID) {
			continue
		}
		pair := twin{a.ID, n, o, a.Fence}
		late := noticed(o) + 2*(n.disk.slow+k.w.parentOf(n).disk.slow) // what was on its way behind a batch cannot be called back
		switch {
		case !o.deaf() || k.w.Now.Sub(o.line.since) <= late:
			k.twins[pair] = true
		case k.w.Now.Sub(o.began) <= late:
			k.overlaps = append(k.overlaps, overlap{a.ID, n, o, o.life, o.began.Add(late + 2*o.disk.slow)})
		default:
			if stopped, _ := a.Spec.SurelyStopped(late + 2*o.disk.slow); k.twins[pair] && k.w.Now.Sub(o.line.since) <= stopped {
				continue
			}
			k.fail(BrokenTwice, "%s starts on %s and still runs on %s", a.ID, n.Name, o.Name)
		}
	}
}

func (k *checker) runs(n *Node, id skerry.InstanceID) bool {
	g := k.here[n][id]
	return g != nil && g.running > 0
}

// noticed is how long it takes a site to know that a worker is cut off. An agent of others does not beat: its connection is given up first.
func noticed(n *Node) time.Duration {
	const lostAfter = 3 * time.Second // of the profile fast
	if n.carrier != "" {
		return 3*siteKeepAlive + lostAfter
	}
	return lostAfter
}

// addressed checks that no other instance of the site runs under an address.
func (k *checker) addressed(n *Node, id skerry.InstanceID, address string) {
	if address == "" {
		return
	}
	for _, o := range k.w.parentOf(n).children {
		for other, g := range k.here[o] {
			if g.running > 0 && g.address == address && (o != n || other != id) {
				k.fail(BrokenAddress, "%s belongs to %s on %s and to %s on %s", address, other, o.Name, id, n.Name)
			}
		}
	}
}

// ended is called when a container ends.
func (k *checker) ended(n *Node, id skerry.InstanceID) {
	if g := k.here[n][id]; g != nil && g.running > 0 {
		if g.running--; g.running == 0 {
			k.used[n] = k.used[n].Sub(g.need)
		}
	}
}

// dark is called when a machine loses its power.
func (k *checker) dark(n *Node) {
	for _, g := range k.here[n] {
		g.running = 0
	}
	delete(k.used, n)
}

// blank is called when a machine lost its store, too: what it was told before is nothing to compare with.
func (k *checker) blank(n *Node) {
	k.dark(n)
	delete(k.here, n)
	delete(k.quarantined, n)
	maps.DeleteFunc(k.gens, func(h held, _ skerry.Generation) bool { return h.node == n.Name })
}

// repaired is called when a worker's store was damaged and it began with what was left; what runs goes on.
func (k *checker) repaired(n *Node) { k.forget(n) }

// rolledBack is called when a power cut took back what a node's disk had acknowledged. Its users find what they asked for last, or what
// they had asked for before.
//
// A worker is told again what it should have. A root or site that went back leaves alone what it does not know any more, as after a
// restore, and may place it once more: what holds at rest is not promised then, what holds at every step is.
func (k *checker) rolledBack(n *Node) {
	k.forget(n)
	if n.facts != nil {
		k.blank(n)
		return
	}
	k.rolled = true
	for _, u := range k.wishes {
		if u.owner == n {
			u.may = slices.Concat(u.may, u.asked, u.past, []state{{}})
			u.asked = nil
		}
	}
}

// forget takes that a node's store knows less than it did.
func (k *checker) forget(n *Node) {
	mine := func(h held) bool { return h.node == n.Name }
	maps.DeleteFunc(k.gens, func(h held, _ skerry.Generation) bool { return mine(h) })
	maps.DeleteFunc(k.fences, func(h held, _ skerry.Fence) bool { return mine(h) })
}

// acted is called for every action of a core; blocks of addresses that two workers of a site have at the same time are seen here.
func (k *checker) acted(n *Node, action any) {
	f, ok := action.(worker.OverlayItem)
	if !ok {
		return
	}
	node, ok := f.Item.(*wire.OverlayNode)
	if !ok {
		return
	}
	for _, o := range k.w.parentOf(n).children {
		other, ok := o.overlay[wire.NodeKey].(*wire.OverlayNode)
		if !ok || o == n {
			continue
		}
		if other.ID == node.ID {
			k.fail(BrokenAddress, "%s and %s both have number %d in the overlay", n.Name, o.Name, node.ID)
		}
		for _, b := range node.Blocks {
			for _, x := range other.Blocks {
				if b.Overlaps(x) && k.talks(n) && k.talks(o) {
					k.fail(BrokenAddress, "%s and %s both have the addresses %s", n.Name, o.Name, b)
				}
			}
		}
	}
}

// talks reports whether a worker is up and in touch, so that its cluster knows what it has.
func (k *checker) talks(n *Node) bool {
	return n.Up && n.line != nil && n.line.cur != nil && n.line.cur.up
}

// booted is called when a node has read its store.
func (k *checker) booted(n *Node) { k.written(n) }

// live lists what runs of a service: ordinal to the places.
func (k *checker) live(at skerry.ServiceKey) map[int][]string {
	out := map[int][]string{}
	for n, m := range k.here {
		number := map[skerry.InstanceID]int{} // it may have got another since it was started
		if c, ok := n.Core.(*worker.Core); ok && n.Up {
			for _, v := range c.Views() {
				number[v.ID] = v.Ordinal
			}
		}
		for id, g := range m {
			if g.running > 0 && g.service == at && !k.liars[n] {
				ordinal, known := number[id]
				if !known {
					ordinal = g.ordinal
				}
				out[ordinal] = append(out[ordinal], n.Name+" "+string(id))
			}
		}
	}
	for _, list := range out {
		slices.Sort(list)
	}
	return out
}

// recovered makes a panic of a core a break of an invariant.
func (w *World) recovered() {
	if v := recover(); v != nil {
		w.guard.fail(BrokenSane, "panic: %v\n%s", v, debug.Stack())
	}
}

func (w *World) fault(format string, args ...any) {
	w.Faults = append(w.Faults, fmt.Sprintf(format, args...))
}
