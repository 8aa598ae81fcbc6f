// Package sim runs the real cores of all three tiers on a simulated clock, with simulated links and machines. It is for
// tests, properties and benchmarks of decisions; nothing in it touches the machine. Tests and bench import it.
package sim

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/link/frame"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// World is a fleet with its clock. Errors that a core could not explain are collected in Faults.
type World struct {
	Now      time.Time
	Root     *Node
	Clusters map[string]*Node
	Workers  map[string]*Node // "cluster/worker"
	Events   []wire.Event
	Faults   []string
	// Latency of every link in one direction; default 1 ms.
	Latency time.Duration
	// Audit, if set, has the books of every site checked after every step; Rebalance has sites move instances to better places.
	Audit, Rebalance bool
	// Machine says how a worker's machine behaves; zero values mean: at once and without fault.
	Machine Machine

	rng    *rand.Rand
	queue  events
	order  uint64
	seed   uint64
	cut    map[string]bool
	epoch  map[string]uint64 // of a link; frames of an older connection are lost
	linked map[string]bool   // links that are up

	// steps counts what has happened so far: every message, tick and arrival.
	steps int
	// trail sums up all that was written and sent; nil: nobody wants to know.
	trail *trail
	// net, if not nil, has links that take time, break and come back by themselves; else a test makes and breaks them.
	net *network
	// guard, if not nil, watches that nothing is lost.
	guard    *checker
	machines machines
	hooks
	settings
}

// hooks are put in by tests; nil: there is none.
type hooks struct {
	// tap is told of every message between nodes without a network.
	tap func(from, to *Node, msg wire.Message)
	// wrap puts something around the cores, so that a test can plant a mistake.
	wrap func(n *Node, c core) core
	// drive puts something around the engine that drives a core, for the same reason.
	drive func(n *Node, e engine) engine
	// boast changes what workers tell of their machines.
	boast func(f *wire.WorkerFacts)
}

// settings hold from a node's next start on.
type settings struct {
	// lostAfter is when the root gives up a site; 0: after its default.
	lostAfter time.Duration
	// amendments says what the root adopts.
	amendments string
	// reportFixed is the interval of workers' reports; 0: it adapts.
	reportFixed time.Duration
	// quiet worlds keep no events.
	quiet bool
	// survives: a core that panics on a message is built anew, as in production. Else its panic is one of the test.
	survives bool
}

// Machine is the behaviour of the simulated machines.
type Machine struct {
	Prepare, Start, Stop time.Duration
	// Exit, if not nil, decides how long a container runs and how it ends; a negative time means for ever.
	Exit func(a *spec.Assignment, name string, attempt int) (time.Duration, wire.Exit)
	// Pull, if not nil, gives what a worker takes longer to prepare than others.
	Pull func(worker string) time.Duration
	// PrepareErr, if not nil, lets a Prepare fail.
	PrepareErr func(worker string, a *spec.Assignment) (text string, permanent bool)
	// Probe, if not nil, decides whether a try of a probe passes.
	Probe func(a *spec.Assignment, kind worker.ProbeKind, attempt int) bool
	// Started, if not nil, is told of every start of a container.
	Started func(a *spec.Assignment, name string, attempt int)
	// Limits, if not nil, may refuse to change limits of what runs.
	Limits func(worker string, id skerry.InstanceID, to *spec.ServiceSpec) (text string, inUse bool)
	// Checkpoint, if not nil, may have the writing or the reading of a state fail at a worker.
	Checkpoint func(worker string) string
	// RTT, if not nil, gives the round trip from a worker to a user in milliseconds; 0 is no answer.
	RTT func(worker, target string) float64
	// Ways, if not nil, gives the round trip between the gateways of two sites in milliseconds; 0 is no answer.
	Ways func(from, to string) float64
	// Upgrade, if not nil, says why the program of an image fails its trial on a worker (empty: it passes), and whether the trial ever ends.
	Upgrade func(worker, image string) (why string, ends bool)
	// Plugins, if not nil, answers for the sites' plugins; else nobody does.
	Plugins func(q cluster.Score) []wire.PluginAnswer
	// Snapshot, if not nil, says why a worker takes no snapshot of a schedule (empty: it does), and whether it ever says so.
	Snapshot func(q cluster.TakeSnapshot) (why string, answers bool)
	// Export, if not nil, changes what comes of sending a snapshot away, and says whether anything ever does.
	Export func(q cluster.ExportSnapshot, end *cluster.EndExport) (answers bool)
	// Think, if not nil, gives how long an answer to the core's questions takes, and whether it comes at all.
	Think func() (time.Duration, bool)
}

