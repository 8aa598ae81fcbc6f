package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Generate makes a scenario of a seed: some sites and workers, users who change their minds, and faults. Each seed leaves some
// kinds of faults out, so that others are not always masked by them.
func Generate(seed uint64) *Scenario {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 2)), s: &Scenario{Seed: seed}, down: map[string]bool{}, blocked: map[string]bool{}, slowed: map[string]bool{}, held: map[string]bool{},
		last: map[string][]string{}, limits: rand.New(rand.NewPCG(seed, 4))}
	g.fleet()
	g.kinds()
	for range 20 + g.rng.IntN(60) {
		if g.rng.IntN(3) > 0 {
			g.now += time.Duration(g.rng.IntN(6000)) * time.Millisecond
		}
		g.steps[g.rng.IntN(len(g.steps))]()
	}
	return g.s
}

type generator struct {
	rng   *rand.Rand
	s     *Scenario
	now   time.Duration
	steps []func()
	// budget is what applications may ask for together, in thousandths of a core: so little that everything fits whatever
	// was placed before.
	budget                      int
	asked                       map[string]int
	scaled                      map[string]int // what those that follow their load can bear
	down, blocked, slowed, held map[string]bool
	last                        map[string][]string // arguments of the last apply
	limits                      *rand.Rand
}

func (g *generator) fleet() {
	for i := range 1 + g.rng.IntN(3) {
		site := string(rune('a' + i))
		g.s.Sites = append(g.s.Sites, site)
		for j := range 1 + g.rng.IntN(4) {
			m := Machinery{Name: fmt.Sprintf("%s/%s%d", site, workerMark, j+1), CPU: skerry.MilliCPU(1000 + 1000*g.rng.IntN(4)), Memory: 4096 * skerry.MiB}
			g.s.Workers = append(g.s.Workers, m)
			g.budget += int(m.CPU) / 2
		}
	}
	// A draw of its own, which leaves the others as they were.
	if via := rand.New(rand.NewPCG(g.s.Seed, 3)); via.IntN(3) == 0 {
		for i := range g.s.Workers {
			if via.IntN(2) == 0 {
				g.s.Workers[i].Via = wire.CarrierMQTT
			}
		}
	}
	g.asked, g.scaled = map[string]int{}, map[string]int{}
	if g.rng.IntN(2) == 0 {
		g.s.Lost = time.Duration(10+g.rng.IntN(60)) * time.Second
	}
}

// kinds chooses what may happen, with weights.
func (g *generator) kinds() {
	add := func(weight int, fn func()) {
		for range weight {
			g.steps = append(g.steps, fn)
		}
	}
	add(6, g.use)
	maybe := func(weight int, fn func()) {
		if g.rng.IntN(3) > 0 {
			add(weight, fn)
		}
	}
	maybe(2, func() { g.stop("kill", g.anyone()) })
	maybe(1, func() { g.stop("off", g.anyone()) })
	add(3, g.revive)
	maybe(2, g.partition)
	add(2, g.heal)
	maybe(1, g.flap)
	maybe(1, func() { g.do("reset", g.child()) })
	maybe(1, g.slow)
	maybe(1, g.disk)
	maybe(1, g.suffer)
	maybe(1, g.hold)
	maybe(1, g.drain)
	maybe(2, g.load)
	maybe(1, g.alone)
	maybe(1, func() { g.do("evict", g.site(), "nth", fmt.Sprint(g.rng.IntN(20))) })
	maybe(1, g.forget)
	maybe(1, g.skew)
	if g.rng.IntN(6) == 0 && len(g.s.Workers) > 1 { // one member lies
		liar := g.worker()
		add(3, func() { g.do("lie", liar, "about", workerLies[g.rng.IntN(len(workerLies))]) })
	}
	// Draws of their own, which leave the others as they were.
	rng := rand.New(rand.NewPCG(g.s.Seed, 5))
	g.s.Places = rng.IntN(3) == 0
	if rng.IntN(8) == 0 && len(g.s.Sites) > 1 { // a whole site lies
		liar := g.s.Sites[rng.IntN(len(g.s.Sites))]
		add(3, func() { g.do("lie", liar, "about", siteLies[rng.IntN(len(siteLies))]) })
	}
	if rng := rand.New(rand.NewPCG(g.s.Seed, 6)); rng.IntN(3) == 0 { // disks that fail
		add(1, func() { g.fault(rng) })
	}
	maybe(2, func() {
		g.do("inject", g.child(), "kind", injections[g.rng.IntN(len(injections))], "dir", []string{"up", "down"}[g.rng.IntN(2)])
	})
}

func (g *generator) do(verb, target string, args ...string) {
	a := Action{At: g.now, Verb: verb, Target: target, Args: map[string]string{}}
	for i := 0; i < len(args); i += 2 {
		a.Args[args[i]] = args[i+1]
	}
	g.s.Actions = append(g.s.Actions, a)
}

