package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// shapes of applications.
var shapes = []string{"service", "recreate", "linked", "job", "perworker", "spread"}

// RunOptions set up a run. The zero value runs to the end.
type RunOptions struct {
	// Until, if greater than 0, ends the run before the step after it.
	Until int
	// Trace, if not nil, is told of every action and every event of the fleet, with the step and the time since the start.
	Trace func(step int, at time.Duration, text string)
	// plant lets a test make a mistake in the world before it begins.
	plant func(w *World)
}

// Result is what a run came to.
type Result struct {
	Seed  uint64 `json:"seed"`
	Steps int    `json:"steps"`
	// Broken is nil when all invariants held.
	Broken *Break `json:"broken,omitempty"`
	// Acknowledged counts changes that were asked for and acknowledged.
	Acknowledged int `json:"acknowledged"`
	// Converged is how long after the last fault the fleet was what was asked for.
	Converged time.Duration `json:"convergedNs"`
	// Trail is a digest of all records, frames and timers. Two runs of one scenario leave the same.
	Trail     string              `json:"trail"`
	Simulated time.Duration       `json:"simulatedNs"`
	Traffic   map[string]*Traffic `json:"traffic"`
	Ignored   map[string]int      `json:"ignored,omitempty"` // bad input that was let go, by reason, by the cores of the end
	Placed    int                 `json:"placed"`            // decisions of the root
	World     *World              `json:"-"`
}

// mostSteps is far more than the longest scenario that is generated needs.
const mostSteps = 100_000

// run is a scenario that goes on.
type run struct {
	w            *World
	s            *Scenario
	opt          RunOptions
	check        *checker
	acknowledged int
	events       int // told to Trace
	held         map[*Node]bool
	suffering    map[*Node]float64 // the share of the time that what runs there waits
	loads        map[skerry.ServiceKey]skerry.MilliCPU
	limited      int              // changes of limits that machines were asked for
	measuring    bool             // workers look every 5 s at what their instances use
	places       map[*Node]*place // of workers, in scenarios with places
}

// Run plays a scenario. Two runs of the same scenario are the same, step by step.
func Run(s *Scenario, opt RunOptions) Result {
	w := New(s.Seed)
	w.Now = w.Now.Add(time.Duration(s.Seed%1000) * time.Hour) // not all at the same time of the day
	w.UseNetwork()
	w.lostAfter = s.Lost
	w.Boot(w.Root)
	r := &run{w: w, s: s, opt: opt, check: newChecker(w, workerMark), held: map[*Node]bool{}, suffering: map[*Node]float64{}, loads: map[skerry.ServiceKey]skerry.MilliCPU{}, places: map[*Node]*place{}}
	w.guard, w.trail = r.check, newTrail()
	w.net.tape = newTape()
	w.Machine = Machine{Prepare: 20 * time.Millisecond, Start: 10 * time.Millisecond, Stop: 50 * time.Millisecond, Exit: r.exit, Limits: r.limits}
	if opt.plant != nil {
		opt.plant(w)
	}
	for i, name := range s.Sites {
		n := w.AddCluster(name)
		w.Do(n, apps.PutOrg{Org: apps.Org{Name: "default"}})
		w.Do(n, apps.PutNamespace{Namespace: apps.Namespace{Name: "default", Org: "default"}})
		w.Do(n, relayOf(i))
	}
	for i, m := range s.Workers {
		r.addWorker(i, m)
	}
	for _, name := range s.Sites {
		if slices.ContainsFunc(s.Actions, func(a Action) bool { return a.Verb == "succeed" && a.Target == name }) {
			w.useCandidates(w.Clusters[name])
		}
	}
	if s.Places {
		r.beginMeasuring()
	}
	born := w.Now
	for _, a := range s.Actions {
		if !r.advance(born.Add(a.At)) {
			break
		}
		r.trace(a.String())
		r.act(a)
	}
	res := Result{Seed: s.Seed, World: w}
	if r.goesOn() {
		res.Converged = r.settle()
	}
	res.Trail = w.trail.String()
	res.Steps, res.Broken, res.Acknowledged, res.Simulated = w.steps, r.check.broken, r.acknowledged, w.Now.Sub(born)
	res.Traffic, res.Ignored = w.net.traffic, w.ignored()
	for _, e := range w.Events {
		if e.Reason == "Scheduled" {
			res.Placed++
		}
	}
	return res
}