// core is what the three cores have in common.
type core interface {
	Step(now time.Time, msg any) wire.Effects
	Tick(now time.Time) wire.Effects
	NextWake() time.Time
}

// Node is one role with its store.
type Node struct {
	Name  string // "root", "a", "a/w1"
	Core  core
	Store map[string][]byte
	make  func() core
	start func(c core, now time.Time) wire.Effects
	load  func(c core, key string, value []byte) error
	Up    bool
	wake  time.Time
	ticks int       // at the time of
	tick  time.Time // the last one
	life  uint64
	began time.Time        // this life
	tasks map[string]*task // on a worker's machine; they outlive the agent
	// volumes are the local volumes on a worker's machine, with the instances that used them; they outlive the agent.
	volumes map[spec.VolumeClaim][]skerry.InstanceID
	// states are what was written of instances that were to leave.
	states map[skerry.InstanceID]string
	sets   func(c core) []wire.SetAck
	// probing counts, for each instance, how often its probes were replaced.
	probing map[skerry.InstanceID]int
	overlay map[string]any // what a worker was told of the overlay, by key
	extra   time.Duration  // on the way between it and its parent
	contact time.Time      // of a worker with its cluster, as its machine remembers it while it is on
	// addresses are those of the instances on a worker's machine; they outlive the agent.
	addresses map[skerry.InstanceID]string

	version string // of its program; empty: the one that it began with

	successions uint64      // successors that took a site's place
	candidates  *candidates // of a site with successors; else nil
	// leaving is the life of its site that was asked to remove it and has not answered; 0: none was.
	leaving uint64

	skew time.Duration // its clock is ahead of the world's by this
	// repaired: its store was damaged before this life, and has lost records. repairs is how often that was.
	repaired bool
	repairs  int
	disk     disk
	// loop is the production path from a step to what follows, in this life; engine is it, or what a test put around it.
	loop   *loop.Engine
	engine engine
	// refusals outlive the core, as they do in internal/tier; here they outlive the process, too.
	refusals *loop.Refusals
	host     *host
	line     *wireline // to its parent, in worlds with a network
	// alone: what is blocked to its parent is blocked to everybody.
	alone    bool
	children []*Node
	// facts are told to a worker's core at each start, in worlds with a network; nil: it is no worker.
	facts   *wire.WorkerFacts
	carrier string // over what it is connected
	// A member that lies claims more than it has, or never runs what it is given.
	idle   bool
	boasts int              // by how many factors of ten
	orphan *spec.Coordinate // where it claims to be; nil: where it is
	lies   map[string]bool  // of a site, what it lies about

	outer core // Core, or what a test put around it
}

// now is what a node's clock shows.
func (w *World) clock(n *Node) time.Time { return w.Now.Add(n.skew) }