func (g *generator) site() string   { return g.s.Sites[g.rng.IntN(len(g.s.Sites))] }
func (g *generator) worker() string { return g.s.Workers[g.rng.IntN(len(g.s.Workers))].Name }

// child is a node with a parent, anyone a node.
func (g *generator) child() string {
	if g.rng.IntN(3) == 0 {
		return g.site()
	}
	return g.worker()
}

func (g *generator) anyone() string {
	if g.rng.IntN(6) == 0 {
		return "root"
	}
	return g.child()
}

func (g *generator) direction() string { return []string{"up", "down", "both", "alone"}[g.rng.IntN(4)] }

// use is what users do.
func (g *generator) use() {
	n := g.rng.IntN(5)
	name, owner := fmt.Sprintf("app%d", n), ""
	if g.resize(name) {
		return
	}
	if n > 2 {
		owner = g.s.Sites[n%len(g.s.Sites)] // the site's own
	}
	_, there := g.asked[name]
	switch k := g.rng.IntN(8); {
	case k == 0 && there:
		g.do("delete", name)
		delete(g.asked, name)
		delete(g.scaled, name)
	case k <= 2 && there:
		g.do([]string{"restart", "pause", "resume", "undo"}[g.rng.IntN(4)], name)
	default:
		replicas := g.rng.IntN(5)
		cpu := 100 * (1 + g.rng.IntN(5))
		if owner != "" {
			replicas = min(replicas, 1)
		}
		shape := shapes[g.rng.IntN(len(shapes))]
		need := (replicas + 2) * cpu
		if shape == "perworker" {
			cpu, need = 100, 100*len(g.s.Workers)
		}
		most := 0
		if g.rng.IntN(4) == 0 && (shape == "service" || shape == "spread" || shape == "recreate") {
			most = max(replicas, 1+g.rng.IntN(4))
			need = (most + 2) * cpu
		}
		total := need
		for o, x := range g.asked {
			if o != name {
				total += x
			}
		}
		if total > g.budget {
			return
		}
		g.asked[name] = need
		if delete(g.scaled, name); most > 0 {
			g.scaled[name] = cpu * most
		}
		args := []string{"replicas", fmt.Sprint(replicas), "cpu", fmt.Sprint(cpu), "version", fmt.Sprint(1 + g.rng.IntN(3)), "shape", shape}
		if owner != "" {
			args = append(args, "owner", owner)
		}
		if most > 0 {
			args = append(args, "max", fmt.Sprint(most))
		}
		if g.rng.IntN(3) == 0 {
			args = append(args, "priority", fmt.Sprint(g.rng.IntN(3)))
		}
		if g.rng.IntN(3) == 0 {
			args = append(args, "rigidness", []string{"0", "0.5", "1"}[g.rng.IntN(3)])
		}
		if g.rng.IntN(3) == 0 && shape != "job" {
			args = append(args, "disconnect", []string{"run", "5s", "20s"}[g.rng.IntN(3)])
		}
		if g.rng.IntN(3) == 0 && shape != "job" {
			args = append(args, "reconnect", []string{spec.KeepOriginal, spec.KeepReplacement, spec.KeepBest}[g.rng.IntN(3)])
		}
		if g.rng.IntN(6) == 0 && shape != "perworker" && replicas < 2 {
			args = append(args, "port", fmt.Sprint(8000+n))
		}
		g.do("apply", name, args...)
		g.last[name] = args
	}
}

// resize applies an application again that differs in its cpu alone, now and then. It draws for itself, so that the other draws are as
// they were until then.
func (g *generator) resize(name string) bool {
	args := g.last[name]
	if _, there := g.asked[name]; !there || args == nil || slices.Contains(args, "perworker") || slices.Contains(args, "max") || g.limits.IntN(3) > 0 {
		return false
	}
	args = slices.Clone(args)
	old, _ := strconv.Atoi(args[3])
	cpu := 100 * (1 + g.limits.IntN(5))
	total := 0
	for _, x := range g.asked {
		total += x
	}
	need := g.asked[name] / old * cpu
	if total+need-g.asked[name] > g.budget {
		return false
	}
	g.asked[name] = max(need, g.asked[name]) // for a while both may be promised
	args[3] = fmt.Sprint(cpu)
	g.do("apply", name, args...)
	return true
}

func (g *generator) stop(verb, name string) {
	if !g.down[name] {
		g.do(verb, name)
		g.down[name] = true
	}
}

func (g *generator) one(m map[string]bool) string {
	names := sortedNames(m)
	if len(names) == 0 {
		return ""
	}
	return names[g.rng.IntN(len(names))]
}