// goesOn reports whether nothing is broken and the run has not reached its step.
func (r *run) goesOn() bool {
	return r.check.broken == nil && (r.opt.Until == 0 || r.w.steps < r.opt.Until)
}

// advance lets time pass until then. It reports false when the run is over.
func (r *run) advance(then time.Time) bool {
	for r.goesOn() {
		if r.w.steps > mostSteps {
			r.check.fail(BrokenSane, "the fleet does not come to rest within %d steps", mostSteps)
			return false
		}
		if !r.w.step(then) {
			r.w.Now = maxTime(then, r.w.Now)
			return true
		}
		r.tell()
	}
	return false
}

// tell passes new events on to the trace.
func (r *run) tell() {
	if r.opt.Trace == nil {
		return
	}
	for ; r.events < len(r.w.Events); r.events++ {
		e := r.w.Events[r.events]
		text := e.Reason + ": " + e.Text
		for _, x := range []string{string(e.Cluster), string(e.Worker), string(e.Instance)} {
			if x != "" {
				text = x + " " + text
			}
		}
		r.trace(text)
	}
}

func (r *run) trace(text string) {
	if r.opt.Trace != nil {
		r.opt.Trace(r.w.steps, r.w.Now.Sub(r.check.born), text)
	}
}

func (r *run) node(name string) *Node {
	if name == "root" {
		return r.w.Root
	}
	if n := r.w.Clusters[name]; n != nil {
		return n
	}
	return r.w.Workers[name]
}

// act carries out an action; one that makes no sense now has no effect, so that actions can be left out.
func (r *run) act(a Action) {
	if verbs[a.Verb].target == 'a' {
		r.use(a)
		return
	}
	n := r.node(a.Target)
	if n == nil {
		return
	}
	switch a.Verb {
	case "kill":
		r.w.crash(n, false)
	case "off":
		if n.Up {
			r.w.crash(n, true)
			r.w.powerCut(n)
		}
	case "succeed":
		r.succeed(n, a.Args["after"])
	case "start":
		if d, err := time.ParseDuration(a.Args["skew"]); err == nil && !n.Up {
			n.skew = d
		}
		r.w.boot(n)
	case "block", "open":
		for dir, name := range []string{"up", "down"} {
			if d := a.Args["dir"]; d == name || d != "up" && d != "down" {
				r.w.net.block(n, dir, a.Verb == "block")
			}
		}
		n.alone = a.Args["dir"] == "alone" && a.Verb == "block"
	case "reset":
		r.w.net.reset(n)
	case "slow":
		l := n.line
		l.delay, l.jitter, l.loss = 0, 0, 0
		l.delay, _ = time.ParseDuration(a.Args["delay"])
		l.jitter, _ = time.ParseDuration(a.Args["jitter"])
		l.loss, _ = strconv.ParseFloat(a.Args["loss"], 64)
		l.loss = min(l.loss, 0.9)
	case "disk":
		if d, err := time.ParseDuration(a.Args["slow"]); err == nil || a.Args["fault"] == "" {
			n.disk.slow = d
		}
		if f := a.Args["fault"]; f != "" {
			n.disk.fail(f, a.number("nth", 0))
		}
	case "suffer":
		share, _ := strconv.ParseFloat(a.Args["share"], 64)
		r.suffer(n, share)
	case "hold":
		r.hold(n, a.Args["on"] != "no")
	case "drain":
		r.drain(n, a.number("parallel", 1), a.Args["force"] == "yes")
	case "evict":
		r.evict(n, a.number("nth", 0))
	case "forget":
		r.forget(n)
	case "lie":
		r.lie(n, a.Args["about"])
	case "inject":
		r.inject(n, a.Args["kind"], a.Args["dir"] == "down")
	}
}

