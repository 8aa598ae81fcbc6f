package sim

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// workerMark is part of every worker's name and address in a scenario, and of nothing else.
const workerMark = "edgewk"

// application makes the manifest of an application of a shape.
func application(a *Action) spec.Application {
	shape := a.Args["shape"]
	replicas := a.number("replicas", 1)
	s := spec.ServiceSpec{Name: "web", Replicas: &replicas,
		Resources: spec.Resources{CPU: skerry.MilliCPU(a.number("cpu", 300)), Memory: 64 * skerry.MiB}}
	s.Image = fmt.Sprintf("web:%d", a.number("version", 1))
	s.Placement.Priority = a.number("priority", 0)
	if x, err := strconv.ParseFloat(a.Args["rigidness"], 64); err == nil {
		s.Placement.Rigidness = &x
	}
	if port := a.number("port", 0); port > 0 {
		s.Ports = []spec.Port{{Port: 80, HostPort: port}}
	}
	switch d := a.Args["disconnect"]; d {
	case "":
	case "run":
		s.OnDisconnect = "run"
	default:
		after, _ := time.ParseDuration(d)
		s.OnDisconnect = spec.StopAfter(after)
	}
	s.OnReconnect = a.Args["reconnect"]
	if most := a.number("max", 0); most > 0 && shape != "job" && shape != "perworker" && shape != "linked" {
		one, down, share := 1, spec.Duration(30*time.Second), 0.5
		replicas = min(max(replicas, 1), most)
		s.Scale = &spec.ScaleSpec{Min: &one, Max: most, Down: &down, Target: spec.ScaleTarget{CPU: &share}}
	}
	list := []spec.ServiceSpec{s}
	switch shape {
	case "recreate":
		list[0].Update.Strategy = "recreate"
	case "spread":
		list[0].Placement.Policy = spec.PolicySpread
	case "linked":
		db := s
		one := 1
		db.Name, db.Ports, db.Replicas = "db", nil, &one
		list[0].Links = []spec.Link{{Service: "db"}}
		list = append(list, db)
	case "job":
		list[0].Mode, list[0].Replicas, list[0].Ports = spec.ModeJob, nil, nil
		n := max(replicas, 1)
		two := 2
		list[0].Job = &spec.JobSpec{Completions: &n, Parallelism: &two}
	case "perworker":
		list[0].Mode, list[0].Replicas = spec.ModePerWorker, nil
	}
	return spec.Application{APIVersion: spec.APIVersion, Kind: spec.KindApplication,
		Metadata: spec.Metadata{Name: a.Target}, Spec: spec.ApplicationSpec{Services: list}}
}

// exit has instances of jobs end well after a few seconds.
func (r *run) exit(a *spec.Assignment, name string, _ int) (time.Duration, wire.Exit) {
	if a.Spec.Mode == spec.ModeJob && name == spec.MainContainer {
		return 3 * time.Second, wire.Exit{}
	}
	return -1, wire.Exit{}
}

// limits has every fourth change of limits come at the wrong moment, and every ninth be more than a machine can.
func (r *run) limits(string, skerry.InstanceID, *spec.ServiceSpec) (string, bool) {
	switch r.limited++; {
	case r.limited%4 == 0:
		return "more is in use", true
	case r.limited%9 == 0:
		return "cannot be changed here", false
	}
	return "", false
}

// use does what a user of an application asks for.
func (r *run) use(a Action) {
	u := r.check.wishes[a.Target]
	web := webOf(a.Target)
	key := web.App
	if u == nil {
		owner := r.w.Root
		if o := a.Args["owner"]; o != "" {
			owner = r.node(o)
		}
		if a.Verb != "apply" || owner == nil || owner.facts != nil {
			return
		}
		u = &wish{app: a.Target, owner: owner, may: []state{{}}}
		r.check.wishes[a.Target] = u
	}
	if at := r.w.Clusters[a.Args["at"]]; at != nil {
		r.amend(u, at, a)
		return
	}
	same := func(now state) []state { return []state{now} }
	switch a.Verb {
	case "apply":
		app := application(&a)
		r.request(u, apps.Apply{Actor: "t", App: app}, func(state) []state { return []state{stateOf(&app)} })
	case "scale":
		n := a.number("replicas", 1)
		r.request(u, apps.Scale{Service: web, Replicas: n, Actor: "t"}, func(now state) []state {
			return []state{now.with(func(x *wanted) { x.replicas = n })}
		})
	case "restart":
		r.request(u, apps.Restart{Service: web, Actor: "t"}, same)
	case "load":
		r.bear(a.Target, skerry.MilliCPU(a.number("cpu", 0)))
	case "pause":
		u.paused = true
		r.request(u, apps.Pause{Service: web, Actor: "t"}, same)
	case "resume":
		r.request(u, apps.Resume{Service: web, Actor: "t"}, same)
	case "undo":
		r.request(u, apps.Undo{Service: web, Actor: "t"}, u.before)
	case "delete":
		r.request(u, apps.Delete{Key: key, Actor: "t"}, func(state) []state { return []state{{}} })
	}
}