type event struct {
	at    time.Time
	order uint64
	fn    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { o := *e; n := len(o) - 1; x := o[n]; *e = o[:n]; return x }

// New makes a world with a root and nothing else. The seed decides everything that is random.
func New(seed uint64) *World {
	w := &World{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Clusters: map[string]*Node{}, Workers: map[string]*Node{},
		Latency: time.Millisecond, rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, cut: map[string]bool{}, linked: map[string]bool{}, epoch: map[string]uint64{}}
	w.machines = machines{w}
	w.Root = w.node("root", func() core {
		return root.New(root.Options{Incarnation: skerry.Incarnation("r" + strconv.Itoa(1+w.Root.repairs)), Epoch: 1, Seed: w.bytes(), LostAfter: w.lostAfter, Amendments: w.amendments})
	}, func(c core, now time.Time) wire.Effects { return c.(*root.Core).Start(now) },
		func(c core, k string, v []byte) error { return c.(*root.Core).Load(k, v) }, nil)
	w.Boot(w.Root)
	w.Do(w.Root, apps.PutOrg{Org: apps.Org{Name: "default"}})
	w.Do(w.Root, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
	return w
}

func (w *World) bytes() (b [16]byte) {
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

func (w *World) secret() [32]byte {
	a, b := w.bytes(), w.bytes()
	return [32]byte(append(a[:], b[:]...))
}

func (w *World) node(name string, mk func() core, start func(core, time.Time) wire.Effects, load func(core, string, []byte) error, sets func(core) []wire.SetAck) *Node {
	return &Node{Name: name, disk: disk{short: -1}, Store: map[string][]byte{}, make: mk, start: start, load: load, sets: sets, tasks: map[string]*task{}, probing: map[skerry.InstanceID]int{}, overlay: map[string]any{}, addresses: map[skerry.InstanceID]string{}}
}

// AddCluster adds a site and connects it.
func (w *World) AddCluster(name string) *Node {
	var n *Node
	n = w.node(name, func() core {
		return cluster.New(cluster.Options{Name: name, Incarnation: skerry.Incarnation(name + strconv.Itoa(1+n.repairs)), Term: n.term(), Seed: w.bytes(), Secret: w.secret(),
			Admission: cluster.Admission{Trusted: []string{"default"}}, Policies: sched.Policies(), Rebalance: w.Rebalance})
	}, func(c core, now time.Time) wire.Effects { return c.(*cluster.Core).Start(now) },
		func(c core, k string, v []byte) error { return c.(*cluster.Core).Load(k, v) },
		func(c core) []wire.SetAck { return c.(*cluster.Core).Up.Hello() })
	w.Clusters[name] = n
	w.Boot(n)
	if w.net != nil {
		w.net.wire(n)
	} else {
		w.Connect(n)
	}
	return n
}

// term is the one in which a site leads.
func (n *Node) term() uint64 {
	if n.candidates != nil {
		return n.candidates.core.Term()
	}
	return 1 + n.successions
}

// AddWorker adds a worker to a site and connects it.
func (w *World) AddWorker(site, name string, facts wire.WorkerFacts) *Node {
	return w.addWorker(site, name, "", facts)
}

// addWorker adds a worker that is connected over a carrier, as wire.Hello names it.
func (w *World) addWorker(site, name, carrier string, facts wire.WorkerFacts) *Node {
	if facts.Runtimes == nil {
		facts.Runtimes = []wire.RuntimeReport{{Name: "oci", Passed: true, Abilities: []string{spec.AbilityResize}}, {Name: "native", Passed: true}}
	}
	if facts.Arch == "" {
		facts.Arch = "amd64"
	}
	if facts.Address == "" {
		facts.Address = name + ".test"
	}
	full := site + "/" + name
	var n *Node
	n = w.node(full, func() core {
		return worker.New(worker.Options{Name: name, Seed: w.bytes(), ReportFixed: w.reportFixed, Repaired: n.repaired})
	}, func(c core, now time.Time) wire.Effects { return c.(*worker.Core).Start(now) },
		func(c core, k string, v []byte) error { return c.(*worker.Core).Load(k, v) },
		func(c core) []wire.SetAck { return c.(*worker.Core).Up.Hello() })
	w.Workers[full] = n
	n.facts, n.carrier = &facts, carrier
	w.Boot(n)
	w.Do(n, worker.Facts{Facts: w.machineOf(n)})
	if w.net != nil {
		w.net.wire(n)
	} else {
		w.Connect(n)
	}
	return n
}

// Kill ends a node's process; what it had not persisted is lost, what it runs goes on.
func (w *World) Kill(n *Node) {
	n.Up = false
	n.life++
	w.tear(n)
	w.disconnect(n)
	for _, c := range w.childrenOf(n) {
		w.disconnect(c)
	}
}

// PowerOff ends a worker's process and everything on its machine.
func (w *World) PowerOff(n *Node) {
	w.Kill(n)
	w.blackout(n)
}

// blackout ends all that runs on a worker's machine.
func (w *World) blackout(n *Node) {
	clear(n.tasks)
	n.contact = time.Time{}
	clear(n.addresses)
	if w.guard != nil {
		w.guard.dark(n)
	}
}

// Restart boots a killed node and connects it and its children again.
func (w *World) Restart(n *Node, facts *wire.WorkerFacts) {
	w.Boot(n)
	if facts != nil {
		w.Do(n, worker.Facts{Facts: *facts})
	}
	w.Connect(n)
	for _, c := range w.childrenOf(n) {
		w.Connect(c)
	}
}

// Cut breaks the link of a node to its parent; Heal mends it.
func (w *World) Cut(n *Node) {
	w.cut[n.Name] = true
	w.disconnect(n)
}

// Heal mends a cut link.
func (w *World) Heal(n *Node) {
	delete(w.cut, n.Name)
	w.Connect(n)
}

func (w *World) childrenOf(n *Node) []*Node {
	var out []*Node
	switch {
	case n == w.Root:
		for _, c := range w.Clusters {
			out = append(out, c)
		}
	default:
		for _, c := range w.Workers {
			if w.parentOf(c) == n {
				out = append(out, c)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (w *World) parentOf(n *Node) *Node {
	if site, _, ok := strings.Cut(n.Name, "/"); ok {
		return w.Clusters[site]
	}
	if n == w.Root {
		return nil
	}
	return w.Root
}

func short(n *Node) string { return n.Name[strings.LastIndex(n.Name, "/")+1:] }

// Connect brings the link of a node to its parent up, if both live and it is not cut.
func (w *World) Connect(n *Node) {
	p := w.parentOf(n)
	if p == nil || !p.Up || !n.Up || w.cut[n.Name] {
		return
	}
	w.epoch[n.Name]++
	w.linked[n.Name] = true
	hello := &wire.Hello{Name: short(n), Version: n.version, Carrier: n.carrier, Sets: n.sets(n.Core)}
	var up any = root.ChildUp{Hello: hello}
	if p != w.Root {
		up = cluster.ChildUp{Hello: hello}
	}
	welcome, _ := w.Do(p, up).(*wire.Welcome)
	if n.Name == short(n) {
		w.Do(n, cluster.ParentUp{Welcome: welcome})
	} else {
		w.Do(n, worker.ParentUp{Welcome: welcome})
	}
}

func (w *World) disconnect(n *Node) {
	p := w.parentOf(n)
	if p == nil || w.net != nil {
		return
	}
	w.epoch[n.Name]++
	if w.linked[n.Name] {
		delete(w.linked, n.Name)
		n.contact = w.Now
	}
	if p.Up {
		if p == w.Root {
			w.Do(p, root.ChildDown{Name: short(n)})
		} else {
			w.Do(p, cluster.ChildDown{Name: short(n)})
		}
	}
	if n.Up {
		if p == w.Root {
			w.Do(n, cluster.ParentDown{})
		} else {
			w.Do(n, worker.ParentDown{})
		}
	}
}

// Do gives a node a message and returns its result, nil if that is not there at once; an error becomes the result.
func (w *World) Do(n *Node, msg any) any {
	if w.guard != nil {
		defer w.recovered()
	}
	var out any
	w.ask(n, msg, func(result any) { out = result })
	return out
}

// watch looks at a node after what followed from a batch was carried out, and has it woken when it wants to be.
func (w *World) watch(n *Node, fx *wire.Effects) {
	w.trail.step(w.Now, n, fx)
	_, isWorker := n.Core.(*worker.Core)
	spoilt := isWorker && w.quiet // by a test that writes into its sets
	if c, ok := n.Core.(interface{ Audit() []string }); ok && w.Audit && !spoilt && len(w.Faults) < 10 {
		for _, text := range c.Audit() {
			w.fault("%s at %s: %s", n.Name, w.Now.Format("15:04:05.000"), text)
		}
	}
	if w.guard != nil {
		w.guard.stepped(n, fx)
	}
	w.schedule(n)
}

func (w *World) schedule(n *Node) {
	at := n.Core.NextWake()
	if !at.IsZero() {
		at = at.Add(-n.skew)
	}
	if at.IsZero() || at.Equal(n.wake) && n.wake.After(w.Now) {
		return
	}
	n.wake = at
	life := n.life
	w.at(maxTime(at, w.Now), func() {
		if n.Up && n.life == life && n.wake.Equal(at) {
			n.wake = time.Time{}
			if n.disk.busy {
				return // what comes after the commit asks again
			}
			if !n.tick.Equal(w.Now) {
				n.tick, n.ticks = w.Now, 0
			}
			if n.ticks++; n.ticks > 100 {
				w.fault("%s ticks without end at %s: next at %s", n.Name, w.Now.Format("15:04:05.000"), at.Format("15:04:05.000"))
				n.tick = w.Now.Add(time.Second)
				w.at(n.tick, func() {
					if n.Up && n.life == life {
						w.tick(n)
					}
				})
				return
			}
			w.tick(n)
		}
	})
}

func maxTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (w *World) at(t time.Time, fn func()) {
	w.order++
	heap.Push(&w.queue, event{t, w.order, fn})
}

func (w *World) deliver(n *Node, s wire.Outgoing) {
	msg, ok := s.Msg.(wire.Message)
	if !ok {
		w.fault("%s sends %T, which is no message", n.Name, s.Msg)
		return
	}
	to, link := w.parentOf(n), n
	if s.To != "" {
		name := s.To
		if n != w.Root {
			name = n.Name + "/" + s.To
		}
		if to = w.Clusters[name]; to == nil {
			to = w.Workers[name]
		}
		link = to
	}
	if to == nil {
		return
	}
	if w.net != nil {
		w.net.transmit(link, to == link, msg)
		return
	}
	epoch := w.epoch[link.Name]
	w.at(w.Now.Add(w.Latency+link.extra), func() {
		if !to.Up || w.epoch[link.Name] != epoch || w.cut[link.Name] {
			return
		}
		if w.tap != nil {
			w.tap(n, to, msg)
		}
		switch {
		case to == w.Root:
			w.Do(to, root.ChildFrame{Name: n.Name, Msg: msg})
		case s.To == "":
			w.Do(to, cluster.ChildFrame{Name: short(n), Msg: msg})
		case to.Name == short(to):
			w.Do(to, cluster.ParentFrame{Msg: msg})
		default:
			w.Do(to, worker.ParentFrame{Msg: msg})
		}
	})
}

// dump gives all bytes that a message carries, for tests that look for what must not be in it.
func dump(m wire.Message) string {
	data, err := frame.NewCodec().Encode(m)
	if err != nil {
		return ""
	}
	return string(data)
}

// Run lets time pass until nothing is left to do before the limit, and ends at the limit.
func (w *World) Run(d time.Duration) {
	end := w.Now.Add(d)
	for steps := 0; w.step(end); steps++ {
		if steps > 20_000_000 && w.guard == nil {
			w.fault("the world does not come to rest")
			break
		}
	}
	w.Now = end
}

// step does what is next, if it is due by the end.
func (w *World) step(end time.Time) bool {
	if len(w.queue) == 0 || w.queue[0].at.After(end) {
		return false
	}
	e := heap.Pop(&w.queue).(event)
	w.Now = maxTime(e.at, w.Now)
	w.steps++
	if w.guard != nil {
		defer w.recovered()
	}
	e.fn()
	return true
}

// RootCore gives the root's core.
func (w *World) RootCore() *root.Core { return w.Root.Core.(*root.Core) }

// ClusterCore gives a site's core.
func (w *World) ClusterCore(name string) *cluster.Core { return w.Clusters[name].Core.(*cluster.Core) }