func (g *generator) revive() {
	if n := g.one(g.down); n != "" {
		g.do("start", n)
		delete(g.down, n)
	}
}

func (g *generator) partition() {
	n := g.child()
	g.do("block", n, "dir", g.direction())
	g.blocked[n] = true
}

func (g *generator) heal() {
	if n := g.one(g.blocked); n != "" {
		g.do("open", n)
		delete(g.blocked, n)
	}
	if n := g.one(g.slowed); n != "" && g.rng.IntN(2) == 0 {
		g.do("slow", n)
		delete(g.slowed, n)
	}
}

// flap breaks and mends something again and again.
func (g *generator) flap() {
	n, dir := g.child(), g.direction()
	pause := time.Duration(1+g.rng.IntN(4000)) * time.Millisecond
	reboot := g.rng.IntN(3) == 0 && !g.down[n]
	for range 3 + g.rng.IntN(6) {
		if reboot {
			g.do("kill", n)
		} else {
			g.do("block", n, "dir", dir)
		}
		g.now += pause/2 + time.Duration(g.rng.Int64N(int64(pause)))
		if reboot {
			g.do("start", n)
		} else {
			g.do("open", n)
		}
		g.now += pause/2 + time.Duration(g.rng.Int64N(int64(pause)))
	}
	delete(g.blocked, n)
}

func (g *generator) slow() {
	n := g.child()
	g.do("slow", n, "delay", fmt.Sprintf("%dms", g.rng.IntN(500)), "jitter", fmt.Sprintf("%dms", g.rng.IntN(300)), "loss", []string{"0", "0.01", "0.2", "0.5"}[g.rng.IntN(4)])
	g.slowed[n] = true
}

func (g *generator) disk() {
	g.do("disk", g.anyone(), "slow", fmt.Sprintf("%dms", []int{0, 5, 100, 2000}[g.rng.IntN(4)]))
}

// fault has a disk fail. What was acknowledged and lost is for scenarios of their own: nothing promises to survive it.
func (g *generator) fault(rng *rand.Rand) {
	n := g.anyone()
	switch rng.IntN(3) {
	case 0:
		g.do("disk", n, "fault", "full")
		g.now += time.Duration(rng.IntN(20_000)) * time.Millisecond
		g.do("disk", n, "fault", "none")
	case 1:
		g.do("disk", n, "fault", "short", "nth", fmt.Sprint(rng.IntN(6)))
	case 2:
		g.do("disk", n, "slow", fmt.Sprintf("%dms", 1+rng.IntN(50)), "fault", "short", "nth", fmt.Sprint(rng.IntN(30)))
	}
}

func (g *generator) suffer() { g.do("suffer", g.worker(), "share", fmt.Sprint(g.rng.IntN(2))) }

func (g *generator) hold() {
	n := g.worker()
	if g.held[n] {
		g.do("hold", n, "on", "no")
		delete(g.held, n)
		return
	}
	g.do("hold", n, "on", "yes")
	g.held[n] = true
}

func (g *generator) load() {
	if names := sortedNames(g.scaled); len(names) > 0 {
		name := names[g.rng.IntN(len(names))]
		g.do("load", name, "cpu", fmt.Sprint(g.rng.IntN(g.scaled[name]+1)))
	}
}

func (g *generator) drain() {
	n := g.worker()
	g.do("drain", n, "parallel", fmt.Sprint(1+g.rng.IntN(3)), "force", []string{"yes", "no"}[g.rng.IntN(2)])
	g.held[n] = true
}

// alone has somebody at a site change an application of the root, which is away.
func (g *generator) alone() {
	site, name := g.site(), fmt.Sprintf("app%d", g.rng.IntN(3))
	if _, there := g.asked[name]; !there {
		return
	}
	if !g.blocked[site] && !g.down["root"] {
		g.do("block", site, "dir", "both")
		g.blocked[site] = true
		g.now += time.Duration(30+g.rng.IntN(30)) * time.Second // until it has noticed
	}
	if g.rng.IntN(3) == 0 {
		g.do("restart", name, "at", site)
		return
	}
	g.do("scale", name, "replicas", fmt.Sprint(g.rng.IntN(3)), "at", site)
}

func (g *generator) forget() {
	n := g.worker()
	g.stop("off", n)
	g.now += time.Duration(g.rng.IntN(20_000)) * time.Millisecond
	g.do("forget", n)
}

// skew has a node come back with a wrong clock: by seconds, days, a year.
func (g *generator) skew() {
	n := g.anyone()
	if !g.down[n] {
		g.do("kill", n)
	}
	g.now += time.Duration(g.rng.IntN(3000)) * time.Millisecond
	g.do("start", n, "skew", []string{"3s", "-3s", "1h", "-26h", "8760h", "-8760h"}[g.rng.IntN(6)])
	delete(g.down, n)
}