// bear has the instances of an application bear a load together from now on, of which each bears what it may use at most.
func (r *run) bear(app string, load skerry.MilliCPU) {
	r.loads[webOf(app)] = load
	r.beginMeasuring()
}

func (r *run) beginMeasuring() {
	if !r.measuring {
		r.measuring = true
		r.w.at(r.w.Now.Add(measured), r.measure)
	}
}

// measured is how often a worker looks at what its instances use.
const measured = 5 * time.Second

// measure tells all workers what their instances use.
func (r *run) measure() {
	running := map[skerry.ServiceKey]int{}
	for _, m := range r.check.here {
		for _, g := range m {
			if g.running > 0 {
				running[g.service]++
			}
		}
	}
	for _, n := range r.w.nodes() {
		if n.facts == nil || !n.Up || r.check.liars[n] && n.orphan == nil && !r.check.liars[r.w.parentOf(n)] {
			continue
		}
		use := map[skerry.InstanceID]wire.QoS{}
		for id, g := range r.check.here[n] {
			if g.running > 0 {
				q := wire.QoS{Waiting: r.suffering[n]}
				if load, ok := r.loads[g.service]; ok {
					q.CPU = min(load/skerry.MilliCPU(running[g.service]), g.need.CPU)
				}
				use[id] = q
			}
		}
		r.tellUse(n, use)
	}
	r.w.at(r.w.Now.Add(measured), r.measure)
}

// webOf names the service of an application that users change.
func webOf(app string) skerry.ServiceKey {
	return skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: app}, Service: "web"}
}

// amend changes what a site holds of an application of the root, which refuses that unless the root is away. Whether the root adopts
// it depends on what it was asked for itself meanwhile; how many are to run is open from then on.
func (r *run) amend(u *wish, at *Node, a Action) {
	if !at.Up || u.owner != r.w.Root {
		return
	}
	msg := any(apps.Restart{Service: webOf(u.app), Actor: "t"})
	if a.Verb == "scale" {
		msg = apps.Scale{Service: webOf(u.app), Replicas: a.number("replicas", 1), Actor: "t"}
	}
	u.amended = true
	r.w.tell(at, msg)
}

func (r *run) addWorker(i int, m Machinery) *Node {
	site, name, _ := strings.Cut(m.Name, "/")
	f := wire.WorkerFacts{Arch: "amd64", Address: name + ".test", Capacity: spec.Resources{CPU: m.CPU, Memory: m.Memory, Storage: 10 * skerry.GiB}}
	f.Overlay = &wire.OverlayFacts{Endpoints: []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), 7444)}}
	copy(f.Overlay.Key[:], fmt.Sprintf("%s%-29d", workerMark, i))
	if m.Via != "" { // its agent takes no part in the overlay, and says what it can do
		f.Overlay = nil
		f.Runtimes = []wire.RuntimeReport{{Name: "oci", Passed: true, Abilities: []string{"images", "init", "sidecars", "volumes", "config", "ports", "overlay", "probes", "security", "user", "tty"}}}
	}
	if r.s.Places {
		f.Probe = fmt.Sprintf("192.168.%d.%d:7443", byte(i>>8), byte(i))
	}
	n := r.w.addWorker(site, name, m.Via, f)
	if r.s.Places {
		r.locate(n, i)
	}
	return n
}

// relayOf says that a site has a relay, so that it takes part in what goes on between sites.
func relayOf(i int) cluster.RelayUp {
	return cluster.RelayUp{UDP: netip.MustParseAddrPort("0.0.0.0:7445"), Public: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 7445)}
}