// succeed has a site's machine die for good and a successor take its place, which its workers choose. Without an in-sync replica nobody
// could, and it lives on.
func (r *run) succeed(n *Node, after string) {
	if !n.candidates.inSync() {
		return
	}
	r.w.crash(n, true)
	n.disk.mend() // it has another one
	n.disk.rotten = false
	n.candidates.die()
	n.successions++
	d, _ := time.ParseDuration(after)
	r.w.at(r.w.Now.Add(d), func() { r.w.boot(n) })
}

func (a *Action) number(key string, or int) int {
	if n, err := strconv.Atoi(a.Args[key]); err == nil {
		return n
	}
	return or
}

// suffer has everything on a worker wait for a processor for a share of the time.
func (r *run) suffer(n *Node, share float64) {
	if !n.Up {
		return
	}
	r.suffering[n] = share
	use := map[skerry.InstanceID]wire.QoS{}
	for _, o := range n.Core.(*worker.Core).Instances() {
		use[o.ID] = wire.QoS{CPU: 100, Waiting: share}
	}
	r.tellUse(n, use)
}

func (r *run) hold(n *Node, on bool) {
	site := r.w.parentOf(n)
	if !site.Up {
		return
	}
	reason := ""
	if on {
		reason = "as the scenario wants"
	}
	r.held[n] = true // whatever becomes of what is asked for
	r.w.tell(site, cluster.CordonWorker{Name: short(n), Reason: reason})
}

func (r *run) drain(n *Node, parallel int, force bool) {
	if site := r.w.parentOf(n); site.Up {
		r.held[n] = true
		r.w.tell(site, cluster.DrainWorker{Name: short(n), Reason: "as the scenario wants", Parallel: parallel, Force: force})
	}
}

func (r *run) evict(site *Node, nth int) {
	if !site.Up {
		return
	}
	if list := site.Core.(*cluster.Core).Instances(); len(list) > 0 {
		r.w.tell(site, apps.DeleteInstance{ID: list[nth%len(list)].ID, Actor: "t"})
	}
}

// forget removes a worker that is down; it is revoked, and joins again as another, empty.
func (r *run) forget(n *Node) {
	site := r.w.parentOf(n)
	if n.Up || !site.Up || site.disk.busy {
		return
	}
	r.w.remove(n)
}

// remove has a site remove a worker, which does not start again before that is answered.
func (w *World) remove(n *Node) {
	site, again := w.parentOf(n), n.leaving > 0
	n.leaving = site.life
	slow := site.disk.slow
	site.disk.slow = 0 // the operator has the time
	w.ask(site, cluster.RemoveWorker{Name: short(n)}, func(result any) {
		err, _ := result.(error)
		if errors.Is(err, store.ErrDeposed) || errors.Is(err, store.ErrFull) {
			return // whether it was done is not known, so it is asked again
		}
		n.leaving = 0
		var told *skerry.Error
		if err != nil && !(again && errors.As(err, &told) && told.Code == skerry.CodeNotFound) {
			return
		}
		clear(n.Store)
		clear(n.tasks)
		clear(n.addresses)
		clear(n.overlay)
		w.guard.blank(n)
	})
	site.disk.slow = slow
}

// beingRemoved reports whether a worker is still being removed. Whoever removes it asks again a site that began a new life meanwhile.
func (w *World) beingRemoved(n *Node) bool {
	if site := w.parentOf(n); n.leaving > 0 && site.Up && site.life != n.leaving {
		w.remove(n)
	}
	return n.leaving > 0
}

// liarsSettle is how much longer a fleet has to come to rest in which somebody lies.
const liarsSettle = 10 * time.Minute

// free lets time go by until what a liar held up was placed elsewhere and runs or has ended there; no longer than liarsSettle. It
// reports whether the run goes on.
func (r *run) free() bool {
	for extra := time.Duration(0); len(r.check.liars) > 0 && extra < liarsSettle; extra += time.Second {
		if _, left := r.check.atRest(); left == "" {
			break
		}
		if !r.advance(r.w.Now.Add(time.Second)) {
			return false
		}
	}
	return true
}

// settle ends all faults, gives the fleet its time and checks what it came to. It gives how long that took.
func (r *run) settle() time.Duration {
	w := r.w
	r.trace("all faults end")
	nodes := w.nodes()
	for _, n := range nodes {
		n.disk.mend()
		if n.candidates != nil {
			n.candidates.calm = true
		}
		if n.line != nil {
			n.line.delay, n.line.jitter, n.line.loss = 0, 0, 0
			w.net.block(n, upward, false)
			w.net.block(n, downward, false)
		}
	}
	for _, n := range nodes {
		w.boot(n)
	}
	for _, n := range nodes {
		if r.held[n] {
			w.whenUp(w.parentOf(n), func() { r.hold(n, false) })
		}
		if r.suffering[n] > 0 {
			r.suffer(n, 0)
		}
	}
	for _, name := range sortedNames(r.check.wishes) {
		if u := r.check.wishes[name]; u.paused {
			w.whenUp(u.owner, func() { w.tell(u.owner, apps.Resume{Service: webOf(name), Actor: "t"}) })
		}
	}
	within := r.s.Settle
	if within == 0 {
		within = DefaultSettle
	}
	begin := w.Now
	took, left := time.Duration(0), ""
	for second := 0; w.Now.Sub(begin) < within; second++ {
		if !r.advance(w.Now.Add(time.Second)) {
			return took
		}
		last := w.Now.Sub(begin) >= within
		if left == "" && second%5 != 0 && !last { // Looking is a third of a run's work, and most fleets are at rest by now.
			continue
		}
		if _, left = r.check.atRest(); left != "" {
			took = w.Now.Sub(begin)
		}
	}
	for _, name := range sortedNames(r.check.wishes) {
		r.check.settleWish(r.check.wishes[name])
	}
	if left != "" && !r.free() {
		return took
	}
	if invariant, text := r.check.atRest(); text != "" {
		r.check.fail(invariant, "%s, %s after the last fault", text, within)
		return took
	}
	// What is at rest stays at rest.
	changed, ok := r.changes(0)
	if !ok {
		return took
	}
	if len(r.check.liars) > 0 { // it may have been found out just now
		if !r.free() {
			return took
		}
		if invariant, text := r.check.atRest(); text != "" {
			r.check.fail(invariant, "%s, a minute after the fleet had come to rest", text)
		}
		return took
	}
	if r.measuring && changed != "" { // instances near their saturation points move, one a minute
		if changed, ok = r.changes(within); !ok {
			return took
		}
	}
	if !r.check.rolled && changed != "" {
		r.check.fail(BrokenRest, "nobody asked for it, and what runs changed: %s", changed)
	}
	return took
}

// changes lets a minute pass, after a while, and gives what changed in it; ok is false when the run has ended.
func (r *run) changes(after time.Duration) (changed string, ok bool) {
	if after > 0 && !r.advance(r.w.Now.Add(after)) {
		return "", false
	}
	before := r.check.snapshot()
	if !r.advance(r.w.Now.Add(time.Minute)) {
		return "", false
	}
	if after := r.check.snapshot(); !slices.Equal(before, after) {
		changed = difference(before, after)
	}
	return changed, true
}

// whenUp does something as soon as a node is up, which a site with successors need not be at once.
func (w *World) whenUp(n *Node, fn func()) {
	if n.Up {
		fn()
		return
	}
	w.at(w.Now.Add(candidateBeat), func() { w.whenUp(n, fn) })
}

func difference(a, b []string) string {
	var gone, arrivals []string
	for _, x := range a {
		if !slices.Contains(b, x) {
			gone = append(gone, x)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			arrivals = append(arrivals, x)
		}
	}
	return fmt.Sprintf("gone %v, new %v", gone, arrivals)
}
